package testkit

import (
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
)

// Balancer is an address in front of several servers, as a Service of a cluster is. Each
// connection goes to the next server that takes it.
type Balancer struct {
	Port int // on 127.0.0.1, and of each server on its own address

	mu      sync.Mutex
	servers []string // addresses without a port
	next    int
}

// Balance starts a balancer on 127.0.0.1, with servers on other addresses of loopback.
func Balance(tb testing.TB, servers ...string) *Balancer {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	b := &Balancer{Port: l.Addr().(*net.TCPAddr).Port, servers: servers}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // the test has ended
			}
			go b.carry(c)
		}
	})
	tb.Cleanup(func() {
		if err := l.Close(); err != nil {
			tb.Error(err)
		}
		work.Wait()
	})
	return b
}

// carry carries one connection to a server and back, until both sides have ended.
func (b *Balancer) carry(c net.Conn) {
	defer c.Close()
	for range b.servers {
		b.mu.Lock()
		to := b.servers[b.next%len(b.servers)]
		b.next++
		b.mu.Unlock()
		s, err := net.Dial("tcp", net.JoinHostPort(to, strconv.Itoa(b.Port)))
		if err != nil {
			continue // it is not running
		}
		defer s.Close()
		var both sync.WaitGroup
		both.Go(func() { _, _ = io.Copy(s, c); s.Close() })
		both.Go(func() { _, _ = io.Copy(c, s); c.Close() })
		both.Wait()
		return
	}
}
