package mirror

import (
	"fmt"
	"sync"
	"syscall"

	"github.com/terrier-iac/terrier/internal/fault"
)

// ReasonFull is the reason of the fault of a download for which there is no room.
const ReasonFull = "StorageFull"

// room leaves a part of the disk to others: records and states may be on it.
type room struct {
	free func() (free, size int64, err error) // of the disk, in bytes

	mu    sync.Mutex
	taken int64 // by downloads that go on
}

// The part of the disk that downloads leave free: one of so many, and no more than that.
const (
	part     = 20
	mostLeft = 2 << 30
)

// reserve takes room for a download, until over is called. A download is on the disk
// twice for a moment: while it is verified, and where it is stored.
func (r *room) reserve(bytes int64) (over func(), err error) {
	free, size, err := r.free()
	if err != nil {
		return nil, fmt.Errorf("asking for the free space of the disk: %w", err)
	}
	bytes *= 2
	left := min(size/part, mostLeft)
	r.mu.Lock()
	defer r.mu.Unlock()
	if free-r.taken-bytes < left {
		return nil, fault.New(fault.Later, ReasonFull, fmt.Errorf("the disk of the mirror has %d MiB free, and a download of %d MiB would leave less than the %d MiB that the mirror does not use: make room, or set deleteUnusedAfter in the settings of the mirror", free>>20, bytes>>21, left>>20))
	}
	r.taken += bytes
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.taken -= bytes
	}, nil
}

// freeIn returns the free space of the disk that a directory is on, and its size.
func freeIn(dir string) func() (free, size int64, err error) {
	return func() (int64, int64, error) {
		var fs syscall.Statfs_t
		if err := syscall.Statfs(dir, &fs); err != nil {
			return 0, 0, err
		}
		return int64(fs.Bavail) * fs.Bsize, int64(fs.Blocks) * fs.Bsize, nil
	}
}
