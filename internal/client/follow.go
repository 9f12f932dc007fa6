package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// followTries is how often in a row a log or a stream of events that broke off is
// opened again, with pauses of a second and then twice the one before: for two
// minutes, in which a server can restart.
const followTries = 8

// followHeld is how long an answer without content must have lasted to be that of
// a silent run behind a proxy with a timeout. A server that cannot read a log
// breaks off sooner.
const followHeld = time.Second

// follow opens the log of a run that may go on for hours, during which servers
// restart, proxies time out, and the server itself ends long answers. The reader
// goes on where it was.
func (r *Records) follow(ctx context.Context, id query.StackID, run string, o query.LogOptions) (io.ReadCloser, error) {
	if run == "" || run == command.NewestRun {
		newest, err := r.Run(ctx, id, command.NewestRun)
		if err != nil {
			return nil, err
		}
		run = newest.ID // another run may be the newest by the time the log breaks off
	}
	f := &following{records: r, ctx: ctx, id: id, run: run, options: o}
	return f, f.open()
}

// following is a log that is followed.
type following struct {
	records *Records
	ctx     context.Context // of the reader, whose methods have no room for one
	id      query.StackID
	run     string
	options query.LogOptions

	body  io.ReadCloser
	began time.Time // when the answer did
	at    int64     // bytes that were read
	tries int       // since the last of them, or since an answer last held
}

func (f *following) open() error {
	params := logParams(f.options)
	if f.at > 0 {
		params.Set("after", strconv.FormatInt(f.at, 10))
	}
	body, err := f.records.open(f.ctx, 0, f.records.path(f.id, params, "runs", f.run, "log"))
	if err != nil {
		return err
	}
	f.body, f.began = body, time.Now()
	return nil
}

func (f *following) Read(p []byte) (int, error) {
	for {
		n, err := f.body.Read(p)
		f.at += int64(n)
		if n > 0 {
			f.tries = 0
			return n, nil // an error is met again
		}
		if err == nil || err == io.EOF {
			return 0, err
		}
		if err := f.again(err); err != nil {
			return 0, err
		}
	}
}

// again opens the log again after it broke off for a reason.
func (f *following) again(reason error) error {
	if f.tries > 1 && time.Since(f.began) >= followHeld {
		f.tries = 1 // the next attempt is after a pause, and the count begins again
	}
	for reason = errors.Join(reason, f.body.Close()); ; {
		if f.ctx.Err() != nil {
			return context.Cause(f.ctx)
		}
		if f.tries == followTries {
			return fault.New(fault.Later, access.ReasonUnreachable, fmt.Errorf("the log broke off, and the server at %s has not gone on with it: %w", f.records.host(), reason))
		}
		if err := f.pause(); err != nil {
			return err
		}
		f.tries++
		err := f.open()
		if k := fault.Of(err); err == nil || k != fault.Later && k != fault.Broken {
			return err
		}
		reason = err
	}
}

// pause waits before an attempt; the first one is made at once.
func (f *following) pause() error {
	if f.tries == 0 {
		return nil
	}
	select {
	case <-f.ctx.Done():
		return context.Cause(f.ctx)
	case <-time.After(time.Second << (f.tries - 1)):
		return nil
	}
}

func (f *following) Close() error {
	if f.body == nil {
		return nil
	}
	return f.body.Close()
}
