package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
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
