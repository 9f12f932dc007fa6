package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// RegistryClaim is room on the disk for what one request writes, until it is closed. The
// error of its writer is a fault of the kind Later once there is none left.
type RegistryClaim interface {
	Writer(w io.Writer) io.Writer
	Close()
}

// RegistryQuota bounds what a namespace has in a registry. Zero bytes bound nothing.
type RegistryQuota struct {
	Bytes int64
	Raise string // what an operator changes to raise it
}

// ownerOf is the namespace of a repository: the first part of its name.
func ownerOf(repo string) string {
	owner, _, _ := strings.Cut(repo, "/")
	return owner
}

// ledger knows how much of the disk each namespace has taken: its content, and the uploads
// that go on. It is counted once, and then follows each change.
type ledger struct {
	dir   string
	room  func() (RegistryClaim, error)                                      // nil: nothing is asked
	quota func(ctx context.Context, namespace string) (RegistryQuota, error) // nil: there is none
	now   func() time.Time

	mu sync.Mutex
	of map[string]*balance // of namespaces with a quota
}

type balance struct {
	mu      sync.Mutex
	counted time.Time // zero before the first time
	bytes   int64
}

// leastCost is what the smallest file takes of a disk, and a directory.
const leastCost = 4 << 10

// countAgain is how long a count is believed that refuses something.
const countAgain = time.Minute

func cost(size int64) int64 { return max(size, leastCost) }

// account is what one request may write: as long as there is room on the disk, and the
// namespace has quota left.
type account struct {
	*ledger
	owner string
	quota RegistryQuota
	claim RegistryClaim // nil: nothing is asked
	taken int64         // of the quota, by this request
}

// open begins a request that writes to a repository.
func (l *ledger) open(ctx context.Context, repo string) (_ *account, err error) {
	a := &account{ledger: l, owner: ownerOf(repo)}
	if l.quota != nil {
		if a.quota, err = l.quota(ctx, a.owner); err != nil {
			return nil, err
		}
	}
	if a.quota.Bytes == 0 { // what is written from now on is not counted
		l.mu.Lock()
		delete(l.of, a.owner)
		l.mu.Unlock()
	}
	if l.room != nil {
		if a.claim, err = l.room(); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func (a *account) close() {
	if a.claim != nil {
		a.claim.Close()
	}
}

// take counts bytes, or refuses them.
func (a *account) take(bytes int64) error {
	if bytes <= 0 || a.quota.Bytes == 0 {
		return nil
	}
	b := a.balance(a.owner)
	b.mu.Lock()
	defer b.mu.Unlock()
	now := a.now()
	if over := b.bytes+bytes > a.quota.Bytes; b.counted.IsZero() || over && now.Sub(b.counted) >= countAgain {
		all, err := a.count(a.owner)
		if err != nil {
			return fmt.Errorf("adding up what the namespace %s has: %w", a.owner, err)
		}
		b.bytes, b.counted = all, now
	}
	if b.bytes+bytes > a.quota.Bytes {
		text := fmt.Sprintf("the namespace %s has %d MiB in its repositories and uploads, and its quota is %d MiB: delete blobs that no manifest needs, or ask the operator of the registry for a larger quota", a.owner, b.bytes>>20, a.quota.Bytes>>20)
		if a.quota.Raise != "" {
			text += " (" + a.quota.Raise + ")"
		}
		return refusal{http.StatusForbidden, "DENIED", text}
	}
	b.bytes += bytes
	a.taken += bytes
	return nil
}

// undo gives back what the request has taken.
func (a *account) undo() {
	a.give(a.owner, a.taken)
	a.taken = 0
}

// writer appends to a file that has a size.
func (a *account) writer(to io.Writer, size int64) io.Writer {
	if a.claim != nil {
		to = a.claim.Writer(to)
	}
	return &counting{to, a, size}
}

type counting struct {
	io.Writer
	account *account
	size    int64
}

func (c *counting) Write(p []byte) (int, error) {
	after := c.size + int64(len(p))
	if err := c.account.take(cost(after) - cost(c.size)); err != nil {
		return 0, err
	}
	c.size = after
	return c.Writer.Write(p)
}

// give gives back bytes that a namespace had.
func (l *ledger) give(owner string, bytes int64) {
	l.mu.Lock()
	b := l.of[owner]
	l.mu.Unlock()
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.counted.IsZero() {
		b.bytes = max(0, b.bytes-bytes)
	}
}

func (l *ledger) balance(owner string) *balance {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of[owner] == nil {
		l.of[owner] = &balance{}
	}
	return l.of[owner]
}

// count adds up what a namespace has on the disk. A blob that was mounted in several
// repositories is there once.
func (l *ledger) count(owner string) (bytes int64, err error) {
	linked := map[uint64]bool{}
	for _, root := range []string{"repos", "uploads"} {
		err := filepath.WalkDir(filepath.Join(l.dir, root, owner), func(_ string, e fs.DirEntry, err error) error {
			var info fs.FileInfo
			if err == nil {
				info, err = e.Info()
			}
			switch {
			case errors.Is(err, fs.ErrNotExist): // it was deleted meanwhile
				return nil
			case err != nil:
				return err
			}
			bytes += held(info, linked)
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	return bytes, nil
}

// held is what a file or a directory takes. Of a file that has several names, the names after
// the first take little.
func held(info fs.FileInfo, linked map[uint64]bool) int64 {
	if info.IsDir() {
		return leastCost
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok && s.Nlink > 1 {
		if linked[s.Ino] {
			return leastCost
		}
		linked[s.Ino] = true
	}
	return cost(info.Size())
}

// remove deletes a file of a namespace, and gives back what it took.
func (l *ledger) remove(owner, path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok && s.Nlink > 1 {
		l.give(owner, leastCost)
		return nil
	}
	l.give(owner, cost(info.Size()))
	return nil
}

// directories is what the directories take that are not there yet, above a file that will be.
func directories(path string) (bytes int64, err error) {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		switch _, err := os.Lstat(dir); {
		case err == nil:
			return bytes, nil
		case !errors.Is(err, fs.ErrNotExist):
			return 0, err
		}
		bytes += leastCost
	}
}

// sizeAt is the size of a file, and whether there is one.
func sizeAt(path string) (size int64, is bool, err error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	return info.Size(), true, nil
}

// publish moves a file to its place, and reports whether there was one.
func (l *ledger) publish(ctx context.Context, repo string, f *os.File, target string) (there bool, err error) {
	a, err := l.open(ctx, repo)
	if err != nil {
		return false, err
	}
	defer a.close()
	more, err := directories(target)
	if err == nil {
		_, there, err = sizeAt(target)
	}
	if err == nil {
		err = a.take(more)
	}
	if err == nil {
		err = publish(f, target)
	}
	if err != nil {
		a.undo()
	}
	return there, err
}
