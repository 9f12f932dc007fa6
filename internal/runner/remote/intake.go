package remote

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terrier-iac/terrier/internal/runner"
)

// Bounds of what all agents together may hold here.
const (
	readers   = 16               // bodies in memory, of at most wire.MaxReport each
	askLimit  = 30 * time.Second // for a body in memory to arrive; an agent waits as long for the answer
	moveLimit = 10 * time.Minute // for a file to arrive
	maxFloor  = 256 << 20        // bytes of the disk that stay free for states
	partFloor = 20               // a smaller disk keeps one part of so many free
)

// intake bounds what is being received.
type intake struct {
	memory chan struct{} // a slot for each body in memory
	disk   *incoming
}

// incoming is what is being written to the disk.
type incoming struct {
	mu    sync.Mutex
	bytes int64
}

func newIntake() intake { return intake{make(chan struct{}, readers), &incoming{}} }

// isState reports whether a file is a state, which must not be lost.
func isState(name string) bool { return name == runner.FileState || name == runner.FileRescue }

// reserve takes space for a file, until over is called. A state may take all there is;
// what else arrives leaves space for states.
func (in intake) reserve(dir, name string, size int64) (over func(), err error) {
	if isState(name) {
		return func() {}, nil
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return nil, fmt.Errorf("asking for the free space of %s: %w", dir, err)
	}
	block := int64(fs.Bsize)
	floor := min(int64(fs.Blocks)*block/partFloor, maxFloor)
	in.disk.mu.Lock()
	defer in.disk.mu.Unlock()
	if int64(fs.Bavail)*block-in.disk.bytes-size < floor {
		return nil, fmt.Errorf("the last %d MiB of the disk are kept for states: %w", floor>>20, syscall.ENOSPC)
	}
	in.disk.bytes += size
	return func() {
		in.disk.mu.Lock()
		defer in.disk.mu.Unlock()
		in.disk.bytes -= size
	}, nil
}

// fits refuses a file with which the run would leave too much.
func (r *server) fits(run *placedRun, name string, size int64) error {
	if isState(name) {
		return nil
	}
	for _, other := range runner.Files() {
		if other == name || growing(other) || isState(other) {
			continue
		}
		info, err := os.Stat(filepath.Join(r.dir(run), other))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		size += info.Size()
	}
	if size > maxRun {
		return refused(http.StatusRequestEntityTooLarge, "the files of the run would have more than %d bytes", int64(maxRun))
	}
	return nil
}

// readBy bounds until when a body has to be here.
func readBy(w http.ResponseWriter, end time.Time) error {
	err := http.NewResponseController(w).SetReadDeadline(end)
	if errors.Is(err, http.ErrNotSupported) {
		return nil // no connection of a server
	}
	return err
}

// readBody reads a body into memory, once there is a slot for it. The slot is free again,
// and the run may send its next body, after over.
func (r *server) readBody(w http.ResponseWriter, req *http.Request, run *placedRun, ended bool) (data []byte, over func(), err error) {
	if _, err := r.receiving(run, ended); err != nil {
		return nil, nil, err
	}
	wait := time.NewTimer(askLimit)
	defer wait.Stop()
	select {
	case r.intake.memory <- struct{}{}:
	case <-wait.C:
		r.received(run)
		return nil, nil, refused(http.StatusServiceUnavailable, "too many agents are served at once")
	}
	over = func() {
		<-r.intake.memory
		r.received(run)
	}
	if err := readBy(w, time.Now().Add(askLimit)); err != nil {
		over()
		return nil, nil, err
	}
	data, err = io.ReadAll(req.Body)
	if err != nil {
		over()
		return nil, nil, body(err)
	}
	if err := readBy(w, time.Time{}); err != nil {
		over()
		return nil, nil, err
	}
	return data, over, nil
}

// receiving notes that a body is on its way: until it is here, the death of the place
// does not end the run. An agent sends one at a time. With ended, it may be about a run
// that has ended.
func (r *server) receiving(run *placedRun, ended bool) (record, error) {
	defer r.Lock(run.key)()
	if r.of(run.key, run.id) != run {
		return record{}, r.unknownNow(run)
	}
	rec, rep, err := r.read(run)
	switch {
	case err != nil:
		return rec, err
	case rep.Phase == runner.Done && !ended:
		return rec, errUnknown()
	case run.bodies > 0:
		return rec, refused(http.StatusServiceUnavailable, "another body of the run is being received")
	}
	run.bodies++
	return rec, nil
}

func (r *server) received(run *placedRun) {
	defer r.Lock(run.key)()
	run.bodies--
}
