package controller

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
)

// looks remembers when drift was looked for last. It is kept beside the status
// because a look that finds nothing must not cost a write to the API server.
type looks struct {
	mu sync.Mutex
	at map[string]time.Time
}

func lookKey(id string) string { return stackKey(id, "checked") }

// last returns when the stack was looked at, zero if never.
func (l *looks) last(ctx context.Context, blobs Blobs, id string) (time.Time, error) {
	l.mu.Lock()
	at, ok := l.at[id]
	l.mu.Unlock()
	if ok {
		return at, nil
	}
	r, err := blobs.Get(ctx, lookKey(id))
	if fault.Of(err) == fault.Missing {
		l.set(id, time.Time{})
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, 64))
	if err != nil {
		return time.Time{}, err
	}
	if at, err = time.Parse(time.RFC3339Nano, string(b)); err != nil {
		return time.Time{}, fmt.Errorf("reading when drift was looked for: %w", err)
	}
	l.set(id, at)
	return at, nil
}

// note writes down that the stack was looked at.
func (l *looks) note(ctx context.Context, blobs Blobs, id string, at time.Time) error {
	if err := blobs.Put(ctx, lookKey(id), bytes.NewReader([]byte(at.UTC().Format(time.RFC3339Nano)))); err != nil {
		return err
	}
	l.set(id, at)
	return nil
}

func (l *looks) set(id string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at == nil {
		l.at = map[string]time.Time{}
	}
	l.at[id] = at
}

func (l *looks) forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.at, id)
}
