package controller

import (
	"context"
	"io"
	"os"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
)

func (c *Stacks) put(ctx context.Context, key string, b []byte) error {
	return record.Write(ctx, c.Blobs, key, b)
}

func (c *Stacks) get(ctx context.Context, key string) ([]byte, error) {
	return record.Read(ctx, c.Blobs, key)
}

// keep copies a file that a run left into the records. It reports whether the
// run left one.
func (c *Stacks) keep(ctx context.Context, id, run, file, key string) (bool, error) {
	r, err := c.Runner.Open(id, run, file)
	if fault.Of(err) == fault.Missing {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer r.Close()
	return true, c.Blobs.Put(ctx, key, r)
}

// left returns what a run left in a file, nil if nothing.
func (c *Stacks) left(id, run, file string) ([]byte, error) {
	r, err := c.Runner.Open(id, run, file)
	if fault.Of(err) == fault.Missing {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, record.MaxBytes))
}

// keepTree keeps the archive of a source for as long as snapshots may need it.
func (c *Stacks) keepTree(ctx context.Context, file, digest string) error {
	key := record.Tree(digest)
	if r, err := c.Blobs.Get(ctx, key); err == nil {
		return r.Close()
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return c.Blobs.Put(ctx, key, f)
}

// restoreTree writes a kept archive to a file, which Modules.Restored finds.
func (c *Stacks) restoreTree(ctx context.Context, digest string) error {
	r, err := c.Blobs.Get(ctx, record.Tree(digest))
	if err != nil {
		return err
	}
	defer r.Close()
	return c.Modules.restore(r, digest)
}

// dropRecords removes everything that was kept for a stack.
func (c *Stacks) dropRecords(ctx context.Context, id string) error {
	keys, err := c.Blobs.List(ctx, record.Stack(id))
	if err != nil {
		return err
	}
	for _, k := range keys {
		if err := c.Blobs.Delete(ctx, k); err != nil && fault.Of(err) != fault.Missing {
			return err
		}
	}
	return nil
}
