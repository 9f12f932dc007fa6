package kubeapi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
)

// dir is a data directory that this process alone may use.
//
//	DIR/lock                 held while a control plane runs; names its process
//	DIR/kubeconfig           how its owner gets in
//	DIR/control-plane/port   the port of the last start
//	DIR/control-plane/pki/   certificates, keys and the token
//	DIR/control-plane/stamps the epoch of the stamps of changes
//	DIR/control-plane/etcd/  every object
type dir struct {
	path string
	lock *os.File
}

func (d dir) kubeconfig() string { return filepath.Join(d.path, "kubeconfig") }
func (d dir) own(name ...string) string {
	return filepath.Join(append([]string{d.path, "control-plane"}, name...)...)
}
func (d dir) store() string     { return d.own("etcd") }
func (d dir) authority() string { return d.own("pki", "authority.pem") }
func (d dir) close()            { _ = d.lock.Close() } // which also unlocks it

// openDir makes path a private directory, and locks it.
func openDir(path string) (dir, error) {
	if path == "" {
		return dir{}, fault.New(fault.Invalid, "DataDirectory", errors.New("the control plane needs a data directory: name one"))
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return dir{}, fmt.Errorf("finding the data directory %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(abs), 0o700); err != nil {
		return dir{}, fmt.Errorf("making the data directory %s: %w", abs, err)
	}
	if err := ensurePrivate(abs); err != nil {
		return dir{}, err
	}
	lock, err := lockFile(filepath.Join(abs, "lock"))
	if err != nil {
		return dir{}, err
	}
	d := dir{path: abs, lock: lock}
	for _, inner := range []string{d.own(), d.own("pki")} {
		if err := ensurePrivate(inner); err != nil {
			d.close()
			return dir{}, err
		}
	}
	return d, nil
}

// ensurePrivate creates the directory at path, or checks that the existing one is
// private to this user. Mkdir never follows a link.
func ensurePrivate(path string) error {
	err := os.Mkdir(path, 0o700)
	if err == nil {
		return nil
	}
	if !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making the directory %s: %w", path, err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("looking at the directory %s: %w", path, err)
	}
	refuse := func(format string, args ...any) error {
		return fault.New(fault.Denied, "DataDirectory", fmt.Errorf("the data directory %s "+format, append([]any{path}, args...)...))
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return refuse("is a symbolic link: name the directory that it points to")
	case !info.IsDir():
		return refuse("is not a directory: name another")
	case int(owner) != os.Geteuid():
		return refuse("belongs to the user with id %d, and this process runs as %d: name a directory of your own", owner, os.Geteuid())
	case info.Mode().Perm()&0o077 != 0:
		return refuse("is open to other users (mode %04o), and it would hold credentials: close it with chmod 700", info.Mode().Perm())
	}
	return nil
}

// A killed process holds its locks until the kernel has freed its memory, which takes
// a moment: the next start waits for it.
const (
	dyingFor   = 2 * time.Second
	dyingEvery = 50 * time.Millisecond
)

// lockFile takes the lock that tells two instances apart. The kernel drops it
// when the process dies, however it dies.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock %s: %w", path, err)
	}
	if err := flock(f); err != nil {
		defer f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		holder, _ := os.ReadFile(path)
		return nil, fault.New(fault.Conflict, "DataDirectory",
			fmt.Errorf("the data directory %s is in use by another control plane (process %s): stop that one, or name another directory",
				filepath.Dir(path), strings.TrimSpace(string(holder))))
	}
	if err := f.Truncate(0); err != nil {
		return nil, errors.Join(fmt.Errorf("writing the lock %s: %w", path, err), f.Close())
	}
	if _, err := fmt.Fprintln(f, os.Getpid()); err != nil {
		return nil, errors.Join(fmt.Errorf("writing the lock %s: %w", path, err), f.Close())
	}
	return f, nil
}

// writeFile puts content at path so that a reader, or a start after a crash,
// finds either all of it or what was there before. The lock makes one fixed
// temporary name enough, so crashes leave no litter.
func writeFile(path string, content []byte) error {
	if err := replaceFile(path, content); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

func replaceFile(path string, content []byte) error {
	temporary := path + ".new"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(temporary, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	parent, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(parent.Sync(), parent.Close())
}

// flock takes the lock of an open file, from a process that is dying, too.
func flock(f *os.File) error {
	for deadline := time.Now().Add(dyingFor); ; time.Sleep(dyingEvery) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) || time.Now().After(deadline) {
			return err
		}
	}
}
