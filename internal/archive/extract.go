package archive

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
)

// Extract unpacks the tar or gzipped tar archive r into the directory dir,
// which exists and should be empty: no existing file is replaced. After an error the
// directory holds a useless part of the archive.
//
// An error of the archive is Invalid; one of the disk is not.
func Extract(r io.Reader, dir string, limits Limits) error {
	tree, err := NewTree(dir, limits)
	if err != nil {
		return err
	}
	defer tree.Close()
	in := &source{Reader: r}
	plain, err := decompress(in, tree.budget.stream())
	if err == nil {
		err = extract(plain, tree)
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

// decompress returns the tar stream in r, which fails after most bytes.
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

// stream bounds a whole tar stream: the contents, and for each entry its
// header, padding and extended header. It stops an archive that is nothing but
// headers, which no other limit counts.
func (b *budget) stream() int64 { return b.Bytes + int64(b.Entries+16)*8192 }

// Has reports whether the tar or gzipped tar archive r has a regular file of a name.
func Has(r io.Reader, name string, limits Limits) (bool, error) {
	b := budget{Limits: limits.orDefault()}
	in := &source{Reader: r}
	plain, err := decompress(in, b.stream())
	for archive := tar.NewReader(plain); err == nil; {
		var header *tar.Header
		if header, err = archive.Next(); err == nil && header.Typeflag == tar.TypeReg && path.Clean(header.Name) == name {
			return true, nil
		}
	}
	switch {
	case in.failed != nil:
		return false, fmt.Errorf("reading the archive: %w", in.failed)
	case errors.Is(err, io.EOF):
		return false, nil
	case fault.Of(err) == fault.Invalid:
		return false, err
	default:
		return false, unreadable(err)
	}
}

func extract(plain io.Reader, into *Tree) error {
	archive := tar.NewReader(plain)
	for {
		header, err := archive.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return unreadable(err)
		}
		if err := one(header, archive, into); err != nil {
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

func one(header *tar.Header, content io.Reader, into *Tree) error {
	switch header.Typeflag {
	case tar.TypeXGlobalHeader:
		return nil // a comment, as git archive writes one
	case tar.TypeDir:
		return into.Mkdir(header.Name)
	case tar.TypeReg:
		if strings.HasSuffix(header.Name, "/") {
			return refuse(header.Name, "a file may not have the name of a directory")
		}
		in := &source{Reader: content}
		err := into.Write(header.Name, header.Mode&0o111 != 0, header.Size, in)
		if in.failed != nil {
			return unreadable(in.failed)
		}
		return err
	default:
		return refuse(header.Name, "entries of type %q are refused: only directories and regular files are unpacked", header.Typeflag)
	}
}
