// Package disk writes files so that a crash loses none, reads files that an engine may
// have put there, and holds space for what a run must be able to write at its end.
//
// Start reading at Write; Reserve is the space.
package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/terrier-iac/terrier/internal/failpoint"
)

// TryLock takes the exclusive lock on the file at path, making the file if
// need be but no directory. It returns nil without an error if another process
// holds the lock. Closing the file, or dying, releases it.
//
// It is a lock of the open file description, like flock's, but one that can be
// queried without being taken: a process that queries never blocks one that
// locks.
func TryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return nil, nil
	}
	return nil, fmt.Errorf("locking %s: %w", path, err)
}

// IsLocked reports whether some process holds the lock on the file at path.
func IsLocked(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock); err != nil {
		return false, fmt.Errorf("asking after the lock on %s: %w", path, err)
	}
	return lock.Type != unix.F_UNLCK, nil
}

// Write replaces the file at path with data, so that after a crash at
// any moment either the old or the new content is there, and after the return
// the new one.
func Write(path string, data []byte) error {
	defer failpoint.Act("run.file", filepath.Base(path))()
	tmp := path + ".tmp"
	err := writeOut(tmp, data)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp) // on a full disk it has taken what there was
		return err
	}
	return syncDir(filepath.Dir(path))
}

// WriteSynced writes a file that no reader opens before it is complete.
func WriteSynced(path string, data []byte) error {
	defer failpoint.Act("run.file", filepath.Base(path))()
	return writeOut(path, data)
}

func writeOut(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// WriteJSON writes v as JSON, as Write does.
func WriteJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", filepath.Base(path), err)
	}
	return Write(path, data)
}

// ReadJSON reads the file at path into v; a file that is not there leaves v as
// it is.
func ReadJSON(path string, v any) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}

// ReadHostile reads a file that a run may have put there: never through a link
// out of root, never a pipe or a device, never more than most bytes.
func ReadHostile(root *os.Root, name string, most int64) ([]byte, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	if info.Size() > most {
		return nil, fmt.Errorf("%s has %d bytes, more than the %d allowed", name, info.Size(), most)
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%s grew beyond the %d bytes allowed", name, most)
	}
	return data, err
}

// NoFile reports whether an error of ReadHostile says that there is nothing to read: the name is
// free or leads out of the root, or what is there is no file, is too large, or may not be read.
// After any other error, as of the disk or of a process that can open no more files, there may
// be a file, and a later attempt may read it.
func NoFile(err error) bool {
	if err == nil {
		return false
	}
	errno, failed := errors.AsType[syscall.Errno](err)
	if !failed {
		return true // an error of ReadHostile itself, or of os.Root about the name
	}
	switch errno {
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.ENAMETOOLONG, unix.ENXIO, unix.ENODEV, unix.EISDIR, unix.EACCES, unix.EPERM:
		return true
	default:
		return false
	}
}

// WriteFresh writes a file below root, replacing whatever is there, so that a
// link or a pipe that a run left at that name is not written through.
func WriteFresh(root *os.Root, name string, data []byte, mode fs.FileMode) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	if err := root.RemoveAll(name); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Chmod(mode), f.Close())
}

// NoSpace is the reason of the fault that there is no space.
const NoSpace = "NoSpace"

// IsNoSpace reports whether an error of ours is that there is no space.
func IsNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}
