package process

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/sys/unix"
)

// The conversation between whoever starts a box and its launcher runs over a
// pair of connected sockets, one message at a time:
//
//	starter                      launcher
//	orders  ───────────────────▶            builds and enters the box
//	        ◀───────────────────  ready     carries the listener
//	proceed ───────────────────▶            becomes the program; carries what
//	                                     the listener adds to the environment
//	        ◀───────────────────  end of stream: the program runs
//
// Anything else the launcher says is failed, with one sentence. The launcher
// sets its parent-death signal before ready, and a starter that was killed can
// send no proceed after that, so no program runs whose starter died unnoticed.
// Below Full the launcher is a keeper, which says started and, later, ended.
//
// The programs of a room are started over a second pair of sockets, which the
// warden holds, as often as wanted and with several of them alive:
//
//	starter                      warden
//	start   ───────────────────▶            carries the standard streams
//	        ◀───────────────────  started   carries a handle on the process; or failed
//	        ◀───────────────────  ended     of each program, in any order
type message byte

const (
	orderly message = 'o' // orders, as JSON
	ready   message = 'r' // the launcher is confined
	proceed message = 'p'
	start   message = 'g' // one more program, as JSON
	failed  message = 'f' // a sentence
	started message = 's' // the program's process id, as JSON
	ended   message = 'e' // the program's wait status, as JSON
)

// maxMessage bounds what either side reads: orders hold a whole environment.
const maxMessage = 16 << 20

// line is one end of the conversation.
type line int

// newLine makes both ends. Neither survives an exec unless it is passed on.
func newLine() (ours, theirs line, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, 0, fmt.Errorf("making a socket pair: %w", err)
	}
	return line(pair[0]), line(pair[1]), nil
}

func (l line) close() { _ = unix.Close(int(l)) }

// hangUp tells the other side that nothing more will be said, while its last
// words can still be read.
func (l line) hangUp() error { return unix.Shutdown(int(l), unix.SHUT_WR) }

// say sends a message; descriptors that are not negative travel with it.
func (l line) say(m message, body []byte, fds ...int) error {
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

// sayJSON sends a value.
func (l line) sayJSON(m message, value any, fds ...int) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return l.say(m, body, fds...)
}

// hear reads the next message, and the descriptor that came with it or -1. The
// end of the stream between messages is io.EOF.
func (l line) hear() (m message, body []byte, fd int, err error) {
	m, body, fds, err := l.hearAll()
	if len(fds) != 1 {
		closeAll(fds)
		return m, body, -1, err
	}
	return m, body, fds[0], err
}

// hearAll is hear where several descriptors may come.
func (l line) hearAll() (m message, body []byte, fds []int, err error) {
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
func (l line) fill(p []byte) (fds []int, err error) {
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
