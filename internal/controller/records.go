package controller

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
)

// recordBytes bounds one record read into memory.
const recordBytes = 256 << 20

// The names of records:
//
//	stacks/<uid>/runs/<run>/…     report.json, log.txt, events.jsonl
//	stacks/<uid>/plans/<digest>/… plan.bin, plan.json, plan.txt, lock.hcl; plan-raw.json for webhooks that may see it
//	stacks/<uid>/snapshots/<hex>  what a destroy is made from
//	stacks/<uid>/state.json       the newest state, for a namespace that goes away
//	stacks/<uid>/outputs.json     of the newest state
//	stacks/<uid>/checked          when drift was looked for last, and what memory runs take
//	stacks/<uid>/lasting          what of the status must outlast it
//	trees/<digest>                archives of sources that snapshots need
func stackKey(id string, parts ...string) string {
	return "stacks/" + id + "/" + strings.Join(parts, "/")
}

func planKey(id, digest, file string) string { return stackKey(id, "plans", hexOf(digest), file) }

func treeKey(digest string) string { return "trees/" + hexOf(digest) }

// hexOf is a digest without its algorithm.
func hexOf(digest string) string {
	_, h, found := strings.Cut(digest, ":")
	if !found {
		return digest
	}
	return h
}

func (c *Stacks) put(ctx context.Context, key string, b []byte) error {
	return c.Blobs.Put(ctx, key, bytes.NewReader(b))
}

func (c *Stacks) get(ctx context.Context, key string) ([]byte, error) {
	r, err := c.Blobs.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, recordBytes))
}

// keep copies a file that a run left into the records. It reports whether the
// run left one.
func (c *Stacks) keep(ctx context.Context, id, run, file, key string) (bool, error) {
	r, err := c.Runs.Open(id, run, file)
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
	r, err := c.Runs.Open(id, run, file)
	if fault.Of(err) == fault.Missing {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, recordBytes))
}

// keepTree keeps the archive of a source for as long as snapshots may need it.
func (c *Stacks) keepTree(ctx context.Context, file, digest string) error {
	key := treeKey(digest)
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

// tree writes a kept archive to a file that a supervisor can read.
func (c *Stacks) tree(ctx context.Context, digest string) (string, error) {
	r, err := c.Blobs.Get(ctx, treeKey(digest))
	if err != nil {
		return "", err
	}
	defer r.Close()
	return c.Modules.restore(r, hexOf(digest))
}

// dropRecords removes everything that was kept for a stack.
func (c *Stacks) dropRecords(ctx context.Context, id string) error {
	keys, err := c.Blobs.List(ctx, stackKey(id, ""))
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
