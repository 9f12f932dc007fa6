package runner_test

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/stack"
)

// A health run is a run like any other: a later controller finds it, and one whose
// supervisor is killed ends with its sandbox.
func TestHealthIsFoundAgain(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := t.TempDir()
	first := open(t, dir)
	s := runnertest.NewStack(t, first, engine.Engine{}, "")
	s.Job.Managed, s.Job.Files, s.Job.Sandbox.Network = false, nil, "host"
	s.Job.Checks = []runner.Check{{Name: "web", Kind: stack.HTTPCheck, Target: "http://" + l.Addr().String(), Shown: "it", Timeout: time.Minute}}
	id := s.Start(stack.HealthRun)
	asked := accept(t, l) // and never answers
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := open(t, dir)
	s.Use(second)
	r := s.Current()
	if r == nil || r.ID != id || r.Phase != runner.CheckingHealth || r.Kind != stack.HealthRun {
		t.Fatalf("Current() after a restart = %+v, want the checks at work", r)
	}
	if err := syscall.Kill(r.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if d := s.Finish(id); d.Outcome != stack.Killed {
		t.Errorf("checks whose supervisor was killed ended %s: %s", d.Outcome, d.Message)
	}
	if err := asked.SetReadDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	for buf := make([]byte, 1<<10); err == nil; {
		_, err = asked.Read(buf) // what was asked, then the end
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the checker outlives its supervisor")
	}
}

func accept(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatalf("nobody was asked: %v", err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
