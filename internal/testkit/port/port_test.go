package port

import (
	"errors"
	"net"
	"strconv"
	"syscall"
	"testing"
)

// A reserved port refuses connections until the program listens that was told of it, which
// may be more than once.
func TestReserve(t *testing.T) {
	const host = "127.0.0.77"
	address := net.JoinHostPort(host, strconv.Itoa(Reserve(t, host)))
	refused := func() {
		t.Helper()
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dialling a reserved port: %v, want it refused", err)
		}
	}
	for range 3 {
		refused()
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if served, err := l.Accept(); err != nil {
			t.Error(err)
		} else {
			served.Close() // first, so that this side waits for what is under way
		}
		c.Close()
		if again, err := net.Listen("tcp", address); err == nil {
			again.Close()
			t.Error("two listen at one port")
		}
		l.Close()
	}
	refused()
}

// A listener that asks for any port gets no reserved one.
func TestNobodyElseGetsIt(t *testing.T) {
	const host = "127.0.0.78"
	reserved := map[int]bool{}
	for range 50 {
		reserved[Reserve(t, host)] = true
	}
	if len(reserved) != 50 {
		t.Errorf("50 reservations are of %d ports", len(reserved))
	}
	// Of some 14000 ports: were they not reserved, some ten of these would be.
	for range 3_000 {
		l, err := net.Listen("tcp", host+":0")
		if err != nil {
			t.Fatal(err)
		}
		if p := l.Addr().(*net.TCPAddr).Port; reserved[p] {
			t.Errorf("a listener at any port got %d", p)
		}
		l.Close()
	}
}

func TestHoldOnlyHere(t *testing.T) {
	for _, address := range []string{"", "localhost", "::1", "192.0.2.1"} {
		if h, err := Hold(address); err == nil {
			t.Errorf("port %d of %q is held", h.Port, address)
		}
	}
}
