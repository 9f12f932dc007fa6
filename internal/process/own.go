package process

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

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
