package controller

import (
	"context"
	"errors"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
)

// sweepEvery is how often what nothing refers to any more is looked for.
const sweepEvery = 6 * time.Hour

// Sweep looks now and then, until ctx ends, for stacks that are gone, and
// removes archives that no record of an apply needs. Archives are shared by all
// stacks, so no single stack can tell.
func (c *Stacks) Sweep(ctx context.Context) error {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		if err := errors.Join(c.sweepGone(ctx), c.sweep(ctx)); err != nil && ctx.Err() == nil {
			c.Log.Warn("records not swept", "err", err) // tried again in time
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (c *Stacks) sweep(ctx context.Context) error {
	c.records.Lock()
	defer c.records.Unlock()
	trees, err := c.Blobs.List(ctx, record.Trees())
	if err != nil || len(trees) == 0 {
		return err
	}
	keys, err := c.Blobs.List(ctx, record.Stacks)
	if err != nil {
		return err
	}
	needed := map[string]bool{}
	for _, k := range keys {
		if !record.IsSnapshot(k) {
			continue
		}
		s, err := record.At[snapshot](k).Read(ctx, c.Blobs)
		if fault.Of(err) == fault.Missing {
			continue // its stack went meanwhile
		}
		if err != nil {
			return err // an archive that it may need must not go
		}
		needed[record.Tree(s.PlanInputs.Source)] = true
	}
	for _, k := range trees {
		if needed[k] {
			continue
		}
		if err := c.Blobs.Delete(ctx, k); err != nil && fault.Of(err) != fault.Missing {
			return err
		}
	}
	return nil
}
