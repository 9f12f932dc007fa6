package source

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"

	"github.com/go-git/go-billy/v5"
	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

// Bounds of a pack of objects. The library holds each object in memory while it indexes a
// pack, and beside a delta what it is made from, whatever their size: a pack of some
// megabytes may have an object of gigabytes.
const (
	packObjects = 500_000   // in one pack: each takes some hundred bytes of memory
	packObject  = 100 << 20 // bytes of one object; large public hosts take no larger file
	packBytes   = 16 << 30  // bytes of all objects together
	packChain   = 1 << 30   // bytes of objects that are made from one another: the library may hold all of them at once
)

// gitStore keeps the objects of one fetch below dir. The library takes no context, and minutes
// for some packs that are within bounds. So its files fail once ctx has ended, and it ends with
// the object that it is at.
func gitStore(ctx context.Context, dir string) *filesystem.Storage {
	return filesystem.NewStorageWithOptions(filesUntil{osfs.New(dir, osfs.WithBoundOS()), ctx}, cache.NewObjectLRUDefault(),
		filesystem.Options{ExclusiveAccess: true, LargeObjectThreshold: 8 << 20})
}

// filesUntil are files that cannot be used any more once a context has ended.
type filesUntil struct {
	billy.Filesystem
	ctx context.Context //nolint:containedctx // of the one fetch that has the files; the library passes none on
}

// Create implements billy.Basic.
func (fs filesUntil) Create(name string) (billy.File, error) {
	return fs.until(fs.Filesystem.Create(name))
}

// Open implements billy.Basic.
func (fs filesUntil) Open(name string) (billy.File, error) {
	return fs.until(fs.Filesystem.Open(name))
}

// OpenFile implements billy.Basic.
func (fs filesUntil) OpenFile(name string, flag int, perm os.FileMode) (billy.File, error) {
	return fs.until(fs.Filesystem.OpenFile(name, flag, perm))
}

// TempFile implements billy.TempFile.
func (fs filesUntil) TempFile(dir, prefix string) (billy.File, error) {
	return fs.until(fs.Filesystem.TempFile(dir, prefix))
}

func (fs filesUntil) until(f billy.File, err error) (billy.File, error) {
	if err != nil {
		return nil, err
	}
	return fileUntil{f, fs.ctx}, nil
}

type fileUntil struct {
	billy.File
	ctx context.Context //nolint:containedctx // see filesUntil
}

func (f fileUntil) Read(p []byte) (int, error) {
	if f.ctx.Err() != nil {
		return 0, context.Cause(f.ctx)
	}
	return f.File.Read(p)
}

func (f fileUntil) ReadAt(p []byte, at int64) (int, error) {
	if f.ctx.Err() != nil {
		return 0, context.Cause(f.ctx)
	}
	return f.File.ReadAt(p, at)
}

func (f fileUntil) Seek(offset int64, whence int) (int64, error) {
	if f.ctx.Err() != nil {
		return 0, context.Cause(f.ctx)
	}
	return f.File.Seek(offset, whence)
}

func (f fileUntil) Write(p []byte) (int, error) {
	if f.ctx.Err() != nil {
		return 0, context.Cause(f.ctx)
	}
	return f.File.Write(p)
}

// keepPack puts a pack into store, after all of its objects were found within bounds. Until
// then the pack is in a file without a name.
func (g *Git) keepPack(ctx context.Context, pack io.Reader, store *filesystem.Storage) error {
	f, err := os.CreateTemp(g.Scratch, scratchName+"pack-")
	if err != nil {
		return fmt.Errorf("making a scratch file: %w", err)
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return fmt.Errorf("making a scratch file: %w", err)
	}
	if _, err := io.Copy(f, pack); err != nil {
		return err
	}
	if err := checkPack(ctx, f); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("reading a pack: %w", err)
	}
	err = packfile.UpdateObjectStorage(store, f)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx) // the library does not wrap all errors
	}
	return err
}

// checkPack reads a pack from its beginning, and refuses one that is not within bounds. It
// keeps no object.
func checkPack(ctx context.Context, pack io.ReadSeeker) error {
	if _, err := pack.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("reading a pack: %w", err)
	}
	s := packfile.NewScanner(pack)
	_, objects, err := s.Header()
	if err != nil {
		return err
	}
	if objects > packObjects {
		return invalid(ReasonGit, "the repository sends %d objects, and at most %d are read: name a branch or a tag, whose history is not fetched, or use a smaller repository", objects, packObjects)
	}
	left, made := int64(packBytes), chains{}
	for range objects {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		h, from, size, err := nextObject(s)
		if err != nil {
			return err
		}
		if !made.add(h, from, size) {
			return invalid(ReasonGit, "the repository sends versions of files that have more than %d GiB together, each made from another one, and at most that is read: name a branch or a tag, whose history is not fetched, or use a smaller repository", packChain>>30)
		}
		if left -= size; left < 0 {
			return invalid(ReasonGit, "the objects that the repository sends have more than %d GiB together: name a branch or a tag, whose history is not fetched, or use a smaller repository", packBytes>>30)
		}
	}
	return nil
}

// chains are how large objects are together with all that they are made from. What a delta is
// made from is known if the delta names its place. Servers without the capability ofs-delta send
// deltas that name it by its hash, which may be that of any object of the pack. But a delta also
// says how large that object is, and the library refuses it if the object is not. So two such deltas
// count as one chain only if sizes lead from one to the other: versions of one large file do, and those
// of another do not.
type chains struct {
	at     map[int64]chain // by where the object is
	hashed families        // of objects whose chain is not known
}

type chain struct {
	bytes   int64
	unknown bool
}

// add reports whether the chain of an object is within bounds. From is the size of what a delta is made
// from.
func (c *chains) add(h *packfile.ObjectHeader, from, size int64) bool {
	if c.at == nil {
		c.at = map[int64]chain{}
	}
	is := chain{bytes: size}
	switch h.Type {
	case plumbing.OFSDeltaObject:
		base := c.at[h.OffsetReference] // the library refuses what is not there
		is.bytes, is.unknown = is.bytes+base.bytes, base.unknown
	case plumbing.REFDeltaObject:
		is.unknown = true
	default:
	}
	c.at[h.Offset] = is
	if is.unknown {
		is.bytes = c.hashed.add(from, size)
	}
	return is.bytes <= packChain
}

// families are sizes of objects, of which one may be made from another. A chain is never of two of
// them.
type families struct {
	joined map[int64]int64 // a size, to another one of its family
	bytes  map[int64]int64 // of all objects of a family, by the size that is joined to none
}

// add joins the size of an object to the size of what it is made from, and returns the bytes of their
// family.
func (f *families) add(from, size int64) int64 {
	if f.joined == nil {
		f.joined, f.bytes = map[int64]int64{}, map[int64]int64{}
	}
	a, b := f.of(from), f.of(size)
	if a != b {
		f.joined[b] = a
		f.bytes[a] += f.bytes[b]
		delete(f.bytes, b)
	}
	f.bytes[a] += size
	return f.bytes[a]
}

// of is the size that stands for the family of a size.
func (f *families) of(size int64) int64 {
	for {
		next, ok := f.joined[size]
		if !ok {
			return size
		}
		if over, ok := f.joined[next]; ok {
			f.joined[size] = over // the way is shorter next time
		}
		size = next
	}
}

// nextObject returns the next object of a pack, its size, and the size of what it is made from: of a
// delta both are what the delta says.
func nextObject(s *packfile.Scanner) (h *packfile.ObjectHeader, from, size int64, err error) {
	if h, err = s.NextObjectHeader(); err != nil {
		return nil, 0, 0, err
	}
	from, size, err = sizesOf(s, h)
	return h, from, size, err
}

func sizesOf(s *packfile.Scanner, h *packfile.ObjectHeader) (from, size int64, err error) {
	if h.Length < 0 || h.Length > packObject {
		return 0, 0, objectTooLarge()
	}
	begin := &head{left: 2 * binary.MaxVarintLen64}
	n, _, err := s.NextObject(begin)
	if err != nil {
		return 0, 0, err
	}
	if n != h.Length {
		return 0, 0, fmt.Errorf("%w: an object is not as long as it claims to be", packfile.ErrMalformedPackFile)
	}
	if !h.Type.IsDelta() {
		return 0, n, nil
	}
	// A delta begins with two sizes: of what it is made from, and of what it makes.
	sizes := []byte(begin.String())
	source, first := binary.Uvarint(sizes)
	makes, second := binary.Uvarint(sizes[max(first, 0):])
	if first <= 0 || second <= 0 {
		return 0, 0, fmt.Errorf("%w: a delta has no size", packfile.ErrMalformedPackFile)
	}
	if source > packObject || makes > packObject {
		return 0, 0, objectTooLarge()
	}
	return int64(source), int64(makes), nil
}

func objectTooLarge() error {
	return invalid(ReasonGit, "the repository sends a file of more than %d MiB, and such files are not read: keep it in Git LFS, or in another repository", packObject>>20)
}
