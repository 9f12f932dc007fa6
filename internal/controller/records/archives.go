package records

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/terrier-iac/terrier/internal/record"
)

// Archives are the archives of sources that were restored from their records, as
// files in a directory.
type Archives struct{ Dir string }

// Path returns the path of an archive that was restored from its record.
func (a Archives) Path(digest string) (string, error) {
	path := a.path(digest)
	_, err := os.Stat(path)
	return path, err
}

func (a Archives) path(digest string) string {
	return filepath.Join(a.Dir, "restored-"+record.Hex(digest)+".tar.gz")
}

// restore writes an archive into the scratch space under the name of its
// digest, whole or not at all.
func (a Archives) restore(r io.Reader, digest string) error {
	if _, err := a.Path(digest); err == nil {
		return nil
	}
	if err := os.MkdirAll(a.Dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(a.Dir, "restoring-")
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
