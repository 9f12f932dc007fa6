package archive

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// ToZip writes the regular files of a zip or tar archive of the given size as a
// zip archive. It refuses what Inspect refuses.
//
// The same archive makes the same bytes, always: the files are in its order, without
// times and without compression, whose result would change with the compressor.
func ToZip(r io.ReaderAt, size int64, to io.Writer, limits Limits) error {
	in := &source{Reader: io.NewSectionReader(r, 0, size)}
	z := zip.NewWriter(to)
	l := &list{budget: budget{Limits: limits.orDefault()}, made: map[string]kind{".": implied}, to: z}
	_, err := l.read(r, size, in)
	if in.failed != nil {
		return fmt.Errorf("reading the archive: %w", in.failed)
	}
	if err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("writing the zip archive: %w", err)
	}
	return nil
}

// target remembers the failures of what is written to, to tell a full disk from a broken
// archive.
type target struct {
	io.Writer
	failed error
}

func (t *target) Write(p []byte) (int, error) {
	n, err := t.Writer.Write(p)
	if err != nil {
		t.failed = errors.Join(t.failed, fmt.Errorf("writing the zip archive: %w", err))
	}
	return n, err
}

// create begins a file of the result.
func (l *list) create(name string, executable bool, size int64) (*target, error) {
	if l.keep != nil {
		if w := l.keep(name, size); w != nil {
			return &target{Writer: w}, nil
		}
	}
	if l.to == nil {
		return &target{Writer: io.Discard}, nil
	}
	h := &zip.FileHeader{Name: name, Method: zip.Store}
	mode := fs.FileMode(0o644)
	if executable {
		mode = 0o755
	}
	h.SetMode(mode)
	w, err := l.to.CreateHeader(h)
	if err != nil {
		return nil, fmt.Errorf("writing the zip archive: %w", err)
	}
	return &target{Writer: w}, nil
}
