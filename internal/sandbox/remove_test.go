package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/terrier-iac/terrier/internal/testkit/apart"
)

// A program may make any directory of its own unwritable or unreadable, as a cache of Go
// modules is. It is removed all the same, and nothing outside of it is touched.
func TestRemoveAllOfWhatProgramsMade(t *testing.T) {
	for name, make := range map[string]func(dir string) error{
		"nothing":     func(string) error { return nil },
		"a file":      func(dir string) error { return os.WriteFile(dir, nil, 0) },
		"a directory": func(dir string) error { return os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700) },
		"unwritable directories": func(dir string) error {
			return errors.Join(os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700), os.WriteFile(filepath.Join(dir, "a", "b", "file"), nil, 0o400),
				os.Chmod(filepath.Join(dir, "a", "b"), 0o500), os.Chmod(filepath.Join(dir, "a"), 0o555), os.Chmod(dir, 0o500))
		},
		"directories without any right": func(dir string) error {
			return errors.Join(os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700), os.Chmod(filepath.Join(dir, "a", "b"), 0),
				os.Chmod(filepath.Join(dir, "a"), 0), os.Chmod(dir, 0))
		},
		"an unwritable directory with a link": func(dir string) error {
			return errors.Join(os.Mkdir(dir, 0o700), os.Symlink("../outside", filepath.Join(dir, "link")), os.Chmod(dir, 0o500))
		},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			dir, outside := filepath.Join(base, "dir"), filepath.Join(base, "outside")
			if err := errors.Join(os.Mkdir(outside, 0o500), make(dir)); err != nil {
				t.Fatal(err)
			}
			apart.Unprivileged(t, func() {
				if err := RemoveAll(dir); err != nil {
					t.Errorf("RemoveAll() = %v", err)
				}
			})
			if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the directory is there after that: %v", err)
			}
			if info, err := os.Stat(outside); err != nil || info.Mode().Perm() != 0o500 {
				t.Errorf("a directory that a link leads to is %v now, %v", info, err)
			}
		})
	}
}
