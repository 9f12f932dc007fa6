// Package records keeps what runs of stacks leave: files as records, of the newest runs and
// of the plans that were applied last, and the archives of sources for as long as a snapshot may
// need them. It does not know what the records are for.
//
// Start reading at Store.
package records

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/terrier-iac/terrier/internal/blob"
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
	Shared   bool     // other controllers write records of these stacks, too

	trees sync.RWMutex // held for writing while archives that nothing needs are dropped; see dropTrees for other controllers
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

// HasTree reports whether the archive of a source is kept. It opens the archive, and does not
// read it.
func (s *Store) HasTree(ctx context.Context, digest string) (bool, error) {
	key := record.Tree(digest)
	for _, k := range []string{key, record.SweptTree(key)} { // see RestoreTree
		r, err := s.Blobs.Get(ctx, k)
		switch reason := fault.Reason(err, ""); {
		case err == nil:
			return true, r.Close()
		case fault.Of(err) != fault.Missing && reason != blob.Damaged && reason != blob.KeyUnknown:
			return false, err
		}
	}
	return false, nil
}

// RestoreTree writes a kept archive to a file, which Archives.Path finds.
func (s *Store) RestoreTree(ctx context.Context, digest string) error {
	r, err := s.Blobs.Get(ctx, record.Tree(digest))
	if fault.Of(err) == fault.Missing { // a sweep removed it, and has not put it back yet
		r, err = s.Blobs.Get(ctx, record.SweptTree(record.Tree(digest)))
	}
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
	_, err := s.KeepOnly(ctx, prefix, stay...)
	return err
}

// KeepOnly is DropOthers, and returns the keys of the records that are there and stay.
func (s *Store) KeepOnly(ctx context.Context, prefix string, stay ...string) ([]string, error) {
	keys, err := s.Blobs.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	var stayed []string
	for _, k := range keys {
		if slices.ContainsFunc(stay, func(kept string) bool { return k == kept || strings.HasSuffix(kept, "/") && strings.HasPrefix(k, kept) }) {
			stayed = append(stayed, k)
			continue
		}
		if err := s.Blobs.Delete(ctx, k); err != nil && fault.Of(err) != fault.Missing {
			return nil, err
		}
	}
	return stayed, nil
}

// Hold keeps a Sweep of this controller away until release is called, so that the archive of
// a snapshot is never missing, not for a moment either.
func (s *Store) Hold() (release func()) {
	s.trees.RLock()
	return s.trees.RUnlock
}

// Sweep removes the archives that no snapshot needs. All stacks share archives, so
// that no single stack can tell. SourceOf reads which archive a snapshot needs. Thousands of
// snapshots take minutes to read, during which stacks write others: nothing keeps those away until
// all that there were are read.
func (s *Store) Sweep(ctx context.Context, sourceOf func(ctx context.Context, snapshot string) (digest string, err error)) error {
	trees, err := s.Blobs.List(ctx, record.Trees())
	if err != nil {
		return err
	}
	swept, err := s.Blobs.List(ctx, record.SweptTrees())
	if err != nil || len(trees)+len(swept) == 0 {
		return err
	}
	read := map[string]string{} // the archive of each snapshot: another one would make another snapshot
	needed := func() (map[string]bool, error) {
		keys, err := s.Blobs.List(ctx, record.Stacks)
		if err != nil {
			return nil, err
		}
		needed := map[string]bool{}
		for _, k := range keys {
			if !record.IsSnapshot(k) {
				continue
			}
			if read[k] == "" {
				digest, err := sourceOf(ctx, k)
				if fault.Of(err) == fault.Missing {
					continue // its stack went meanwhile
				}
				if err != nil {
					return nil, err // an archive that it may need must not go
				}
				read[k] = record.Tree(digest)
			}
			needed[read[k]] = true
		}
		return needed, nil
	}
	stay, err := needed()
	if err != nil || len(swept) == 0 && !slices.ContainsFunc(trees, func(k string) bool { return !stay[k] }) {
		return err
	}
	s.trees.Lock()
	defer s.trees.Unlock()
	if stay, err = needed(); err != nil { // reads those that are new
		return err
	}
	for _, k := range swept {
		if err := s.endSweep(ctx, k, stay); err != nil {
			return err
		}
	}
	trees = slices.DeleteFunc(trees, func(k string) bool { return stay[k] })
	if !s.Shared { // the lock keeps the snapshots of this controller away
		var errs []error
		for _, k := range trees {
			errs = append(errs, s.Blobs.Delete(ctx, k))
		}
		return errors.Join(errs...)
	}
	for some := range slices.Chunk(trees, sweptAtOnce) {
		if err := s.dropTrees(ctx, some, needed); err != nil {
			return err
		}
	}
	return nil
}

// sweptAtOnce bounds how many archives are kept aside until it is certain that no snapshot
// needs them.
const sweptAtOnce = 50

// dropTrees removes archives that no snapshot needed. Another controller may have written a
// snapshot since, and have found its archive still there: such an archive is put back. A
// controller writes a snapshot before it looks for the archive, so that the snapshot is seen.
// Meanwhile a copy is among record.SweptTrees, from which the next sweep puts it back if this
// program ends in between.
func (s *Store) dropTrees(ctx context.Context, keys []string, needed func() (map[string]bool, error)) error {
	aside := map[string]*os.File{}
	defer func() {
		for _, f := range aside {
			_ = f.Close() // it has no name any more: nothing reads it again
		}
	}()
	var errs []error
	for _, k := range keys {
		f, err := s.aside(ctx, k)
		if err == nil {
			aside[k] = f
			err = s.Blobs.Delete(ctx, k)
		}
		if err != nil && fault.Of(err) != fault.Missing {
			errs = append(errs, err) // it is tried again by the next sweep
		}
	}
	again, err := needed()
	errs = append(errs, err)
	ctx = context.WithoutCancel(ctx)
	for k, f := range aside {
		if err != nil || again[k] {
			if err := s.Blobs.Put(ctx, k, f); err != nil {
				errs = append(errs, err)
				continue // the next sweep puts it back
			}
		}
		errs = append(errs, s.Blobs.Delete(ctx, record.SweptTree(k)))
	}
	return errors.Join(errs...)
}

// endSweep ends what a sweep began whose program ended: an archive that it removed is put
// back if a snapshot needs it.
func (s *Store) endSweep(ctx context.Context, key string, needed map[string]bool) error {
	if tree := record.TreeOfSwept(key); needed[tree] {
		r, err := s.Blobs.Get(ctx, key)
		if fault.Of(err) == fault.Missing {
			return nil // another leader has ended it
		}
		if err != nil {
			return err
		}
		defer r.Close()
		if err := s.Blobs.Put(ctx, tree, r); err != nil {
			return err
		}
	}
	if err := s.Blobs.Delete(ctx, key); err != nil && fault.Of(err) != fault.Missing {
		return err
	}
	return nil
}

// aside copies an archive to a record, and to a file that is gone with the process: the
// next leader may end this sweep, and so remove the record, before this program notices
// that it leads no more.
func (s *Store) aside(ctx context.Context, key string) (*os.File, error) {
	r, err := s.Blobs.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if err := os.MkdirAll(s.Archives.Dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(s.Archives.Dir, "swept-")
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(f, r)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err == nil {
		err = s.Blobs.Put(ctx, record.SweptTree(key), f)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err := errors.Join(err, os.Remove(f.Name())); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
