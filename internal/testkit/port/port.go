// Package port reserves ports of this machine for programs that tests start, and for
// addresses at which nothing is to listen. A port that was only found free may be taken
// until it is used: of a hundred tests that start servers, one now and then meets another's.
//
// It refuses nothing to the program that is told of the port, as long as the program sets
// SO_REUSEADDR, which servers do. Until it listens, connections are refused. Start reading at
// Reserve.
package port

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"testing"
)

// Reserve reserves a port of an IPv4 address of this machine until the test has ended.
// The cleanups that the test has made by then run with the port still reserved.
func Reserve(tb testing.TB, address string) int {
	tb.Helper()
	held, err := Hold(address)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := held.Release(); err != nil {
			tb.Error(err)
		}
	})
	return held.Port
}

// Address is Reserve on loopback, as host:port.
func Address(tb testing.TB) string {
	tb.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(Reserve(tb, "127.0.0.1")))
}

// Held is a port that this process has reserved.
type Held struct {
	Port   int
	socket int
}

// Hold reserves a port of an IPv4 address of this machine. Release gives it back.
//
// The socket is bound, and never listens. The kernel then gives the port to no socket that
// asks for any (inet_csk_find_open_port of Linux), and lets a socket that may reuse addresses
// bind it by its number.
func Hold(address string) (*Held, error) {
	ip, err := netip.ParseAddr(address)
	if err != nil || !ip.Is4() {
		return nil, errors.Join(fmt.Errorf("%q is not an IPv4 address", address), err)
	}
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("making a socket: %w", err)
	}
	h := &Held{socket: socket}
	err = syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	if err == nil {
		err = syscall.Bind(socket, &syscall.SockaddrInet4{Addr: ip.As4()})
	}
	if err == nil {
		var name syscall.Sockaddr
		if name, err = syscall.Getsockname(socket); err == nil {
			h.Port = name.(*syscall.SockaddrInet4).Port
			return h, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("reserving a port of %s: %w", address, err), h.Release())
}

// Release gives the port back. It is called once.
func (h *Held) Release() error {
	if err := syscall.Close(h.socket); err != nil {
		return fmt.Errorf("giving port %d back: %w", h.Port, err)
	}
	return nil
}
