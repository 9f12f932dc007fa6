package sandbox

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// The starter of a sandbox and its launcher talk over a pair of connected
// sockets, one message at a time:
//
//	starter                      launcher
//	spec    ───────────────────▶            builds and enters the sandbox
//	        ◀───────────────────  ready     carries the listener
//	proceed ───────────────────▶            becomes the program; carries what
//	                                     the listener adds to the environment
//	        ◀───────────────────  end of stream: the program runs
//
// Anything else that the launcher sends is failed, with one sentence. The
// launcher sets its parent-death signal before ready, and a starter that was
// killed can send no proceed after that, so no program runs whose starter died
// unnoticed. Below Full the launcher is a reaper, which sends started and,
// later, ended.
//
// The programs of a session are started over a second pair of sockets, which the
// init process holds. Several programs may run at the same time:
//
//	starter                      init process
//	start   ───────────────────▶            carries the standard streams
//	        ◀───────────────────  started   carries a handle on the process; or failed
//	        ◀───────────────────  ended     of each program, in any order
type message byte

const (
	specified message = 'o' // spec, as JSON
	ready     message = 'r' // the launcher is confined
	proceed   message = 'p'
	start     message = 'g' // one more program, as JSON
	failed    message = 'f' // a sentence
	started   message = 's' // the program's process id, as JSON
	ended     message = 'e' // the program's wait status, as JSON
)

// maxMessage bounds what either side reads: spec hold a whole environment.
const maxMessage = 16 << 20

// line is one end of the conversation.
type conn int

// newLine makes both ends. Neither survives an exec unless it is passed on.
func newConn() (ours, theirs conn, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, 0, fmt.Errorf("making a socket pair: %w", err)
	}
	return conn(pair[0]), conn(pair[1]), nil
}

func (l conn) close() { _ = unix.Close(int(l)) }

// sendWithin bounds how long the other side may leave a message unread that does not fit into
// the socket.
func (l conn) sendWithin(limit time.Duration) error {
	t := unix.NsecToTimeval(limit.Nanoseconds())
	if err := unix.SetsockoptTimeval(int(l), unix.SOL_SOCKET, unix.SO_SNDTIMEO, &t); err != nil {
		return fmt.Errorf("bounding the time of a message: %w", err)
	}
	return nil
}

// closeWrite tells the other side that no more messages follow. Messages of the
// other side can still be read.
func (l conn) closeWrite() error { return unix.Shutdown(int(l), unix.SHUT_WR) }

// send sends a message; descriptors that are not negative travel with it.
func (l conn) send(m message, body []byte, fds ...int) error {
	var rights []byte
	if fds = slices.DeleteFunc(fds, func(fd int) bool { return fd < 0 }); len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	frame := make([]byte, 5, 5+len(body))
	frame[0] = byte(m)
	binary.LittleEndian.PutUint32(frame[1:], uint32(len(body)))
	frame = append(frame, body...)
	for len(frame) > 0 {
		n, err := unix.SendmsgN(int(l), frame, rights, nil, unix.MSG_NOSIGNAL)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		frame, rights = frame[n:], nil
	}
	return nil
}

func (l conn) sendJSON(m message, value any, fds ...int) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return l.send(m, body, fds...)
}

// receive reads the next message, and the descriptor that came with it or -1.
// The end of the stream between messages is io.EOF.
func (l conn) receive() (m message, body []byte, fd int, err error) {
	m, body, fds, err := l.receiveAll()
	if len(fds) != 1 {
		closeAll(fds)
		return m, body, -1, err
	}
	return m, body, fds[0], err
}

// receiveAll is receive where several descriptors may come.
func (l conn) receiveAll() (m message, body []byte, fds []int, err error) {
	head := make([]byte, 5)
	fds, err = l.fill(head)
	if err != nil {
		closeAll(fds)
		return 0, nil, nil, err
	}
	size := binary.LittleEndian.Uint32(head[1:])
	if size > maxMessage {
		return 0, nil, fds, fmt.Errorf("a message of %d bytes", size)
	}
	body = make([]byte, size)
	if _, err := l.fill(body); err != nil {
		return 0, nil, fds, io.ErrUnexpectedEOF
	}
	return message(head[0]), body, fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// maxFDs is how many descriptors come with one message.
const maxFDs = 3

// fill reads exactly len(p) bytes.
func (l conn) fill(p []byte) (fds []int, err error) {
	control := make([]byte, unix.CmsgSpace(4*maxFDs))
	for got := 0; got < len(p); {
		n, cn, _, _, err := unix.Recvmsg(int(l), p[got:], control, unix.MSG_CMSG_CLOEXEC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ECONNRESET), err == nil && n == 0:
			return fds, io.EOF
		case err != nil:
			return fds, err
		}
		if cn > 0 {
			fds = append(fds, received(control[:cn])...)
		}
		got += n
	}
	return fds, nil
}

func received(control []byte) []int {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(messages) != 1 {
		return nil
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil
	}
	return fds
}
