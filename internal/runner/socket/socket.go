// Package socket is where programs in the sandbox of a run reach its supervisor: a socket in a
// directory that both see.
//
// It knows nothing of what is asked, and takes no more connections at once than its caller says.
// Start reading at Listen.
package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Listener takes the connections of programs.
type Listener struct {
	socket  *net.UnixListener
	most    int
	serving sync.WaitGroup

	mu    sync.Mutex
	conns map[*net.UnixConn]bool // nil once it is closed
}

// Listen listens at a path, in place of the Listener before, for so many connections at once. The
// caller gives the socket to the user of the programs.
func Listen(path string, most int) (*Listener, error) {
	short, done, err := shortened(path)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := os.Remove(short); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: short})
	if err != nil {
		return nil, err
	}
	socket.SetUnlinkOnClose(false) // it goes with its directory
	return &Listener{socket: socket, most: most, conns: map[*net.UnixConn]bool{}}, nil
}

// Serve has each connection answered until Close. One that is too many, or comes too late, is
// refused. Both are closed afterwards.
func (l *Listener) Serve(answer, refuse func(*net.UnixConn)) {
	l.serving.Go(func() {
		for {
			conn, err := l.socket.AcceptUnix()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue
			}
			if !l.add(conn) {
				refuse(conn)
				_ = conn.Close()
				continue
			}
			l.serving.Go(func() {
				defer l.remove(conn)
				answer(conn)
			})
		}
	})
}

// Close ends every connection and returns when none is being answered.
func (l *Listener) Close() {
	l.mu.Lock()
	for conn := range l.conns {
		_ = conn.Close()
	}
	l.conns = nil
	l.mu.Unlock()
	_ = l.socket.Close()
	l.serving.Wait()
}

func (l *Listener) add(conn *net.UnixConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil || len(l.conns) >= l.most {
		return false
	}
	l.conns[conn] = true
	return true
}

func (l *Listener) remove(conn *net.UnixConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, conn)
	_ = conn.Close()
}

// Dial connects a program to the Listener at a path.
func Dial(path string) (*net.UnixConn, error) {
	short, done, err := shortened(path)
	if err != nil {
		return nil, fmt.Errorf("there is no run to ask: %w", err)
	}
	defer done()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: short})
	if err != nil {
		return nil, fmt.Errorf("the supervisor of the run does not listen any more: %w", err)
	}
	return conn, nil
}

// shortened is a name of a socket that is as short as an address must be.
func shortened(path string) (string, func(), error) {
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir, filepath.Base(path)), sync.OnceFunc(func() { _ = unix.Close(dir) }), nil
}
