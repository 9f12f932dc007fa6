package socket

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A program asks from a directory whose name is longer than an address may be, no more programs
// than agreed are answered at once, and the end of the Listener ends them all.
func TestProgramsReachTheirSupervisor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "ask")
	const most = 2
	began := make(chan struct{}, most)
	serve := func() *Listener {
		l, err := Listen(path, most)
		if err != nil {
			t.Fatal(err)
		}
		l.Serve(func(c *net.UnixConn) {
			began <- struct{}{}
			_, _ = io.Copy(c, c) // until the caller has said everything, or either end is gone
		}, func(c *net.UnixConn) { _, _ = c.Write([]byte("too many")) })
		return l
	}
	l := serve()
	ask := func() *net.UnixConn {
		c, err := Dial(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	first, second := ask(), ask()
	<-began
	<-began
	if said, err := io.ReadAll(ask()); err != nil || string(said) != "too many" {
		t.Errorf("the third program is told %q, %v, want that there are too many", said, err)
	}
	if _, err := first.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := first.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if said, err := io.ReadAll(first); err != nil || string(said) != "hello" {
		t.Errorf("the first program is answered %q, %v", said, err)
	}
	l.Close()
	if said, err := io.ReadAll(second); len(said) > 0 {
		t.Errorf("a program that waited is answered %q, %v after the end", said, err)
	}
	if c, err := Dial(path); err == nil {
		t.Errorf("%v answers after the end", c.RemoteAddr())
	}
	serve().Close() // in its place
	if _, err := Dial(filepath.Join(dir, "gone", "ask")); err == nil || !strings.Contains(err.Error(), "no run to ask") {
		t.Errorf("Dial() = %v where there is no run", err)
	}
}
