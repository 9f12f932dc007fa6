package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
)

// Version tells the values of a key apart. It survives a restart, and all processes see
// the same one. Only the store that made it can read it.
type Version string

// None is the version of a key without a value.
const None Version = ""

// Versions is a Store whose values have versions: a process replaces a value only if it
// is still the one that the process read. Put and Delete ask for no version, and get a
// place before or after each Replace.
type Versions interface {
	Store
	// Open opens a value. A key that is not there is Missing.
	Open(ctx context.Context, key string) (Value, error)
	// Replace keeps r in place of the value with the version old, and returns its new
	// version. With None there must be no value. If another value is there, the error is
	// a Conflict with the reason Changed, and the value that is there stays.
	//
	// A store that lost the answer to its request asks again. If another process
	// replaced r in the meantime, Replace returns a Conflict although r was there
	// for a moment. What a caller does after it read the value again must bear that.
	Replace(ctx context.Context, key string, old Version, r io.Reader) (Version, error)
}

// Value is an open value. It stays what it is if the key is written again, or reading it
// fails. Seek costs nothing: the next Read fetches from there on, so that a range of a
// large value costs what the range costs. It can be read until the context of Open ends.
type Value struct {
	io.ReadSeekCloser
	Version  Version
	Size     int64 // in bytes
	Modified time.Time
}

// Changed is the reason of the error of replacing a value that is no longer the one that
// was read.
const Changed = "BlobChanged"

// Conflict is the error of replacing a value that is no longer the one that was read.
func Conflict() error {
	return fault.New(fault.Conflict, Changed, errors.New("the value has changed since it was read: read it again"))
}

// The pauses of Update between two tries.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
)

// Update replaces a value by what change makes of it, and tries again, with what the
// value is then, as often as another process was faster. The value has at most most
// bytes. change gets nil if there is no value, and may be called several times. If it
// returns what it got, Update writes nothing.
func Update(ctx context.Context, s Versions, key string, most int64, change func(old []byte) ([]byte, error)) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := update(ctx, s, key, most, change)
		if fault.Reason(err, "") != Changed {
			return err
		}
		select {
		case <-time.After(rand.N(pause)):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

func update(ctx context.Context, s Versions, key string, most int64, change func(old []byte) ([]byte, error)) error {
	old, version, err := readWhole(ctx, s, key, most)
	if err != nil {
		return err
	}
	now, err := change(old)
	if err != nil || (now == nil) == (old == nil) && bytes.Equal(now, old) {
		return err
	}
	_, err = s.Replace(ctx, key, version, bytes.NewReader(now))
	return err
}

// readWhole reads a value with its version; nil and None if there is none.
func readWhole(ctx context.Context, s Versions, key string, most int64) ([]byte, Version, error) {
	v, err := s.Open(ctx, key)
	if fault.Of(err) == fault.Missing {
		return nil, None, nil
	}
	if err != nil {
		return nil, None, err
	}
	b, err := io.ReadAll(Bounded(ctx, v, most))
	if err = errors.Join(err, v.Close()); err != nil {
		return nil, None, fmt.Errorf("reading blob %s: %w", key, err)
	}
	return b, v.Version, nil
}
