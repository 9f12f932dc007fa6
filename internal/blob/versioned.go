package blob

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"syscall"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
)

// VersionedFiles is Files whose values have versions. Every process that writes to the
// directory must open it with OpenVersionedFiles: a write holds a lock on its key, so
// that none comes between the comparison of a version and the new value.
//
//	DIR/.lock/17     the lock of every key whose hash ends in 17
//
// A lock is one of the kernel, and ends with the process that has it.
type VersionedFiles struct {
	*Files
	turns [locks]chan struct{} // a goroutine has the turn while it has the lock, or waits for it
}

var _ Versions = (*VersionedFiles)(nil)

const (
	lockDir   = ".lock"
	locks     = 64
	lockPause = 50 * time.Millisecond // the longest between two tries to get a lock
)

// OpenVersionedFiles is OpenFiles for values with versions.
func OpenVersionedFiles(dir string, limit int64) (*VersionedFiles, error) {
	f, err := OpenFiles(dir, limit)
	if err != nil {
		return nil, err
	}
	v := &VersionedFiles{Files: f}
	for i := range v.turns {
		v.turns[i] = make(chan struct{}, 1)
	}
	return v, nil
}

// Put implements Store.
func (v *VersionedFiles) Put(ctx context.Context, key string, r io.Reader) error {
	return v.keep(ctx, key, r, func(root *os.Root, _ *os.File, name string) error {
		return v.locking(ctx, root, key, func() error { return v.rename(root, name, key) })
	})
}

// Delete implements Store.
func (v *VersionedFiles) Delete(ctx context.Context, key string) error {
	if err := errors.Join(CheckKey(key), ctx.Err()); err != nil {
		return err
	}
	root, err := v.at()
	if err != nil {
		return fmt.Errorf("deleting blob %s: %w", key, err)
	}
	return v.locking(ctx, root, key, func() error { return v.Files.Delete(ctx, key) })
}

// Open implements Versions.
func (v *VersionedFiles) Open(ctx context.Context, key string) (Value, error) {
	if err := errors.Join(CheckKey(key), ctx.Err()); err != nil {
		return Value{}, err
	}
	root, err := v.at()
	if err != nil {
		return Value{}, fmt.Errorf("opening blob %s: %w", key, err)
	}
	return v.value(ctx, root, key)
}

// value is the value that is there.
func (v *VersionedFiles) value(ctx context.Context, root *os.Root, key string) (Value, error) {
	file, err := v.file(root, key)
	if err != nil {
		return Value{}, err
	}
	value := Value{ReadSeekCloser: file}
	info, err := file.Stat()
	if err == nil {
		value.Size, value.Modified = info.Size(), info.ModTime()
		sum := sha256.New()
		if value.Size <= digested {
			_, err = io.Copy(sum, Bounded(ctx, file, digested))
		}
		if err == nil {
			_, err = file.Seek(0, io.SeekStart)
		}
		value.Version = versionOf(info, sum)
	}
	if err != nil {
		return Value{}, errors.Join(fmt.Errorf("opening blob %s: %w", key, err), file.Close())
	}
	return value, nil
}

// digested is the size up to which the version of a value is the digest of its content.
const digested = 8 << 20

// versionOf is the version of what a file holds. That of a small value is its digest,
// which depends on no clock and no number of a file. A large value takes too long to
// read: its version is what tells two files apart. Two large files cannot be written
// within one tick of the clock.
func versionOf(info fs.FileInfo, sum hash.Hash) Version {
	if info.Size() <= digested {
		return Version("sha256-" + hex.EncodeToString(sum.Sum(nil)))
	}
	var number uint64
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		number = stat.Ino
	}
	return Version(fmt.Sprintf("file-%x-%x-%x", number, info.Size(), info.ModTime().UnixNano()))
}

// Replace implements Versions.
func (v *VersionedFiles) Replace(ctx context.Context, key string, old Version, r io.Reader) (now Version, err error) {
	sum := sha256.New()
	err = v.keep(ctx, key, io.TeeReader(r, sum), func(root *os.Root, temp *os.File, name string) error {
		info, err := temp.Stat()
		if err != nil {
			return err
		}
		now = versionOf(info, sum)
		return v.locking(ctx, root, key, func() error {
			if is, err := v.version(ctx, root, key); err != nil {
				return err
			} else if is != old {
				return Conflict()
			}
			return v.rename(root, name, key)
		})
	})
	if err != nil {
		return None, err
	}
	return now, nil
}

// version is that of the value that is there.
func (v *VersionedFiles) version(ctx context.Context, root *os.Root, key string) (Version, error) {
	value, err := v.value(ctx, root, key)
	if fault.Of(err) == fault.Missing {
		return None, nil
	}
	if err != nil {
		return None, err
	}
	return value.Version, value.Close()
}

// locking calls do while no other goroutine and no other process has the lock of the key.
func (v *VersionedFiles) locking(ctx context.Context, root *os.Root, key string, do func() error) error {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(key)) // it returns no error
	n := sum.Sum32() % locks
	select {
	case v.turns[n] <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-v.turns[n] }()
	file, err := lock(ctx, root, path.Join(lockDir, fmt.Sprintf("%02d", n)))
	if err != nil {
		return err
	}
	return errors.Join(do(), file.Close())
}

// lock waits for the lock of a file, made if it is not there, until the context ends.
func lock(ctx context.Context, root *os.Root, name string) (*os.File, error) {
	for pause := firstPause; ; pause = min(2*pause, lockPause) {
		file, ours, err := tryLock(root, name)
		if ours || err != nil {
			return file, err
		}
		select {
		case <-time.After(rand.N(pause)):
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for another process, which has the lock %s: %w", name, ctx.Err())
		}
	}
}

// tryLock locks a file. It is not ours if another process has the lock, or if the file
// was removed.
func tryLock(root *os.Root, name string) (file *os.File, ours bool, err error) {
	const flags = os.O_CREATE | os.O_RDWR
	file, err = root.OpenFile(name, flags, 0o600)
	if isAbsent(err) {
		if err = root.MkdirAll(lockDir, 0o700); err == nil {
			file, err = root.OpenFile(name, flags, 0o600)
		}
	}
	if err != nil {
		return nil, false, err
	}
	ours, err = locked(file)
	if ours {
		ours, err = same(root, name, file)
	}
	if ours {
		return file, true, nil
	}
	return nil, false, errors.Join(ignoreAbsent(err), file.Close())
}

// same reports whether a name leads to a file.
func same(root *os.Root, name string, file *os.File) (bool, error) {
	is, err := root.Lstat(name)
	if err != nil {
		return false, err
	}
	info, err := file.Stat()
	return err == nil && os.SameFile(is, info), err
}
