package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// sandboxUser is the user that sandboxed programs run as when this process is
// root. It owns nothing on a sane machine and can write no kernel setting.
const sandboxUser = 65534

// runAs is the user of sandboxed programs: sandboxUser when this process is
// root, else the user of this process.
func runAs() (uid int, change bool) {
	if uid := os.Geteuid(); uid != 0 || !sandboxUserExists() {
		return uid, false
	}
	return sandboxUser, true
}

// sandboxUserExists is false where root is only called so: in a user namespace
// that maps no more than one ordinary user.
var sandboxUserExists = sync.OnceValue(func() bool {
	for _, path := range []string{"/proc/self/uid_map", "/proc/self/gid_map"} {
		table, err := os.ReadFile(path)
		if err != nil || !maps(string(table), sandboxUser) {
			return false
		}
	}
	return true
})

// maps reads the kernel's table of ids: first inside, first outside, how many.
func maps(table string, id int) bool {
	for line := range strings.Lines(table) {
		var first, outside, count int
		if _, err := fmt.Sscan(line, &first, &outside, &count); err == nil && id >= first && id-first < count {
			return true
		}
	}
	return false
}

// AllowRead lets sandboxed programs read a file that their sandbox shows, and no
// other user.
func AllowRead(path string) error {
	user, change := runAs()
	if !change {
		return os.Chmod(path, 0o400)
	}
	return errors.Join(os.Chown(path, -1, user), os.Chmod(path, 0o640))
}

// RemoveAll removes a tree that programs of a sandbox may have made, as os.RemoveAll does.
// Where they run as the user of this process, a directory that they made unwritable, as a
// cache of Go modules is, is no obstacle.
func RemoveAll(dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	opened := OpenDirs(dir)
	if err := os.RemoveAll(dir); err != nil {
		return errors.Join(err, opened)
	}
	return nil
}

// OpenDirs lets the user of this process list and write a directory and every directory below
// it, as far as they are that user's. Links are not followed. Nothing of the sandbox may be
// alive.
func OpenDirs(dir string) error {
	parent, err := os.OpenRoot(filepath.Dir(dir))
	if err != nil {
		return fmt.Errorf("opening the directory %s: %w", dir, err)
	}
	defer func() { _ = parent.Close() }()
	return openDirs(parent, filepath.Base(dir))
}

const ownerAll = 0o700

func openDirs(parent *os.Root, name string) error {
	info, err := parent.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil
	}
	if err != nil {
		return err
	}
	if mode := info.Mode().Perm(); mode&ownerAll != ownerAll {
		if err := parent.Chmod(name, mode|ownerAll); err != nil {
			return err
		}
	}
	dir, err := parent.OpenRoot(name)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	entries, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := openDirs(dir, e.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

// Own gives an open file to the user that sandboxed programs run as.
func Own(f *os.File) error {
	user, change := runAs()
	if !change {
		return nil
	}
	return f.Chown(user, user)
}

// ChownWork gives a work directory and its content to the user that sandboxed
// programs run as. Call it after each write there. It does nothing where that is
// the user of this process, and does not write where the owner is right already.
// Links are given, not followed. A file that has another name elsewhere is left
// alone: the other name may be in a cache that the program must not write.
func ChownWork(dir string) error {
	user, change := runAs()
	if !change {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("owning the work directory: %w", err)
	}
	defer func() { _ = root.Close() }()
	err = fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("%s: no owner known", path)
		}
		shared := info.Mode().IsRegular() && st.Nlink > 1
		if shared || (int(st.Uid) == user && int(st.Gid) == user) {
			return nil
		}
		return root.Lchown(path, user, user)
	})
	if err != nil {
		return fmt.Errorf("owning the work directory: %w", err)
	}
	return nil
}
