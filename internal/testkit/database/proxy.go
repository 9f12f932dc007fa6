package database

import (
	"io"
	"net"
	"sync"
	"testing"
)

// Proxy stands before a server and cuts connections where it is told.
type Proxy struct {
	Host string
	Port int

	listener net.Listener
	upstream string

	mu      sync.Mutex
	after   int64 // bytes of an answer; negative for never
	closed  bool
	open    map[net.Conn]bool
	carried int64
	copying sync.WaitGroup
}

// NewProxy stands before the server for one test.
func NewProxy(tb testing.TB, s *Server) *Proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{Host: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port, listener: l, upstream: s.Address(), after: -1, open: map[net.Conn]bool{}}
	p.copying.Add(1)
	go p.accept()
	tb.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		p.HangUp()
		p.copying.Wait()
	})
	return p
}

// CutAfter ends every connection after so many bytes from the server, counted
// for each connection; negative is never.
func (p *Proxy) CutAfter(bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.after = bytes
}

// HangUp ends all connections.
func (p *Proxy) HangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		c.Close()
	}
}

// Carried is how many bytes of answers there were in all.
func (p *Proxy) Carried() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.carried
}

func (p *Proxy) accept() {
	defer p.copying.Done()
	for {
		down, err := p.listener.Accept()
		if err != nil {
			return
		}
		up, err := net.Dial("tcp", p.upstream)
		if err != nil {
			down.Close()
			continue
		}
		if !p.hold(down, up) {
			return
		}
		p.copying.Add(2)
		go p.carry(down, up, up, down, nil)
		go p.carry(up, down, up, down, p.allowance)
	}
}

// hold remembers a pair of connections, unless it is too late.
func (p *Proxy) hold(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.closed {
			c.Close()
			continue
		}
		p.open[c] = true
	}
	return !p.closed
}

// allowance is how much of n bytes still passes after so many before.
func (p *Proxy) allowance(before int64, n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.after >= 0 {
		n = int(max(0, min(int64(n), p.after-before)))
	}
	p.carried += int64(n)
	return n
}

// carry copies until either end goes, or no more is allowed; then both go.
func (p *Proxy) carry(from io.Reader, to io.Writer, up, down net.Conn, allowance func(int64, int) int) {
	defer p.copying.Done()
	defer func() {
		up.Close()
		down.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.open, up)
		delete(p.open, down)
	}()
	buffer := make([]byte, 4096)
	for total := int64(0); ; {
		n, err := from.Read(buffer)
		pass := n
		if allowance != nil {
			pass = allowance(total, n)
		}
		total += int64(pass)
		if _, failed := to.Write(buffer[:pass]); failed != nil || err != nil || pass < n {
			return
		}
	}
}
