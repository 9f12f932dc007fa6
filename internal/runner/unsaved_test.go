package runner_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/stack"
)

// A state that nothing can store at the end of its run stays where the engine left it. The run is
// over once it is saved, and until then no other one begins.
func TestAStateThatCannotBeSavedAtTheEndStays(t *testing.T) {
	f := &foreign{}
	s := abroad(t, f)
	local := open(t, t.TempDir())
	s.Use(local)
	plan := s.Must(stack.PlanRun)
	const id = "apply-xx"
	rescued := filepath.Join(local.Dir(s.Job.Key(), id), runner.FileRescue)
	f.refuse, f.refused = true, sync.OnceFunc(func() {
		if err := os.MkdirAll(filepath.Join(rescued, "obstacle"), 0o700); err != nil {
			t.Error(err)
		}
	})
	if got := s.Start(stack.ApplyRun, runnertest.Saved(plan)); got != id {
		t.Fatalf("Start() = %s, want %s", got, id)
	}
	select {
	case <-local.Ended():
	case <-time.After(5 * time.Minute):
		t.Fatal("the supervisor has not ended")
	}
	for range 2 {
		if r, err := local.Current(s.Job.Key()); err == nil {
			t.Fatalf("Current() = %+v, want why the state is not saved", r)
		}
	}
	if err := os.RemoveAll(rescued); err != nil {
		t.Fatal(err)
	}
	if r := s.Await(); r.Outcome != stack.Killed || r.Rescued == nil || r.Rescued.Lineage == "" {
		t.Errorf("ended %s with the rescued state %+v: %s", r.Outcome, r.Rescued, r.Message)
	}
	if left := s.Read(id, runner.FileRescue); !runnertest.Has(`"name": "a"`, left) {
		t.Errorf("rescued state = %s, want what was made in it", left)
	}
	if log := s.Read(id, runner.FileLog); !runnertest.Has("The state cannot be saved: ", log) {
		t.Errorf("the log is %s", log)
	}
}
