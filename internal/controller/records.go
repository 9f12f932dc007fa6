package controller

import (
	"context"
	"io"
	"os"
	"sync"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
)

// records keeps what stacks leave: of a run, and as what a destroy is made from.
type records struct {
	blobs   Blobs
	modules *Modules
	runner  runner.Runner
	trees   sync.RWMutex // held for writing while archives that nothing needs are dropped
}

func (rs *records) put(ctx context.Context, key string, b []byte) error {
	return record.Write(ctx, rs.blobs, key, b)
}

func (rs *records) get(ctx context.Context, key string) ([]byte, error) {
	return record.Read(ctx, rs.blobs, key)
}

// keep copies a file that a run left into the records. It reports whether the
// run left one.
func (rs *records) keep(ctx context.Context, id, run, file, key string) (bool, error) {
	r, err := rs.runner.Open(id, run, file)
	if fault.Of(err) == fault.Missing {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer r.Close()
	return true, rs.blobs.Put(ctx, key, r)
}

// left returns what a run left in a file, nil if nothing.
func (rs *records) left(id, run, file string) ([]byte, error) {
	r, err := rs.runner.Open(id, run, file)
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
func (rs *records) keepTree(ctx context.Context, file, digest string) error {
	key := record.Tree(digest)
	if r, err := rs.blobs.Get(ctx, key); err == nil {
		return r.Close()
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return rs.blobs.Put(ctx, key, f)
}

// restoreTree writes a kept archive to a file, which Modules.Restored finds.
func (rs *records) restoreTree(ctx context.Context, digest string) error {
	r, err := rs.blobs.Get(ctx, record.Tree(digest))
	if err != nil {
		return err
	}
	defer r.Close()
	return rs.modules.restore(r, digest)
}

// dropRecords removes everything that was kept for a stack.
func (rs *records) dropRecords(ctx context.Context, id string) error {
	keys, err := rs.blobs.List(ctx, record.Stack(id))
	if err != nil {
		return err
	}
	for _, k := range keys {
		if err := rs.blobs.Delete(ctx, k); err != nil && fault.Of(err) != fault.Missing {
			return err
		}
	}
	return nil
}
