package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A program that is frozen writes nothing, so that what it writes to can be cut.
func TestFreeze(t *testing.T) {
	chatter := func(b *Config) Command {
		return Command{Path: "/bin/sh", Args: []string{"-c", "while :; do echo chatter; done"}, Sandbox: b}
	}
	start := func(t *testing.T, c Command) *Process {
		p, err := Start(soon(t), c)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for name, begin := range map[string]func(*testing.T, *os.File) *Process{
		"basic": func(t *testing.T, to *os.File) *Process {
			c := chatter(sandboxed(t, at(Basic)))
			c.Stdout = to
			return start(t, c)
		},
		"kernel": func(t *testing.T, to *os.File) *Process {
			c := chatter(sandboxed(t, at(Kernel)))
			c.Stdout = to
			return start(t, c)
		},
		"full": func(t *testing.T, to *os.File) *Process {
			c := chatter(sandboxed(t))
			c.Stdout = to
			return start(t, c)
		},
		"in a session": func(t *testing.T, to *os.File) *Process {
			c := chatter(nil)
			c.Stdout = to
			return admitted(t, openSession(t, sandboxed(t)), c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			to, err := os.OpenFile(filepath.Join(t.TempDir(), "out"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			defer to.Close()
			p := begin(t, to)
			size := func() int64 {
				info, err := to.Stat()
				if err != nil {
					t.Fatal(err)
				}
				return info.Size()
			}
			grows := func() {
				t.Helper()
				for deadline := time.Now().Add(patience); size() == 0; {
					if time.Now().After(deadline) {
						t.Fatal("the program writes nothing")
					}
				}
			}
			freezes := func() {
				t.Helper()
				for deadline := time.Now().Add(patience); ; {
					err := p.Freeze()
					if err == nil {
						return
					}
					// On a machine that is busy a program may need longer than freezeTime to stop.
					if !strings.Contains(err.Error(), "does not stop") || time.Now().After(deadline) {
						t.Fatal(err)
					}
				}
			}
			for range 3 {
				grows()
				freezes()
				if err := to.Truncate(0); err != nil {
					t.Fatal(err)
				}
				for range 1000 {
					if n := size(); n != 0 {
						t.Fatalf("a frozen program wrote %d bytes", n)
					}
				}
				if err := p.Thaw(); err != nil {
					t.Fatal(err)
				}
			}
			grows()
			freezes()
			if err := p.Kill(); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Wait(); err != nil {
				t.Fatal(err)
			}
			if err := p.Freeze(); err == nil {
				t.Error("a program that has ended was frozen")
			}
		})
	}
}
