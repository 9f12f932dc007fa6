package remote_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/remote"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/stack"
)

// counts has a controller serve the agents, and counts how often it tells them that their run is
// gone, and to ask again.
func (s *site) counts(c *controller) (gone, again *atomic.Int32) {
	h := c.Handler()
	gone, again = &atomic.Int32{}, &atomic.Int32{}
	var counting http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(statuses{statuses{w, http.StatusGone, gone}, http.StatusServiceUnavailable, again}, r)
	})
	s.serve.Store(&counting)
	return gone, again
}

// isUnread checks that a run is the trouble of its stack alone, that its place stays, and that no
// run of the stack begins.
func (s *site) isUnread(c *controller, st *runnertest.Stack, p remote.Place) {
	s.t.Helper()
	key := st.Job.Key()
	for range 2 {
		if r, err := c.Current(key); err == nil {
			s.t.Fatalf("Current() = %+v, want why it cannot be read", r)
		}
		all, err := c.List()
		if err == nil || !runner.Listed(err) || len(all) != 1 || all[0].Stack != "other" {
			s.t.Errorf("List() = %+v, %v, want the run of the other stack, and an error about this one", all, err)
		}
		if err := c.Start(s.t.Context(), bare(st.Job.Stack, "next")); err == nil {
			s.t.Fatal("a run began beside one that cannot be read")
		}
		if err := c.Remove(key); err == nil {
			s.t.Fatal("what there is of a run that cannot be read was removed")
		}
		c.Sweep()
		c.ReadAgain()
	}
	life, err := s.launcher.Look(s.t.Context(), p)
	if err != nil || life.State != remote.Running {
		s.t.Errorf("its place is %+v, %v", life, err)
	}
}

// A run whose directory cannot be read when the controller starts goes on in its place, and is
// taken over once it can be.
func TestARunDirectoryThatCannotBeRead(t *testing.T) {
	for name, tt := range map[string]struct {
		file string
		to   string // what it holds; a directory is in its place if empty
	}{
		"its report is cut off":  {"run.json", "{"},
		"its record is cut off":  {runner.FilePlace, "{"},
		"its record is not read": {runner.FilePlace, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := newSite(t), t.TempDir()
			first := s.open(dir)
			st, g, id := applying(t, first)
			s.launcher.Hold = true
			if err := first.Start(t.Context(), bare("other", "run")); err != nil {
				t.Fatal(err)
			}
			p := first.PlaceOf(st.Job.Key(), id)
			path := filepath.Join(first.Dir(st.Job.Key(), id), tt.file)
			s.close(first)
			whole, err := os.ReadFile(path)
			if err == nil && tt.to == "" {
				err = errors.Join(os.Remove(path), os.Mkdir(path, 0o700))
			} else if err == nil {
				err = os.WriteFile(path, []byte(tt.to), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			second := s.open(dir)
			gone, asked := s.counts(second)
			s.isUnread(second, st, p)
			await(t, "the agent is told to ask again", func() bool { return asked.Load() > 1 })
			if err := errors.Join(os.RemoveAll(path), os.WriteFile(path, whole, 0o600)); err != nil {
				t.Fatal(err)
			}
			second.ReadAgain()
			st.Use(second)
			if got := st.Current(); got == nil || got.ID != id || got.Kind != stack.ApplyRun {
				t.Fatalf("Current() = %+v, want run %s", got, id)
			}
			told := gone.Load() // before its end: once it is forgotten, the agent is told so
			g.Open(t)
			if d := st.Finish(id); d.Outcome != stack.Succeeded || d.Resources != 2 || told > 0 {
				t.Errorf("ended %s with %d resources, and its agent was told %d times that it is gone: %s", d.Outcome, d.Resources, told, d.Message)
			}
		})
	}
}

// A place that cannot be adopted keeps neither a controller from starting nor one that shares
// stacks from taking the others.
func TestAPlaceThatCannotBeAdopted(t *testing.T) {
	for name, change := range map[string]func(*remote.Config){"alone": func(*remote.Config) {}, "beside others": shared} {
		t.Run(name, func(t *testing.T) {
			take := func(c *controller) *controller {
				t.Helper()
				if name == "alone" {
					return c
				}
				if err := c.Take(t.Context(), all()); err != nil {
					t.Fatal(err)
				}
				return c
			}
			s := newSite(t)
			first := take(s.open(t.TempDir(), change))
			st, g, id := applying(t, first)
			s.launcher.Hold = true
			if err := first.Start(t.Context(), bare("other", "run")); err != nil {
				t.Fatal(err)
			}
			p := first.PlaceOf(st.Job.Key(), id)
			s.close(first)

			dir := t.TempDir()
			obstacle := filepath.Join(dir, "runs", st.Job.Key()) // a file in the place of the directory
			if err := errors.Join(os.MkdirAll(filepath.Dir(obstacle), 0o700), os.WriteFile(obstacle, nil, 0o600),
				os.WriteFile(filepath.Join(dir, "runs-as"), []byte(runner.AsPods+"\n"), 0o600)); err != nil {
				t.Fatal(err)
			}
			second := take(s.open(dir, change))
			gone, asked := s.counts(second)
			s.isUnread(second, st, p)
			await(t, "the agent is told to ask again", func() bool { return asked.Load() > 1 })
			if name != "alone" { // what is given away is not this controller's trouble
				if err := second.Give(t.Context(), all()); err != nil {
					t.Fatal(err)
				}
				take(second)
				s.isUnread(second, st, p)
			}
			if err := os.Remove(obstacle); err != nil {
				t.Fatal(err)
			}
			second.ReadAgain()
			st.Use(second)
			if got := st.Current(); got == nil || got.ID != id || got.Kind != stack.ApplyRun {
				t.Fatalf("Current() = %+v, want run %s", got, id)
			}
			told := gone.Load() // before its end: once it is forgotten, the agent is told so
			g.Open(t)
			if d := st.Finish(id); d.Outcome != stack.Succeeded || d.Resources != 2 || told > 0 {
				t.Errorf("ended %s with %d resources, and its agent was told %d times that it is gone: %s", d.Outcome, d.Resources, told, d.Message)
			}
		})
	}
}

// A controller that is killed while it adopts a place adopts it again. The place has a run, and
// is not that of a start that did not come to its end.
func TestAnAdoptionThatWasCutShort(t *testing.T) {
	s := newSite(t)
	first := s.open(t.TempDir())
	st, g, id := applying(t, first)
	s.close(first)
	dir := t.TempDir()
	second := s.open(dir)
	if err := os.Remove(filepath.Join(second.Dir(st.Job.Key(), id), "run.json")); err != nil {
		t.Fatal(err)
	}
	s.close(second)
	third := s.open(dir)
	st.Use(third)
	if got := st.Current(); got == nil || got.ID != id {
		t.Fatalf("Current() = %+v, want run %s", got, id)
	}
	g.Open(t)
	if d := st.Finish(id); d.Outcome != stack.Succeeded || d.Resources != 2 {
		t.Errorf("ended %s with %d resources: %s", d.Outcome, d.Resources, d.Message)
	}
}

// A directory of an earlier process whose state cannot be looked for is not removed, and keeps
// no controller from starting.
func TestADirectoryThatCannotBeSetAside(t *testing.T) {
	s, dir := newSite(t), t.TempDir()
	s.close(s.open(dir, shared))
	run := filepath.Join(dir, "runs", "a", "run")
	report, err := json.Marshal(runner.Report{ID: "run", Stack: "a"})
	if err := errors.Join(err, os.MkdirAll(run, 0o700), runner.WriteReport(run, report),
		os.Symlink(runner.FileState, filepath.Join(run, runner.FileState))); err != nil { // a link to itself: neither there nor absent
		t.Fatal(err)
	}
	c := s.open(dir, shared)
	if err := c.Take(t.Context(), all()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(run, runner.FileState)); err != nil {
		t.Errorf("the state was removed: %v", err)
	}
	if r, err := c.Current("a"); r != nil || err != nil {
		t.Errorf("Current() = %+v, %v, want no run of an earlier process", r, err)
	}
}
