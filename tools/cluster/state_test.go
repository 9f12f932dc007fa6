package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// While another command holds the lock of a node that has ended, its process id may be
// that of a foreign process: it gets no signal, and no command enters its network.
func TestAForeignProcessIsLeftAlone(t *testing.T) {
	s := state(t.TempDir())
	lock, err := s.lock()
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	foreign := exec.Command("cat")
	in, err := foreign.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := foreign.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := foreign.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(lock, "%d 0\n", foreign.Process.Pid); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // it tries once
	if _, err := stop(ctx, s); err == nil {
		t.Error("stop() took a lock that is held")
	}
	if err := enter(s, []string{"false"}); err == nil || !strings.Contains(err.Error(), "just stopping") {
		t.Errorf("enter() = %v", err)
	}
	if _, err := fmt.Fprintln(in, "alive"); err != nil {
		t.Error(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "alive\n" {
		t.Errorf("the foreign process says %q, %v", line, err)
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	if err := foreign.Wait(); err != nil {
		t.Errorf("the foreign process: %v", err)
	}
}

// A node is known by the lock that it has open.
func TestANodeIsKnownByItsLock(t *testing.T) {
	s := state(t.TempDir())
	lock, err := s.lock()
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	node := exec.Command("cat")
	node.ExtraFiles = []*os.File{lock}
	in, err := node.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	if !s.holds(node.Process.Pid) {
		t.Error("holds() = false for a process that has the lock open")
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	if err := node.Wait(); err != nil {
		t.Error(err)
	}
}
