package records

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/record"
)

// Archives are the archives of sources that were restored from their records, as
// files in a directory.
type Archives struct{ Dir string }

// Names of files begin so: of archives, and of those that are being written.
const (
	restored  = "restored-"
	restoring = "restoring-"
)

// Path returns the path of an archive that was restored from its record.
func (a Archives) Path(digest string) (string, error) {
	path := a.path(digest)
	_, err := os.Stat(path)
	return path, err
}

func (a Archives) path(digest string) string {
	return filepath.Join(a.Dir, restored+record.Hex(digest)+".tar.gz")
}

// restore writes an archive into the scratch space under the name of its
// digest, whole or not at all.
func (a Archives) restore(r io.Reader, digest string) error {
	if path, err := a.Path(digest); err == nil {
		now := time.Now()
		return os.Chtimes(path, now, now) // it is used: see Prune
	}
	if err := os.MkdirAll(a.Dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(a.Dir, restoring)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = io.Copy(f, r)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), a.path(digest))
}

// restoredFor is how long an archive stays on the disk after it was restored last. A pass that
// starts a run restores it again.
const restoredFor = 24 * time.Hour

// Prune removes archives that were restored long ago, and what a program left that ended while it
// wrote one. Each destroy restores the source of its stack, so that the disk would fill up.
func (a Archives) Prune(now time.Time) error {
	entries, err := os.ReadDir(a.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if !e.Type().IsRegular() || !strings.HasPrefix(e.Name(), restored) && !strings.HasPrefix(e.Name(), restoring) {
			continue
		}
		info, err := e.Info()
		if err == nil && now.Sub(info.ModTime()) > restoredFor {
			err = os.Remove(filepath.Join(a.Dir, e.Name()))
		}
		if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
