package disk

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Watch tells when a file was written to, or a file of a directory written, made or
// renamed. It costs nothing meanwhile, except where the kernel has no watches left and
// the file is polled.
type Watch struct {
	events *os.File // nil: by the clock
	stop   chan struct{}
	buf    [4096]byte
}

const watchPause = 50 * time.Millisecond

// NewWatch begins to watch a file or a directory.
func NewWatch(path string) *Watch {
	w := &Watch{stop: make(chan struct{})}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return w
	}
	f := os.NewFile(uintptr(fd), "watch")
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_MODIFY|unix.IN_MOVED_TO); err != nil {
		f.Close()
		return w
	}
	w.events = f
	return w
}

// Wait returns when the file may have been written to since the last time;
// false once Close was called.
func (w *Watch) Wait() bool {
	if w.events != nil {
		_, err := w.events.Read(w.buf[:])
		return err == nil
	}
	select {
	case <-w.stop:
		return false
	case <-time.After(watchPause):
		return true
	}
}

// Close ends every Wait.
func (w *Watch) Close() {
	close(w.stop)
	if w.events != nil {
		_ = w.events.Close()
	}
}
