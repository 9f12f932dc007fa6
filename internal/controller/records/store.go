// Package records keeps what runs of stacks leave: files as records, and the archives
// of sources for as long as a snapshot may need them. It does not know what the
// records are for.
//
// Start reading at Store.
package records

import (
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
)

// Blobs is where records are kept.
type Blobs interface {
	Put(ctx context.Context, key string, r io.Reader) error
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	Delete(ctx context.Context, key string) error
	List(ctx context.Context, prefix string) ([]string, error)
}

// Runs hands out the files that runs leave.
type Runs interface {
	Open(key, id, file string) (io.ReadCloser, error)
}

// Store keeps the records of stacks.
type Store struct {
	Blobs    Blobs
	Runs     Runs
	Archives Archives // where a restored archive is found

	trees sync.RWMutex // held for writing while archives that nothing needs are dropped
}

// Put writes a record.
func (s *Store) Put(ctx context.Context, key string, b []byte) error {
	return record.Write(ctx, s.Blobs, key, b)
}

// Get reads a record.
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	return record.Read(ctx, s.Blobs, key)
}

// Keep copies a file that a run left into the records. It reports whether the
// run left one.
func (s *Store) Keep(ctx context.Context, id, run, file, key string) (bool, error) {
	r, err := s.Runs.Open(id, run, file)
	if fault.Of(err) == fault.Missing {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer r.Close()
	return true, s.Blobs.Put(ctx, key, r)
}

// Left returns what a run left in a file, nil if nothing.
func (s *Store) Left(id, run, file string) ([]byte, error) {
	r, err := s.Runs.Open(id, run, file)
	if fault.Of(err) == fault.Missing {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, record.MaxBytes))
}

// KeepTree keeps the archive of a source for as long as snapshots may need it.
func (s *Store) KeepTree(ctx context.Context, file, digest string) error {
	key := record.Tree(digest)
	if r, err := s.Blobs.Get(ctx, key); err == nil {
		return r.Close()
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return s.Blobs.Put(ctx, key, f)
}

// RestoreTree writes a kept archive to a file, which Archives.Path finds.
func (s *Store) RestoreTree(ctx context.Context, digest string) error {
	r, err := s.Blobs.Get(ctx, record.Tree(digest))
	if err != nil {
		return err
	}
	defer r.Close()
	return s.Archives.restore(r, digest)
}

// Drop removes everything that was kept for a stack.
func (s *Store) Drop(ctx context.Context, id string) error {
	keys, err := s.Blobs.List(ctx, record.Stack(id))
	if err != nil {
		return err
	}
	for _, k := range keys {
		if err := s.Blobs.Delete(ctx, k); err != nil && fault.Of(err) != fault.Missing {
			return err
		}
	}
	return nil
}

// DropOthers removes the records below prefix, except those that are one of
// stay, or begin with one that ends in a slash.
func (s *Store) DropOthers(ctx context.Context, prefix string, stay ...string) error {
	keys, err := s.Blobs.List(ctx, prefix)
	if err != nil {
		return err
	}
	for _, k := range keys {
		if slices.ContainsFunc(stay, func(kept string) bool { return k == kept || strings.HasSuffix(kept, "/") && strings.HasPrefix(k, kept) }) {
			continue
		}
		if err := s.Blobs.Delete(ctx, k); err != nil && fault.Of(err) != fault.Missing {
			return err
		}
	}
	return nil
}

// Hold keeps Sweep away until release is called: an archive that is kept before the
// snapshot that needs it would be swept in between.
func (s *Store) Hold() (release func()) {
	s.trees.RLock()
	return s.trees.RUnlock
}

// Sweep removes the archives that no snapshot needs. All stacks share archives, so
// that no single stack can tell. SourceOf reads which archive a snapshot needs.
func (s *Store) Sweep(ctx context.Context, sourceOf func(ctx context.Context, snapshot string) (digest string, err error)) error {
	s.trees.Lock()
	defer s.trees.Unlock()
	trees, err := s.Blobs.List(ctx, record.Trees())
	if err != nil || len(trees) == 0 {
		return err
	}
	keys, err := s.Blobs.List(ctx, record.Stacks)
	if err != nil {
		return err
	}
	needed := map[string]bool{}
	for _, k := range keys {
		if !record.IsSnapshot(k) {
			continue
		}
		digest, err := sourceOf(ctx, k)
		if fault.Of(err) == fault.Missing {
			continue // its stack went meanwhile
		}
		if err != nil {
			return err // an archive that it may need must not go
		}
		needed[record.Tree(digest)] = true
	}
	for _, k := range trees {
		if needed[k] {
			continue
		}
		if err := s.Blobs.Delete(ctx, k); err != nil && fault.Of(err) != fault.Missing {
			return err
		}
	}
	return nil
}
