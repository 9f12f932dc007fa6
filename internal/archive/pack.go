package archive

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
)

// Skip reports whether the entry at a clean, slash-separated name is left out.
// A directory that is left out is still looked into, because a pattern may
// take a part of it back in; it appears only if something in it does.
type Skip func(name string, dir bool) bool

// Pack writes the tree below dir to w as a gzipped tar archive that depends on
// nothing but names, contents and whether files may be executed. A symbolic
// link becomes a copy of its target, which must lie below dir too; everything
// that is neither file, directory nor link is Invalid.
func Pack(dir string, skip Skip, w io.Writer, limits Limits) error {
	zipped := gzip.NewWriter(w)
	if err := Tar(dir, skip, zipped, limits); err != nil {
		return err
	}
	if err := zipped.Close(); err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	return nil
}

// Tar does the same without compressing, so that its bytes are the same with every release
// of the compression.
func Tar(dir string, skip Skip, w io.Writer, limits Limits) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("opening the directory to pack: %w", err)
	}
	defer root.Close()
	if skip == nil {
		skip = func(string, bool) bool { return false }
	}
	p := &packing{root: root, skip: skip, out: tar.NewWriter(w), budget: budget{Limits: limits.orDefault()}}
	top, err := root.Stat(".")
	if err != nil {
		return fmt.Errorf("opening the directory to pack: %w", err)
	}
	if err := p.children(".", []fs.FileInfo{top}); err != nil {
		return err
	}
	if err := p.out.Close(); err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	return nil
}

type packing struct {
	root    *os.Root
	skip    Skip
	out     *tar.Writer
	budget  budget
	seen    int      // entries that were read, packed or not
	pending []string // directories passed on the way down and not yet written
}

// children packs what is in the directory at name. The directories above it
// are given to notice links that lead in a circle.
func (p *packing) children(name string, above []fs.FileInfo) error {
	dir, err := p.root.Open(name)
	if err != nil {
		return fmt.Errorf("reading a directory: %w", err)
	}
	names, err := dir.Readdirnames(-1)
	if err := errors.Join(err, dir.Close()); err != nil {
		return fmt.Errorf("reading a directory: %w", err)
	}
	slices.Sort(names)
	for _, child := range names {
		if err := p.entry(path.Join(name, child), above); err != nil {
			return err
		}
	}
	return nil
}

func (p *packing) entry(name string, above []fs.FileInfo) error {
	// Links that share targets can make a small tree look endless.
	if p.seen++; p.seen > 20*p.budget.Entries {
		return refuse(name, "the tree has too many entries")
	}
	info, err := p.root.Lstat(name)
	if err != nil {
		return fmt.Errorf("reading the tree: %w", err)
	}
	link := info.Mode().Type() == fs.ModeSymlink
	if link {
		// A link that is left out may point anywhere.
		if p.skip(name, false) && p.skip(name, true) {
			return nil
		}
		if info, err = p.follow(name); err != nil {
			return err
		}
	}
	skipped := p.skip(name, info.IsDir())
	switch {
	case info.IsDir():
		if link && slices.ContainsFunc(above, func(a fs.FileInfo) bool { return os.SameFile(a, info) }) {
			return refuse(name, "the symbolic link leads to a directory that holds it")
		}
		return p.directory(name, skipped, append(slices.Clip(above), info))
	case skipped:
		return nil
	case info.Mode().IsRegular():
		return p.file(name)
	default:
		return refuse(name, "it is neither a file, a directory nor a symbolic link")
	}
}

// follow returns what the symbolic link at name leads to.
func (p *packing) follow(name string) (fs.FileInfo, error) {
	info, err := p.root.Stat(name)
	if err == nil {
		return info, nil
	}
	target, _ := p.root.Readlink(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, refuse(name, "the symbolic link leads to %q, which does not exist", target)
	}
	return nil, refuse(name, "the symbolic link leads to %q: only links that stay below the root are packed", target)
}

func (p *packing) directory(name string, skipped bool, above []fs.FileInfo) error {
	before := len(p.pending)
	p.pending = append(p.pending, name)
	if !skipped {
		if err := p.flush(); err != nil {
			return err
		}
	}
	if err := p.children(name, above); err != nil {
		return err
	}
	if len(p.pending) > before {
		p.pending = p.pending[:before]
	}
	return nil
}

// flush writes the directories that the next entry needs.
func (p *packing) flush() error {
	for _, name := range p.pending {
		if _, err := local(name); err != nil {
			return err // Extract would refuse it
		}
		if err := p.budget.entry(name); err != nil {
			return err
		}
		header := &tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, Format: tar.FormatPAX}
		if err := p.out.WriteHeader(header); err != nil {
			return fmt.Errorf("writing the archive: %w", err)
		}
	}
	p.pending = p.pending[:0]
	return nil
}

func (p *packing) file(name string) error {
	if _, err := local(name); err != nil {
		return err // Extract would refuse it
	}
	if err := p.budget.entry(name); err != nil {
		return err
	}
	in, err := p.root.Open(name)
	if err != nil {
		return fmt.Errorf("reading a file: %w", err)
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return fmt.Errorf("reading a file: %w", err)
	}
	if err := p.budget.file(name, info.Size()); err != nil {
		return err
	}
	if err := p.flush(); err != nil {
		return err
	}
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: info.Size(), Format: tar.FormatPAX}
	if info.Mode()&0o111 != 0 {
		header.Mode = 0o755
	}
	if err := p.out.WriteHeader(header); err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	// A file that grows while it is read is cut, one that shrinks is noticed.
	n, err := io.Copy(p.out, io.LimitReader(in, info.Size()))
	if err == nil && n != info.Size() {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("packing %q: %w", name, err)
	}
	return nil
}
