package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/terrier-iac/terrier/internal/fault"
)

const (
	fileReserve = "reserve" // in RUN
	leastSpace  = 4 << 20
)

// reserve is room on the disk that a run which writes holds from its start, so
// that on a disk that has filled up meanwhile it can still write down what it
// did: its state, its events and its report. A nil reserve holds nothing.
type reserve struct {
	path string
	once sync.Once
}

// newReserve takes the room for a state of this size, and what else is written
// beside it. A run that cannot have it has not begun anything yet, and ends.
func newReserve(dir string, state int) (*reserve, error) {
	path := filepath.Join(dir, fileReserve)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// A version that replaces another stands beside it for a moment.
	err = unix.Fallocate(int(f.Fd()), 0, 0, leastSpace+4*int64(state))
	switch {
	case errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS):
		return nil, os.Remove(path)
	case err != nil:
		return nil, errors.Join(fault.New(fault.Broken, NoSpace, fmt.Errorf("setting room for the state aside: %w", err)), os.Remove(path))
	}
	return &reserve{path: path}, nil
}

// write does what write does, and does it again in the room that is held if
// there is no other.
func (r *reserve) write(write func() error) error {
	err := write()
	if r == nil || !spaceless(err) {
		return err
	}
	r.free()
	return write()
}

// free gives the room back.
func (r *reserve) free() {
	if r != nil {
		r.once.Do(func() { _ = os.Remove(r.path) })
	}
}
