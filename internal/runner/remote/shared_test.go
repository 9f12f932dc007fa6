package remote_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/remote"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/shard"
	"github.com/terrier-iac/terrier/internal/stack"
)

func shared(c *remote.Config) { c.Shared = true }

// all are the numbers of all shards.
func all() []int {
	shards := make([]int, shard.Count)
	for i := range shards {
		shards[i] = i
	}
	return shards
}

// statuses counts the answers of one status.
type statuses struct {
	http.ResponseWriter
	of    int
	count *atomic.Int32
}

func (s statuses) WriteHeader(status int) {
	if status == s.of {
		s.count.Add(1)
	}
	s.ResponseWriter.WriteHeader(status)
}

// A run goes on while it is moved from one controller to another: its agent is told to
// ask again by the one that gave it up, and by the one that did not take it yet.
func TestRunIsMoved(t *testing.T) {
	s := newSite(t)
	a := s.open(t.TempDir(), shared)
	if err := a.Start(t.Context(), bare("a", "run")); fault.Of(err) != fault.Later || fault.Reason(err, "") != runner.StackBusy {
		t.Errorf("Start() before the stack was taken = %v, want Later, StackBusy", err)
	}
	if err := a.Take(t.Context(), all()); err != nil {
		t.Fatal(err)
	}
	st, g, id := applying(t, a)
	counted := func(c *controller) *atomic.Int32 {
		h, count := c.Handler(), &atomic.Int32{}
		var counting http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(statuses{w, http.StatusServiceUnavailable, count}, r)
		})
		s.serve.Store(&counting)
		return count
	}
	refused := counted(a)
	if err := a.Give(t.Context(), all()); err != nil {
		t.Fatal(err)
	}
	await(t, "the agent is told to ask again", func() bool { return refused.Load() > 0 })
	if r, err := a.Current(st.Job.Key()); r != nil || err != nil {
		t.Errorf("the run of another controller is %+v, %v", r, err)
	}
	b := s.open(t.TempDir(), shared)
	early := counted(b)
	await(t, "the agent is told to ask again by the next controller", func() bool { return early.Load() > 0 })
	if err := b.Take(t.Context(), all()); err != nil {
		t.Fatal(err)
	}
	st.Use(b)
	if got := st.Current(); got == nil || got.ID != id || got.Kind != stack.ApplyRun || string(got.Note) != `{"cause":"test"}` {
		t.Fatalf("Current() = %+v, want run %s", got, id)
	}
	g.Open(t)
	d := st.Finish(id)
	if d.Outcome != stack.Succeeded || d.Resources != 2 || !runnertest.Has(`"name":"slow"`, st.State) {
		t.Errorf("ended %s with %d resources: %s\nstate %s", d.Outcome, d.Resources, d.Message, st.State)
	}
	await(t, "no place is left", func() bool {
		left, err := os.ReadDir(s.launcher.Dir)
		return err == nil && len(left) == 0
	})
}

// A run that a controller gave up and gets back at once goes on: no agent that asked in
// between is told that its run is not known.
func TestRunComesBack(t *testing.T) {
	s := newSite(t)
	a := s.open(t.TempDir(), shared)
	if err := a.Take(t.Context(), all()); err != nil {
		t.Fatal(err)
	}
	st, g, id := applying(t, a)
	h, gone := a.Handler(), &atomic.Int32{}
	var counting http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(statuses{w, http.StatusGone, gone}, r)
	})
	s.serve.Store(&counting)
	for range 20 {
		if err := errors.Join(a.Give(t.Context(), all()), a.Take(t.Context(), all())); err != nil {
			t.Fatal(err)
		}
	}
	if n := gone.Load(); n > 0 {
		t.Errorf("%d requests were told that the run is not known", n)
	}
	g.Open(t)
	if d := st.Finish(id); d.Outcome != stack.Succeeded || d.Resources != 2 {
		t.Errorf("ended %s with %d resources: %s", d.Outcome, d.Resources, d.Message)
	}
}

// A controller that shares runs and starts again has none, even if its directory has.
func TestSharedRunsBeginAgain(t *testing.T) {
	s, dir := newSite(t), t.TempDir()
	a := s.open(dir, shared)
	if err := a.Take(t.Context(), all()); err != nil {
		t.Fatal(err)
	}
	st, g, id := applying(t, a)
	s.close(a)
	b := s.open(dir, shared)
	if reports, err := b.List(); len(reports) > 0 || err != nil {
		t.Errorf("the runs of a controller that took no shards are %+v, %v", reports, err)
	}
	if err := b.Take(t.Context(), all()); err != nil {
		t.Fatal(err)
	}
	st.Use(b)
	g.Open(t)
	if d := st.Finish(id); d.Outcome != stack.Succeeded || d.Resources != 2 {
		t.Errorf("ended %s with %d resources: %s", d.Outcome, d.Resources, d.Message)
	}
}

// A controller that is alone again goes by no run of its directory from before the stacks
// were shared: it adopts what has a place, and sets aside what was left of a state.
func TestStaleDirectoryIsLeft(t *testing.T) {
	for name, lives := range map[string]bool{"the place is gone": false, "the place is there": true} {
		t.Run(name, func(t *testing.T) {
			s, dir := newSite(t), t.TempDir()
			a, _ := s.held(dir)
			before, err := a.List()
			if err != nil || len(before) != 1 {
				t.Fatalf("List() = %+v, %v", before, err)
			}
			key, id := before[0].Key(), before[0].ID
			s.close(a)
			if err := os.WriteFile(filepath.Join(a.Dir(key, id), runner.FileState), []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
			if !lives {
				places, err := s.launcher.Places(t.Context())
				for _, p := range places {
					err = errors.Join(err, s.launcher.Kill(p))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			b := s.open(dir, func(c *remote.Config) { c.Stale = true })
			r, err := b.Current(key)
			if err != nil || (r != nil) != lives {
				t.Errorf("Current() = %+v, %v; want a run: %v", r, err, lives)
			}
			if _, err := os.Stat(filepath.Join(b.Dir(key, id), runner.FileState)); err == nil {
				t.Error("the old state is still that of the run")
			}
			if left, err := os.ReadFile(filepath.Join(dir, "former", key, id, runner.FileState)); err != nil || string(left) != "old" {
				t.Errorf("set aside is %q, %v", left, err)
			}
		})
	}
}
