package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// silence is how long a service may take or give no byte.
const silence = time.Minute

// errSilent is the error of a request that makes no progress.
var errSilent = fmt.Errorf("the service was silent for %v: %w", silence, context.DeadlineExceeded)

// talking ends a request during which the service is silent. It bounds no request as a
// whole: a large value may go to a slow client. How long the reader of an answer waits
// between two reads is no silence of the service.
//
// It asks for no compression, which would hide the size of an object.
type talking struct{ next http.RoundTripper }

// CloseIdleConnections serves http.Client.CloseIdleConnections.
func (t talking) CloseIdleConnections() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip implements http.RoundTripper.
func (t talking) RoundTrip(in *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(in.Context())
	e := &exchange{ctx: ctx, cancel: cancel, timer: time.AfterFunc(silence, func() { cancel(errSilent) })}
	r := in.Clone(ctx)
	if r.Header.Get("Accept-Encoding") == "" {
		r.Header.Set("Accept-Encoding", "identity")
	}
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = sending{r.Body, e}
	}
	resp, err := t.next.RoundTrip(r)
	e.answered.Store(true)
	e.timer.Stop()
	if err != nil {
		defer cancel(nil)
		return nil, e.why(err)
	}
	resp.Request = in // http.Client compares pointers to find its way through redirects
	resp.Body = &receiving{resp.Body, e}
	return resp, nil
}

// exchange is a request with its answer.
type exchange struct {
	ctx      context.Context //nolint:containedctx // it is that of the request
	cancel   context.CancelCauseFunc
	timer    *time.Timer
	answered atomic.Bool // sending is no longer waited for
}

// why is the reason of a failure.
func (e *exchange) why(err error) error {
	if errors.Is(context.Cause(e.ctx), errSilent) {
		return errSilent
	}
	return err
}

// sending is the body of a request. The service takes its bytes.
type sending struct {
	io.ReadCloser
	*exchange
}

func (s sending) Read(p []byte) (int, error) {
	if !s.answered.Load() {
		s.timer.Reset(silence)
	}
	return s.ReadCloser.Read(p)
}

// receiving is the body of an answer.
type receiving struct {
	io.ReadCloser
	*exchange
}

func (r *receiving) Read(p []byte) (int, error) {
	r.timer.Reset(silence)
	n, err := r.ReadCloser.Read(p)
	r.timer.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		err = r.why(err)
	}
	return n, err
}

func (r *receiving) Close() error {
	defer r.cancel(nil)
	return r.ReadCloser.Close()
}
