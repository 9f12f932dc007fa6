package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// gate delays an apply until a test opens it: a run waits at a pipe. The end of the test
// opens it at the latest.
type gate struct{ begun, pipe string }

func newGate(t *testing.T, p *testkit.Platform) gate {
	t.Helper()
	dir := p.Shared(t)
	g := gate{filepath.Join(dir, "begun"), filepath.Join(dir, "pipe")}
	if err := syscall.Mkfifo(g.pipe, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(g.pipe, 0o666); err != nil { // a run is another user
		t.Fatal(err)
	}
	t.Cleanup(func() { g.open(t) }) // or a test that failed would wait for its stack
	return g
}

// held is a module with a thing of a world that is created once the gate was opened.
func (g gate) held(w *testkit.World, name string) string {
	return w.HCL() + fmt.Sprintf(`
resource "terraform_data" "gate" {
  provisioner "local-exec" {
    command = "echo begun >> %s; read answer < %s"
  }
}
resource "world_thing" %[3]q {
  name       = %[3]q
  depends_on = [terraform_data.gate]
}
output "last" { value = world_thing.%[3]s.id }
`, g.begun, g.pipe, name)
}

// reached waits until a run stands at the gate.
func (g gate) reached(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, "the apply is at the gate", func(context.Context) error {
		_, err := os.Stat(g.begun)
		return err
	})
}

// open releases the waiting runs, and those that come until the test ends.
func (g gate) open(t *testing.T) {
	t.Helper()
	pipe, err := os.OpenFile(g.pipe, os.O_RDWR, 0) // for both, it waits for no reader
	if err == nil {
		t.Cleanup(func() { pipe.Close() })
		_, err = pipe.WriteString("go on\n")
	}
	if err != nil {
		t.Errorf("opening the gate: %v", err)
	}
}

// F07: a controller that is told to end does so while an apply goes on that
// cannot end before, takes no more work, and leaves the apply to the next one,
// which finds it and counts it.
func TestTermWaitsForNoRun(t *testing.T) {
	t.Parallel()
	p := testkit.Up(t, "--max-runs=1")
	c, w := p.Cluster(t), p.World(t)
	g := newGate(t, p)
	c.Apply(t, inline("held", slowly, g.held(w, "held")))
	g.reached(t)
	c.Apply(t, inline("waits", "approvePlan: auto\ninterval: 1h", things(w, "x", "waits")))
	c.Await(t, "waits", waitsFor("Waiting for its turn"))
	runs, engines := pids(p.Supervisors()), pids(p.Engines())

	if _, err := p.Stop(); err != nil {
		t.Fatalf("terrier up ended with %v, want in peace while an apply goes on\n%s", err, p.Log())
	}
	same := func(when string) {
		t.Helper()
		if got := pids(p.Supervisors()); len(runs) != 1 || !slices.Equal(got, runs) {
			t.Errorf("%s, the supervisors are %v and were %v, want the same one", when, got, runs)
		}
		if got := pids(p.Engines()); len(engines) == 0 || !slices.Equal(got, engines) {
			t.Errorf("%s, the engines are %v and were %v, want the same", when, got, engines)
		}
	}
	same("when the controller has ended")
	start(t, p)
	same("when the next one has begun")
	g.open(t)
	c.AwaitReady(t, "held")
	c.AwaitReady(t, "waits")

	if got := lines(t, g.begun); len(got) != 1 {
		t.Errorf("applies came to the gate %d times, want once: none was interrupted", len(got))
	}
	if got, want := c.Secret(t, "out")["last"], w.Named("held")[0].ID; got != want {
		t.Errorf("the outputs say %q, want %q", got, want)
	}
	var order []string
	for _, call := range w.Calls() {
		if call.Call == "create" {
			order = append(order, call.Phase+" "+call.Name)
		}
	}
	if got, want := strings.Join(order, ", "), "begin held, done held, begin waits, done waits"; got != want {
		t.Errorf("the world was made to do %q, want %q", got, want)
	}
	for _, problem := range c.Oracle(t, w, "held", "waits") {
		t.Error(problem)
	}
}

func pids(all []testkit.Process) []int {
	var list []int
	for _, p := range all {
		list = append(list, p.PID)
	}
	slices.Sort(list)
	return list
}
