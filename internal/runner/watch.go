package runner

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// watch tells when a file was written to. It costs nothing meanwhile, except
// where the kernel has no watches left and the file is polled.
type watch struct {
	events *os.File // nil: by the clock
	stop   chan struct{}
	buf    [4096]byte
}

const watchPause = 50 * time.Millisecond

func newWatch(path string) *watch {
	w := &watch{stop: make(chan struct{})}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return w
	}
	f := os.NewFile(uintptr(fd), "watch")
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_MODIFY); err != nil {
		f.Close()
		return w
	}
	w.events = f
	return w
}

// wait returns when the file may have been written to since the last time;
// false once close was called.
func (w *watch) wait() bool {
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

func (w *watch) close() {
	close(w.stop)
	if w.events != nil {
		_ = w.events.Close()
	}
}
