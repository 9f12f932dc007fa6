package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
)

// looks remembers what was seen of stacks while nothing happened to them: when
// drift was looked for last, and what memory their runs take. It is kept beside
// the status because a look that finds nothing must not cost a write to the API
// server.
type looks struct {
	mu    sync.Mutex
	known map[string]look
}

// look is what is kept of one stack.
type look struct {
	At     time.Time `json:"at,omitzero"`
	Memory int64     `json:"memory,omitempty"` // bytes; 0 if unknown
}

func lookKey(id string) string { return stackKey(id, "checked") }

// last returns when the stack was looked at, zero if never.
func (l *looks) last(ctx context.Context, blobs Blobs, id string) (time.Time, error) {
	k, err := l.look(ctx, blobs, id)
	return k.At, err
}

// look returns all that is known of a stack.
func (l *looks) look(ctx context.Context, blobs Blobs, id string) (look, error) {
	l.mu.Lock()
	k, ok := l.known[id]
	l.mu.Unlock()
	if ok {
		return k, nil
	}
	r, err := blobs.Get(ctx, lookKey(id))
	if fault.Of(err) == fault.Missing {
		l.set(id, look{})
		return look{}, nil
	}
	if err != nil {
		return look{}, err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, 256))
	if err != nil {
		return look{}, err
	}
	if k, err = parseLook(b); err != nil {
		return look{}, fmt.Errorf("reading when drift was looked for: %w", err)
	}
	l.set(id, k)
	return k, nil
}

// parseLook reads a record, also one of the time alone as there were before the
// memory was kept.
func parseLook(b []byte) (look, error) {
	if len(b) > 0 && b[0] == '{' {
		var k look
		err := json.Unmarshal(b, &k)
		return k, err
	}
	at, err := time.Parse(time.RFC3339Nano, string(b))
	return look{At: at}, err
}

// note writes down that the stack was looked at.
func (l *looks) note(ctx context.Context, blobs Blobs, id string, at time.Time) error {
	k, err := l.look(ctx, blobs, id)
	if err != nil {
		return err
	}
	k.At = at.UTC()
	return l.write(ctx, blobs, id, k)
}

// memoryStep is the precision in which memory is remembered.
const memoryStep = 16 << 20

// weigh takes in, but does not write down, what memory a run took, and reports
// whether that says something new. More counts at once, less little by little:
// a run that ended early says nothing of the next one.
func (l *looks) weigh(ctx context.Context, blobs Blobs, id string, took int64) (moved bool, err error) {
	k, err := l.look(ctx, blobs, id)
	if err != nil {
		return false, err
	}
	was := k.Memory
	took = (took + memoryStep - 1) / memoryStep * memoryStep
	if took < was {
		took = was - max((was-took)/4/memoryStep*memoryStep, memoryStep)
	}
	k.Memory = took
	l.set(id, k)
	return took != was, nil
}

// keep writes down what is known of a stack.
func (l *looks) keep(ctx context.Context, blobs Blobs, id string) error {
	k, err := l.look(ctx, blobs, id)
	if err != nil {
		return err
	}
	return l.write(ctx, blobs, id, k)
}

func (l *looks) write(ctx context.Context, blobs Blobs, id string, k look) error {
	b, err := json.Marshal(k)
	if err != nil {
		return err
	}
	if err := blobs.Put(ctx, lookKey(id), bytes.NewReader(b)); err != nil {
		return err
	}
	l.set(id, k)
	return nil
}

func (l *looks) set(id string, k look) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil {
		l.known = map[string]look{}
	}
	l.known[id] = k
}

func (l *looks) forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.known, id)
}
