package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
)

// driftChecks is what is known of a stack that nothing happens to: when drift
// was checked last, and what memory its runs take. It is a record beside the
// status, because a drift check that finds nothing must not cost a write to the
// API server.
type driftChecks struct {
	At     time.Time `json:"at,omitzero"`
	Memory int64     `json:"memory,omitempty"` // bytes; 0 if unknown
}

func driftChecksKey(id string) string { return stackKey(id, "checked") }

// driftChecksBytes bounds the record.
const driftChecksBytes = 256

// driftChecks returns what is known of a stack, from its record the first time.
func (c *Stacks) driftChecks(ctx context.Context, e *entry) (driftChecks, error) {
	if e.checks != nil {
		return *e.checks, nil
	}
	r, err := c.Blobs.Get(ctx, driftChecksKey(e.id))
	if fault.Of(err) == fault.Missing {
		e.checks = &driftChecks{}
		return driftChecks{}, nil
	}
	if err != nil {
		return driftChecks{}, err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, driftChecksBytes))
	if err != nil {
		return driftChecks{}, err
	}
	k, err := parseDriftChecks(b)
	if err != nil {
		return driftChecks{}, fmt.Errorf("reading when drift was checked: %w", err)
	}
	e.checks = &k
	return k, nil
}

// parseDriftChecks reads a record. Records that were written before the memory
// was kept hold the time alone.
func parseDriftChecks(b []byte) (driftChecks, error) {
	if len(b) > 0 && b[0] == '{' {
		var k driftChecks
		err := json.Unmarshal(b, &k)
		return k, err
	}
	at, err := time.Parse(time.RFC3339Nano, string(b))
	return driftChecks{At: at}, err
}

// noteDriftCheck writes down that drift was checked.
func (c *Stacks) noteDriftCheck(ctx context.Context, e *entry, at time.Time) error {
	k, err := c.driftChecks(ctx, e)
	if err != nil {
		return err
	}
	k.At = at.UTC()
	return c.putDriftChecks(ctx, e, k)
}

func (c *Stacks) putDriftChecks(ctx context.Context, e *entry, k driftChecks) error {
	b, err := json.Marshal(k)
	if err != nil {
		return err
	}
	if err := c.Blobs.Put(ctx, driftChecksKey(e.id), bytes.NewReader(b)); err != nil {
		return err
	}
	e.checks = &k
	return nil
}

// memoryStep is the precision in which memory is remembered.
const memoryStep = 16 << 20

// with returns k with the memory that one more run took. A run that took more
// counts at once, one that took less little by little: a run that ended early
// says nothing of the next one.
func (k driftChecks) with(took int64) driftChecks {
	took = (took + memoryStep - 1) / memoryStep * memoryStep
	if took < k.Memory {
		took = k.Memory - max((k.Memory-took)/4/memoryStep*memoryStep, memoryStep)
	}
	k.Memory = took
	return k
}
