package blob

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/terrier-iac/terrier/internal/failpoint"
)

// Files is a Store in a directory. Several processes may use a directory at a time, as
// the replicas of a controller on one volume do.
//
//	DIR/stacks/1234/plan~     the value of stacks/1234/plan
//	DIR/.partial/…            values that are being written
//
// The names of values end in a character that no key has, so that one key may
// go on where another ends.
//
// If the directory is removed or replaced while it is in use, no value in it is
// reported as missing: calls fail with Gone until there is a directory again, which
// is then used.
type Files struct {
	dir   string
	limit int64

	// open is held while root is looked at or changed for that of a directory
	// that has come to stand in dir.
	open   sync.Mutex
	root   *os.Root
	info   fs.FileInfo // of root
	closed bool

	// tree is held while directories come and go: removing one that became empty
	// must not remove a directory that a Put has just made.
	tree sync.Mutex
}

const (
	partial = ".partial"
	suffix  = "~"
)

// OpenFiles opens a directory, made if it is not there, for values of at most
// limit bytes. What an earlier process left half written is removed.
func OpenFiles(dir string, limit int64) (*Files, error) {
	if limit <= 0 {
		return nil, fmt.Errorf("opening blobs in %s: the limit is %d bytes", dir, limit)
	}
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("opening blobs: %w", err)
	}
	f := &Files{dir: dir, limit: limit}
	return f, f.enter()
}

// enter makes the directory that is there now the one that is used.
func (f *Files) enter() error {
	root, err := os.OpenRoot(f.dir)
	if err != nil {
		return fmt.Errorf("opening blobs: %w", err)
	}
	info, err := root.Stat(".")
	if err != nil {
		return errors.Join(fmt.Errorf("opening blobs: %w", err), root.Close())
	}
	if err := clearPartial(root); err != nil {
		return errors.Join(fmt.Errorf("clearing what was half written: %w", err), root.Close())
	}
	if f.root != nil {
		_ = f.root.Close() // files that are open in the other one stay readable
	}
	f.root, f.info = root, info
	return nil
}

// clearPartial removes values that no process is writing any more: a process locks
// what it writes, and the kernel frees the lock when the process ends.
func clearPartial(root *os.Root) error {
	if err := root.MkdirAll(partial, 0o700); err != nil {
		return err
	}
	dir, err := root.Open(partial)
	if err != nil {
		return err
	}
	names, err := dir.Readdirnames(-1)
	errs := []error{err, dir.Close()}
	for _, name := range names {
		name = path.Join(partial, name)
		f, err := root.OpenFile(name, os.O_RDWR, 0) // NFS locks no file that cannot be written
		if isAbsent(err) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EISDIR) {
			continue // one of another user stays: values get names of their own
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		ours, err := locked(f)
		if ours {
			err = ignoreAbsent(root.Remove(name))
		}
		errs = append(errs, err, f.Close())
	}
	return errors.Join(errs...)
}

// locked locks a file until it is closed. It is false if another process has it.
func locked(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("locking the file %s: %w: use a file system that supports flock (for NFS, start its lock service)", f.Name(), err)
	}
	return true, nil
}

// createPartial makes a file for a value that is being written, and locks it.
func createPartial(ctx context.Context, root *os.Root) (*os.File, string, error) {
	for ctx.Err() == nil {
		name := path.Join(partial, rand.Text())
		file, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if isAbsent(err) { // the directory was cleaned
			if err = root.MkdirAll(partial, 0o700); err == nil {
				file, err = root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
			}
		}
		if err != nil {
			return nil, "", err
		}
		ours, err := locked(file)
		if ours {
			if _, err = root.Lstat(name); err == nil {
				return file, name, nil
			}
		}
		// Another process was starting, and took it for the rest of one that had ended.
		if err := errors.Join(file.Close(), ignoreAbsent(err), ignoreAbsent(root.Remove(name))); err != nil {
			return nil, "", err
		}
	}
	return nil, "", ctx.Err()
}

// at returns the directory after a check that its path still leads to it: in a
// directory that was removed, every value is absent and a list is empty.
func (f *Files) at() (*os.Root, error) {
	f.open.Lock()
	defer f.open.Unlock()
	if f.closed {
		return nil, os.ErrClosed
	}
	info, err := os.Stat(f.dir)
	switch {
	case isAbsent(err):
		return nil, gone(f.dir)
	case err != nil:
		return nil, err
	case !os.SameFile(info, f.info):
		if err := f.enter(); err != nil {
			return nil, err
		}
	}
	return f.root, nil
}

// still reports whether root is the directory that its path leads to: only then is
// an absent value really absent.
func (f *Files) still(root *os.Root) error {
	now, err := f.at()
	if err == nil && now != root {
		err = gone(f.dir)
	}
	return err
}

// Close releases the directory. Values that are open stay readable.
func (f *Files) Close() error {
	f.open.Lock()
	defer f.open.Unlock()
	f.closed = true
	return f.root.Close()
}

// Put writes beside, syncs, renames, and syncs the directory.
func (f *Files) Put(ctx context.Context, key string, r io.Reader) error {
	return f.keep(ctx, key, r, func(root *os.Root, temp *os.File, name string) error { return f.rename(root, name, key) })
}

// keep writes a value to a file beside, whose name is name, and syncs it. publish gives
// the file the name of the value.
func (f *Files) keep(ctx context.Context, key string, r io.Reader, publish func(root *os.Root, temp *os.File, name string) error) (err error) {
	if err := CheckKey(key); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("keeping blob %s: %w", key, err)
		}
	}()
	root, err := f.at()
	if err != nil {
		return err
	}
	temp, name, err := createPartial(ctx, root)
	if err != nil {
		return err
	}
	_, err = io.Copy(temp, Bounded(ctx, r, f.limit))
	if err == nil {
		err = temp.Sync()
	}
	if err == nil {
		err = publish(root, temp, name)
	}
	if err != nil {
		err = errors.Join(err, ignoreAbsent(root.Remove(name)))
	}
	return errors.Join(err, temp.Close()) // last: it holds the lock
}

func (f *Files) rename(root *os.Root, temp, key string) error {
	defer failpoint.Act("blob.put", key)()
	f.tree.Lock()
	defer f.tree.Unlock()
	dir := path.Dir(key)
	made, err := makeDir(root, dir)
	if err == nil {
		err = root.Rename(temp, key+suffix)
	}
	for tries := 0; isAbsent(err) && tries < 10; tries++ {
		// Another process removed the directory, which was empty.
		if made, err = makeDir(root, dir); err == nil {
			err = root.Rename(temp, key+suffix)
		}
	}
	if err != nil {
		return err
	}
	// A new directory is only there for good once its parent is synced.
	for ; ; dir = path.Dir(dir) {
		if err := syncDir(root, dir); err != nil {
			return err
		}
		if made == "" || dir == made || dir == "." {
			break
		}
	}
	return nil
}

// makeDir makes a directory with its parents and returns the deepest that was
// there before.
func makeDir(root *os.Root, dir string) (existing string, err error) {
	for existing = dir; existing != "."; existing = path.Dir(existing) {
		if _, err := root.Stat(existing); err == nil {
			break
		}
	}
	return existing, root.MkdirAll(dir, 0o700)
}

func syncDir(root *os.Root, dir string) error {
	d, err := root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Get opens a value; it stays what it is even if the key is written again.
func (f *Files) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if err := errors.Join(CheckKey(key), ctx.Err()); err != nil {
		return nil, err
	}
	root, err := f.at()
	if err != nil {
		return nil, fmt.Errorf("opening blob %s: %w", key, err)
	}
	file, err := f.file(root, key)
	if err != nil {
		return nil, err // and no file in an interface
	}
	return file, nil
}

// file opens the file of a value.
func (f *Files) file(root *os.Root, key string) (*os.File, error) {
	file, err := root.Open(key + suffix)
	if isAbsent(err) {
		if err := f.still(root); err != nil {
			return nil, fmt.Errorf("opening blob %s: %w", key, err)
		}
		return nil, Missing(key)
	}
	if err != nil {
		return nil, fmt.Errorf("opening blob %s: %w", key, err)
	}
	return file, nil
}

// Delete removes a value and the directories that are empty without it.
func (f *Files) Delete(ctx context.Context, key string) error {
	if err := errors.Join(CheckKey(key), ctx.Err()); err != nil {
		return err
	}
	root, err := f.at()
	if err != nil {
		return fmt.Errorf("deleting blob %s: %w", key, err)
	}
	f.tree.Lock()
	defer f.tree.Unlock()
	defer failpoint.Act("blob.delete", key)()
	err = root.Remove(key + suffix)
	if isAbsent(err) {
		return nil
	}
	if err == nil {
		err = ignoreAbsent(syncDir(root, path.Dir(key))) // another process may have removed it
	}
	if err != nil {
		return fmt.Errorf("deleting blob %s: %w", key, err)
	}
	for dir := path.Dir(key); dir != "."; dir = path.Dir(dir) {
		if root.Remove(dir) != nil {
			break // something else is in it
		}
	}
	return nil
}

// List walks the directory that prefix leads to.
func (f *Files) List(ctx context.Context, prefix string) ([]string, error) {
	if err := errors.Join(CheckPrefix(prefix), ctx.Err()); err != nil {
		return nil, err
	}
	root, err := f.at()
	if err != nil {
		return nil, fmt.Errorf("listing blobs: %w", err)
	}
	start := "."
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		start = prefix[:i]
	}
	var keys []string
	err = fs.WalkDir(root.FS(), start, func(p string, entry fs.DirEntry, err error) error {
		switch {
		case isAbsent(err):
			return nil // never there, or removed under our eyes
		case err != nil:
			return err
		case p == partial, p == lockDir:
			return fs.SkipDir
		case ctx.Err() != nil:
			return ctx.Err()
		}
		if key, ok := strings.CutSuffix(p, suffix); ok && entry.Type().IsRegular() && strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
		return nil
	})
	if err == nil {
		err = f.still(root) // what is removed under our eyes must not look like no keys
	}
	if err != nil {
		return nil, fmt.Errorf("listing blobs: %w", err)
	}
	slices.Sort(keys)
	return keys, nil
}

func isAbsent(err error) bool { return errors.Is(err, fs.ErrNotExist) }

func ignoreAbsent(err error) error {
	if isAbsent(err) {
		return nil
	}
	return err
}
