package archive

import (
	"archive/tar"
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Format is how an archive is packed: the end of the name of its file.
type Format string

// The formats that Inspect knows. A part of a source is a plain tar archive; no registry takes one.
const (
	TarGz    Format = ".tar.gz"
	PlainTar Format = ".tar"
	Zip      Format = ".zip"
)

// Inspect reads an archive of the given size to its end, and returns its format and the
// names of its regular files. It refuses what Extract refuses, in a zip archive as well,
// and writes nothing.
func Inspect(r io.ReaderAt, size int64, limits Limits) (Format, []string, error) {
	return Read(r, size, limits, nil)
}

// Read is Inspect for a caller that wants some contents: keep is called with the name and
// the size of each file before its content, and returns the writer that gets it, or nil.
func Read(r io.ReaderAt, size int64, limits Limits, keep func(name string, size int64) io.Writer) (Format, []string, error) {
	in := &source{Reader: io.NewSectionReader(r, 0, size)}
	l := &list{budget: budget{Limits: limits.orDefault()}, made: map[string]kind{".": implied}, keep: keep}
	format, err := l.read(r, size, in)
	if in.failed != nil {
		return "", nil, fmt.Errorf("reading the archive: %w", in.failed)
	}
	if err != nil {
		return "", nil, err
	}
	return format, l.files, nil
}

// list is the names of an archive as far as it was read.
type list struct {
	budget budget
	made   map[string]kind
	files  []string
	to     *zip.Writer // nil: contents are read and dropped, but for those that keep takes
	keep   func(name string, size int64) io.Writer
}

func (l *list) read(r io.ReaderAt, size int64, in io.Reader) (Format, error) {
	var magic [262]byte // to the end of that of a tar header
	if n, err := r.ReadAt(magic[:], 0); n < len(magic) && err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("reading the archive: %w", err)
	}
	switch {
	case magic[0] == 0x1f && magic[1] == 0x8b:
		return TarGz, l.tar(in)
	case string(magic[:4]) == "PK\x03\x04":
		return Zip, l.zip(r, size)
	case string(magic[257:]) == "ustar":
		return PlainTar, l.tar(in)
	default:
		return "", unreadable(errors.New("it is neither a zip archive nor a gzipped tar archive"))
	}
}

func (l *list) tar(in io.Reader) error {
	plain, err := decompress(in, l.budget.stream())
	if err != nil {
		return err
	}
	for archive := tar.NewReader(plain); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			// What follows the end means nothing, but reading it makes gzip compare its checksum.
			if _, err := io.Copy(io.Discard, plain); err != nil {
				return unreadable(err)
			}
			return nil
		}
		if err != nil {
			return unreadable(err)
		}
		switch header.Typeflag {
		case tar.TypeXGlobalHeader: // a comment, as git archive writes one
		case tar.TypeDir:
			err = l.directory(header.Name)
		case tar.TypeReg:
			err = l.file(header.Name, header.Size, header.Mode&0o111 != 0, archive)
		default:
			err = refuse(header.Name, "entries of type %q are refused: only directories and regular files are unpacked", header.Typeflag)
		}
		if err != nil {
			return err
		}
	}
}

func (l *list) zip(r io.ReaderAt, size int64) error {
	archive, err := openZip(r, size)
	if err != nil {
		return unreadable(err)
	}
	for _, f := range archive.File {
		switch mode := f.Mode(); {
		case mode.IsDir():
			err = l.directory(f.Name)
		case mode.IsRegular() && f.UncompressedSize64 <= uint64(l.budget.File):
			err = l.zipped(f)
		case mode.IsRegular():
			err = l.budget.file(f.Name, l.budget.File+1)
		default:
			err = refuse(f.Name, "its type is %s: only directories and regular files are unpacked", mode.Type())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *list) zipped(f *zip.File) error {
	content, err := f.Open()
	if err != nil {
		return unreadable(err)
	}
	return errors.Join(l.file(f.Name, int64(f.UncompressedSize64), f.Mode()&0o111 != 0, content), content.Close())
}

// directory takes a directory, which may occur before or after what is in it.
func (l *list) directory(name string) error {
	name, err := local(name)
	if err != nil {
		return err
	}
	if l.made[name] == leaf {
		return refuse(name, "something else is there already")
	}
	return l.above(name + "/")
}

// file takes a regular file, and reads it.
func (l *list) file(name string, size int64, executable bool, content io.Reader) error {
	if strings.HasSuffix(name, "/") {
		return refuse(name, "a file may not have the name of a directory")
	}
	name, err := local(name)
	if err != nil {
		return err
	}
	if l.made[name] != 0 {
		return refuse(name, "this name occurs twice")
	}
	if err := errors.Join(l.budget.file(name, size), l.budget.entry(name), l.above(name)); err != nil {
		return err
	}
	l.made[name] = leaf
	l.files = append(l.files, name)
	to, err := l.create(name, executable, size)
	if err != nil {
		return err
	}
	switch n, err := io.Copy(to, content); {
	case to.failed != nil:
		return to.failed
	case err != nil:
		return unreadable(err)
	case n != size:
		return refuse(name, "it is not as long as it claims to be")
	}
	return nil
}

// above takes the directories that a name is in.
func (l *list) above(name string) error {
	for at, r := range name {
		dir := name[:at]
		if r != '/' || l.made[dir] == implied {
			continue
		}
		if l.made[dir] == leaf {
			return refuse(name, "%q is a file", dir)
		}
		if err := l.budget.entry(dir); err != nil {
			return err
		}
		l.made[dir] = implied
	}
	return nil
}

// maxListing bounds the list of files in a zip archive, which is held in memory.
const maxListing = 16 << 20

// openZip reads the list of files of a zip archive.
func openZip(r io.ReaderAt, size int64) (*zip.Reader, error) {
	listing := &listing{ReaderAt: r, left: maxListing}
	z, err := zip.NewReader(listing, size)
	listing.whole = true
	return z, err
}

// listing bounds what is read of an archive until whole is set.
type listing struct {
	io.ReaderAt
	left  int64
	whole bool
}

func (l *listing) ReadAt(p []byte, at int64) (int, error) {
	if !l.whole {
		if l.left -= int64(len(p)); l.left < 0 {
			return 0, fmt.Errorf("its list of files is larger than %d bytes", maxListing)
		}
	}
	return l.ReaderAt.ReadAt(p, at)
}
