package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"
)

// boxUser is who boxed programs run as when we are root. It owns nothing on a
// sane machine, and being neither root nor us it can write no kernel setting.
const boxUser = 65534

// becomes is the user a boxed program gets: boxUser when we are root, else us.
func becomes() (uid int, change bool) {
	if uid := os.Geteuid(); uid != 0 || !boxUserExists() {
		return uid, false
	}
	return boxUser, true
}

// boxUserExists is false where root is only called so: in a user namespace that
// maps no more than one ordinary user.
var boxUserExists = sync.OnceValue(func() bool {
	for _, path := range []string{"/proc/self/uid_map", "/proc/self/gid_map"} {
		table, err := os.ReadFile(path)
		if err != nil || !maps(string(table), boxUser) {
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

// LetRead lets boxed programs read a file of ours that they are shown, and
// nobody else.
func LetRead(path string) error {
	user, change := becomes()
	if !change {
		return os.Chmod(path, 0o400)
	}
	return errors.Join(os.Chown(path, -1, user), os.Chmod(path, 0o640))
}

// OwnWork gives a work directory and all in it to the user that boxed programs
// run as; call it after writing anything there. Where that user is us it does
// nothing. What is his already costs a look and no write. Links are given, not
// followed; a file that has another name elsewhere is left alone, for the other
// name may be in a cache that the program must not write.
func OwnWork(dir string) error {
	user, change := becomes()
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
