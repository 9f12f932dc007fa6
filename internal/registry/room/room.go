// Package room bounds what a registry writes to a disk. All that one process writes at the
// same time takes room from one Room: uploads, downloads, and archives that are converted.
package room

import (
	"fmt"
	"io"
	"sync"
	"syscall"

	"github.com/terrier-iac/terrier/internal/fault"
)

// ReasonFull is the reason of the fault of content for which there is no room.
const ReasonFull = "StorageFull"

// Room leaves a part of the disk to others: records and states may be on it.
type Room struct {
	free func() (free, size int64, err error) // of the disk, in bytes

	mu    sync.Mutex
	taken int64 // by what is being written
}

// The part of the disk that stays free: one of so many, and no more than that.
const (
	part     = 20
	mostLeft = 2 << 30
)

// step is how much room is taken at once for content of which the size is not known.
const step = 1 << 20

// New returns the room of a disk.
func New(free func() (free, size int64, err error)) *Room { return &Room{free: free} }

// Of returns the room of the disk that a directory is on.
func Of(dir string) *Room {
	return New(func() (int64, int64, error) {
		var fs syscall.Statfs_t
		if err := syscall.Statfs(dir, &fs); err != nil {
			return 0, 0, err
		}
		return int64(fs.Bavail) * fs.Bsize, int64(fs.Blocks) * fs.Bsize, nil
	})
}

// Free is how many bytes content may still take of the disk, without the part that stays
// free.
func (r *Room) Free() (int64, error) {
	free, size, err := r.free()
	if err != nil {
		return 0, fmt.Errorf("asking for the free space of the disk: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, free-r.taken-min(size/part, mostLeft)), nil
}

// reserve takes room for content. It is on the disk twice for a moment: while it is
// verified, and where it is stored.
func (r *Room) reserve(bytes int64) error {
	free, size, err := r.free()
	if err != nil {
		return fmt.Errorf("asking for the free space of the disk: %w", err)
	}
	left := min(size/part, mostLeft)
	r.mu.Lock()
	defer r.mu.Unlock()
	if free-r.taken-2*bytes < left {
		return fault.New(fault.Later, ReasonFull, fmt.Errorf("the disk of the registry has %d MiB free, and %d MiB more would leave less than the %d MiB that the registry does not use: make room, or set deleteUnusedAfter in the settings of the mirror", free>>20, bytes>>20, left>>20))
	}
	r.taken += 2 * bytes
	return nil
}

// Claim is the room of one content, until it is closed. One goroutine uses it.
type Claim struct {
	room           *Room
	reserved, used int64
}

// Claim takes room for content of a size; zero or less if the size is not known. What is
// larger takes more room as it arrives.
func (r *Room) Claim(size int64) (*Claim, error) {
	c := &Claim{room: r, reserved: max(0, size)}
	return c, r.reserve(c.reserved)
}

// Close gives the room back.
func (c *Claim) Close() {
	c.room.mu.Lock()
	defer c.room.mu.Unlock()
	c.room.taken -= 2 * c.reserved
	c.reserved = 0
}

// Writer writes to w as long as there is room.
func (c *Claim) Writer(w io.Writer) io.Writer { return writer{w, c} }

type writer struct {
	io.Writer
	claim *Claim
}

func (w writer) Write(p []byte) (int, error) {
	c := w.claim
	c.used += int64(len(p))
	if more := c.used - c.reserved; more > 0 {
		more = max(more, step)
		if err := c.room.reserve(more); err != nil {
			return 0, err
		}
		c.reserved += more
	}
	return w.Writer.Write(p)
}
