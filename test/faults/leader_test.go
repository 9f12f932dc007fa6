package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/failpoint"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// pair is two controllers of one namespace that share a data directory.
type pair struct {
	*testkit.Cluster
	first, second *testkit.Platform
	world         *testkit.World
	acts          string // of the first
	came          chan error
}

// newPair starts the first controller, and the second once the first acts.
func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{Cluster: testkit.Kube(t, v1alpha2.AddToScheme, sourcev1.AddToScheme), came: make(chan error, 1)}
	p.acts = filepath.Join(t.TempDir(), "acts")
	if err := os.WriteFile(p.acts, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// As long as it is by default: on a busy machine, the holder of a shorter one
	// may lose it before the test takes it.
	lease := []string{"--sources=false", "--lease", p.Namespace}
	p.first = p.controller(t, lease...)
	p.first.Env = []string{failpoint.Env + "=count@" + p.acts}
	if err := p.first.Start(); err != nil {
		t.Fatal(err)
	}
	p.world = p.first.World(t)
	p.second = p.controller(t, append(lease, "--data-dir", p.first.Dir, "--run-writable", filepath.Dir(filepath.Dir(p.world.Path)))...)
	go func() { p.came <- p.second.Start() }()
	return p
}

func (p *pair) controller(t *testing.T, flags ...string) *testkit.Platform {
	t.Helper()
	c, err := testkit.NewPlatform(testkit.PlatformOptions{Dir: filepath.Join(t.TempDir(), "platform"), Cluster: p.Cluster, Cold: true, Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("a controller said:\n%s", c.Log())
		}
		if err := c.Close(); err != nil {
			t.Errorf("ending a controller: %v", err)
		}
	})
	return c
}

// says waits until a controller has said something.
func says(t *testing.T, c *testkit.Platform, text string) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, "it says "+text, func(context.Context) error {
		if log := c.Log(); !strings.Contains(log, text) {
			return errors.New("it said\n" + log)
		}
		return nil
	})
}

// F23: a controller that was held up, and wakes when another one has the Lease,
// neither starts nor finishes anything. What it had asked for before may still be
// on its way when it wakes: no process can look at its clock and write in one.
func TestPausedControllerActsNoMore(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	says(t, p.second, "waiting: the controller")
	p.world.Fault(testkit.WorldFault{Call: "create", Name: "b", Do: "delay", Delay: "1s"})
	r := &round{Cluster: p.Cluster, world: p.world}
	r.ask(t, "stack", calmly+"approvePlan: auto", r.module("x", "a", "b"))
	p.world.Await(t.Context(), func(c testkit.WorldCall) bool { return c.Call == "create" && c.Name == "b" })

	first := p.first.PID()
	signal(t, first, syscall.SIGSTOP)
	says(t, p.second, "waiting for process "+strconv.Itoa(first))
	asked, _ := p.acted(t)
	signal(t, first, syscall.SIGCONT)
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	if code := p.first.Exited(ctx); code <= 0 {
		t.Errorf("the first controller ended with %d, want an error", code)
	}
	if _, did := p.acted(t); did > asked {
		t.Errorf("the first controller did %d things, and had asked for %d when it was stopped", did, asked)
	}
	if log := p.first.Log(); !strings.Contains(log, "another controller may be active") {
		t.Errorf("the first controller does not say why it ended:\n%s", log)
	}
	if err := <-p.came; err != nil {
		t.Fatalf("the second controller: %v", err)
	}
	r.AwaitReady(t, "stack")
	r.holds(t, "x", "a", "b")
	r.verify(t)
	p.end(t)
}

// acted counts how often the first controller asked whether it may act, and what
// it then wrote to the API server, or started.
func (p *pair) acted(t *testing.T) (asked, did int) {
	t.Helper()
	text, err := os.ReadFile(p.acts)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range failpoint.Acts(text) {
		switch {
		case a.Name == "lead.ask":
			asked++
		case strings.HasPrefix(a.Name, "api."), a.Name == "process.start/supervisor":
			did++
		}
	}
	return asked, did
}

// A controller that was killed is followed by the one that waits, which finds
// what it was at.
func TestKilledControllerIsFollowed(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	says(t, p.second, "waiting: the controller")
	p.world.Fault(testkit.WorldFault{Call: "create", Name: "a", Do: "delay", Delay: "1s"})
	r := &round{Cluster: p.Cluster, world: p.world}
	r.ask(t, "stack", calmly+"approvePlan: auto", r.module("x", "a", "b"))
	p.world.Await(t.Context(), func(c testkit.WorldCall) bool { return c.Call == "create" })
	if err := p.first.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-p.came; err != nil {
		t.Fatalf("the second controller: %v", err)
	}
	r.AwaitReady(t, "stack")
	r.holds(t, "x", "a", "b")
	r.verify(t)
	p.end(t)
}

// A controller whose data directory does not have the active runs is refused, even
// if there is no other one.
func TestAnotherDataDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	says(t, p.second, "waiting: the controller")
	if _, err := p.first.Stop(); err != nil {
		t.Errorf("the first controller ended with %v, want in peace", err)
	}
	if err := <-p.came; err != nil {
		t.Fatalf("the second controller, which has the same directory: %v", err)
	}
	if _, err := p.second.Stop(); err != nil {
		t.Error(err)
	}
	other := p.controller(t, "--sources=false", "--lease", p.Namespace)
	if err := other.Start(); err == nil {
		t.Fatal("a controller with another data directory started")
	}
	if log := other.Log(); !strings.Contains(log, "belongs to another data directory") {
		t.Errorf("it was not told why:\n%s", log)
	}
}

// end removes the finalizers of the stacks when no controller would destroy them any
// more.
func (p *pair) end(t *testing.T) {
	t.Helper()
	for _, c := range []*testkit.Platform{p.first, p.second} {
		if c.PID() == 0 {
			continue
		}
		if _, err := c.Stop(); err != nil {
			t.Error(fmt.Errorf("stopping a controller: %w", err))
		}
	}
	p.Abandon(t)
}

func signal(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatal(err)
	}
}
