package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
)

// A drift check that finds nothing must not cost a write to the API server, so
// what checks leave of a stack is a record beside its status.

// driftChecks returns what is known of a stack, from its record the first time.
func (c *Stacks) driftChecks(ctx context.Context, e *entry) (record.Check, error) {
	if e.checks != nil {
		return *e.checks, nil
	}
	k, err := record.Checked(e.id).Read(ctx, c.Blobs)
	if fault.Of(err) == fault.Missing {
		k, err = record.Check{}, nil
	}
	if err != nil {
		return record.Check{}, fmt.Errorf("reading when drift was checked: %w", err)
	}
	e.checks = &k
	return k, nil
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

func (c *Stacks) putDriftChecks(ctx context.Context, e *entry, k record.Check) error {
	if err := record.Checked(e.id).Write(ctx, c.Blobs, k); err != nil {
		return err
	}
	e.checks = &k
	return nil
}
