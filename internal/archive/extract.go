package archive

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
)

// Extract unpacks the tar or gzipped tar archive r into the directory dir,
// which exists and is best empty: nothing that is there is replaced. After an
// error the directory holds a part of the archive, which is of no use.
//
// What the archive does wrong is Invalid; what the disk does wrong is not.
func Extract(r io.Reader, dir string, limits Limits) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("opening the directory to extract into: %w", err)
	}
	defer root.Close()
	in := &source{Reader: r}
	x := &extraction{root: root, budget: budget{Limits: limits.orDefault()}, made: map[string]kind{".": implied}}
	plain, err := decompress(in, x.streamCap())
	if err == nil {
		err = x.all(plain)
	}
	if in.failed != nil {
		return fmt.Errorf("reading the archive: %w", in.failed)
	}
	return err
}

// source remembers the failures of the outer reader, to tell a broken disk or
// network from a broken archive.
type source struct {
	io.Reader
	failed error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && err != io.EOF {
		s.failed = err
	}
	return n, err
}

// decompress returns the tar stream in r, at most most bytes of it.
func decompress(r io.Reader, most int64) (io.Reader, error) {
	buffered := bufio.NewReader(r)
	magic, err := buffered.Peek(2)
	if err != nil || magic[0] != 0x1f || magic[1] != 0x8b {
		return &capped{buffered, most}, nil
	}
	plain, err := gzip.NewReader(buffered)
	if err != nil {
		return nil, unreadable(err)
	}
	return &capped{plain, most}, nil
}

// capped fails when more than left bytes are read from it, where an
// io.LimitReader would pretend that the stream ends.
type capped struct {
	io.Reader
	left int64
}

func (c *capped) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if c.left -= int64(n); c.left < 0 {
		return 0, errTooLong
	}
	return n, err
}

func unreadable(err error) error {
	return fault.New(fault.Invalid, Reason, fmt.Errorf("reading the archive: %w", err))
}

type kind byte

const (
	implied kind = iota + 1 // a directory that a longer name needed
	named                   // a directory with an entry of its own
	file
)

type extraction struct {
	root   *os.Root
	budget budget
	made   map[string]kind // by this extraction, by clean name
}

// streamCap bounds the whole tar stream: the contents, and for each entry its
// header, padding and extended header. It stops an archive that is nothing but
// headers, which no other limit counts.
func (x *extraction) streamCap() int64 {
	return x.budget.Bytes + int64(x.budget.Entries+16)*8192
}

func (x *extraction) all(plain io.Reader) error {
	archive := tar.NewReader(plain)
	for {
		header, err := archive.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return unreadable(err)
		}
		if err := x.one(header, archive); err != nil {
			return err
		}
	}
	// What follows the end of the archive means nothing, but reading it makes
	// gzip compare its checksum.
	if _, err := io.Copy(io.Discard, plain); err != nil {
		return unreadable(err)
	}
	return nil
}

func (x *extraction) one(header *tar.Header, content io.Reader) error {
	if header.Typeflag == tar.TypeXGlobalHeader {
		return nil // a comment, as git archive writes one
	}
	name, err := Local(header.Name)
	if err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeDir:
		return x.directory(name)
	case tar.TypeReg:
		if strings.HasSuffix(header.Name, "/") || name == "." {
			return refuse(header.Name, "a file may not have the name of a directory")
		}
		return x.file(name, header, content)
	default:
		return refuse(header.Name, "entries of type %q are refused: only directories and regular files are unpacked", header.Typeflag)
	}
}

func (x *extraction) directory(name string) error {
	if x.made[name] == named {
		return refuse(name, "the archive holds this name twice")
	}
	if err := x.ensure(name); err != nil {
		return err
	}
	x.made[name] = named
	return nil
}

// ensure makes the directory name and those above it. A directory that was
// there before is used; a link to one is not.
func (x *extraction) ensure(name string) error {
	switch x.made[name] {
	case implied, named:
		return nil
	case file:
		return refuse(name, "the archive uses this name for a file and for a directory")
	}
	if err := x.ensure(path.Dir(name)); err != nil {
		return err
	}
	if err := x.budget.entry(name); err != nil {
		return err
	}
	err := x.root.Mkdir(name, 0o755)
	if errors.Is(err, fs.ErrExist) {
		info, statErr := x.root.Lstat(name)
		if statErr != nil || !info.IsDir() {
			return refuse(name, "something else is there already")
		}
		err = nil
	}
	if err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	x.made[name] = implied
	return nil
}

func (x *extraction) file(name string, header *tar.Header, content io.Reader) error {
	if x.made[name] != 0 {
		return refuse(name, "the archive holds this name twice")
	}
	if err := x.ensure(path.Dir(name)); err != nil {
		return err
	}
	if err := x.budget.entry(name); err != nil {
		return err
	}
	if err := x.budget.file(name, header.Size); err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if header.Mode&0o111 != 0 {
		mode = 0o755
	}
	out, err := x.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return refuse(name, "something else is there already")
	}
	if err != nil {
		return fmt.Errorf("making a file: %w", err)
	}
	x.made[name] = file
	err = write(out, content)
	return errors.Join(err, out.Close())
}

// write copies content to out and tells a failing archive from a failing disk.
func write(out *os.File, content io.Reader) error {
	in := &source{Reader: content}
	if _, err := io.Copy(out, in); in.failed != nil {
		return unreadable(in.failed)
	} else if err != nil {
		return fmt.Errorf("writing a file: %w", err)
	}
	return nil
}
