package archive

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"
)

// Select copies the regular files of a tar or gzipped tar archive that are directly in a
// directory, as executables, into a gzipped tar archive. The same files make the same bytes. It
// returns how many there are.
func Select(r io.Reader, dir string, w io.Writer, limits Limits) (n int, err error) {
	b := budget{Limits: limits.orDefault()}
	plain, err := decompress(r, b.stream())
	if err != nil {
		return 0, err
	}
	packed := gzip.NewWriter(w)
	to := tar.NewWriter(packed)
	for from := tar.NewReader(plain); ; {
		h, err := from.Next()
		if errors.Is(err, io.EOF) {
			return n, errors.Join(to.Close(), packed.Close())
		}
		if err != nil {
			return n, unreadable(err)
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		if h.Typeflag != tar.TypeReg || path.Dir(name) != dir {
			continue
		}
		if err := errors.Join(b.entry(name), b.file(name, h.Size)); err != nil {
			return n, err
		}
		if err := to.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: h.Size, ModTime: time.Unix(0, 0).UTC()}); err != nil {
			return n, fmt.Errorf("writing an archive: %w", err)
		}
		if _, err := io.Copy(to, from); err != nil {
			return n, fmt.Errorf("copying %q of an archive: %w", name, err)
		}
		n++
	}
}
