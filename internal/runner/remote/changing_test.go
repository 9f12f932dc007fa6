package remote_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/remote/wire"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/stack"
)

// deaf makes a controller take no report which says that the run may change something,
// and counts those that come.
func (s *site) deaf(c *controller) *atomic.Int64 {
	came, good := &atomic.Int64{}, c.Handler()
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		if req.URL.Path == wire.Report && bytes.Contains(body, []byte(`"phase":"Applying"`)) {
			came.Add(1)
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		good.ServeHTTP(w, req)
	})
	s.serve.Store(&h)
	return came
}

// unheard starts an apply that is about to change something, which the controller does not
// know. The file is written by what the apply creates.
func unheard(t *testing.T, s *site, c *controller) (st *runnertest.Stack, id, made string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	made = filepath.Join(dir, "made")
	st = runnertest.NewStack(t, c, tofu(t), "resource \"terraform_data\" \"a\" {\n  provisioner \"local-exec\" {\n    command = \"echo once >> "+made+"\"\n  }\n}\n")
	st.Allow(dir)
	saved := runnertest.Saved(st.Must(stack.PlanRun))
	came := s.deaf(c)
	id = st.Start(stack.ApplyRun, saved)
	await(t, "the agent has said again that the run may change something", func() bool { return came.Load() > 2 })
	return st, id, made
}

// lose ends the place of a run with its node.
func (s *site) lose(c *controller, st *runnertest.Stack, id string) {
	s.t.Helper()
	p := c.PlaceOf(st.Job.Stack, id)
	if err := s.launcher.Kill(p); err != nil {
		s.t.Fatal(err)
	}
	s.launcher.Tell(p)
}

// F11: an apply begins only once the controller knows it, so one that is lost before has
// changed nothing, and no person has to look for what it created.
func TestLostBeforeItChangedAnything(t *testing.T) {
	for name, again := range map[string]bool{"with its node": false, "after the controller was restarted": true} {
		t.Run(name, func(t *testing.T) {
			s, dir := newSite(t), t.TempDir()
			c := s.open(dir)
			st, id, made := unheard(t, s, c)
			if again {
				s.close(c)
				c = s.open(dir)
				s.serve.Store(nil)
				st.Use(c)
			}
			s.lose(c, st, id)
			d := st.Finish(id)
			if d.Outcome != stack.Failed || d.Lost || !d.Untouched || d.Reason == "" || !strings.Contains(d.Message, "and had changed nothing") {
				t.Errorf("ended %s for %q, lost %v: %s", d.Outcome, d.Reason, d.Lost, d.Message)
			}
			if _, err := os.Stat(made); !os.IsNotExist(err) {
				t.Errorf("the apply changed something: %v", err)
			}
		})
	}
}

// A record that is older than the run, as one from a backup is, does not prove that a run
// whose place is gone has changed nothing.
func TestAnOlderRecordProvesNothing(t *testing.T) {
	s, dir := newSite(t), t.TempDir()
	c := s.open(dir)
	st, id, _ := unheard(t, s, c)
	p := c.PlaceOf(st.Job.Stack, id)
	s.close(c)
	if err := s.launcher.Kill(p); err != nil {
		t.Fatal(err)
	}
	c = s.open(dir)
	st.Use(c)
	if d := st.Finish(id); d.Outcome != stack.Killed || !d.Lost {
		t.Errorf("ended %s, lost %v: %s", d.Outcome, d.Lost, d.Message)
	}
}

// An apply whose beginning the controller does not know yet goes on once it does, ends when
// it is cancelled or its pod is told to end, and has changed nothing until then.
func TestApplyWaitsUntilTheControllerKnows(t *testing.T) {
	for name, tt := range map[string]struct {
		then    func(*testing.T, *site, *controller, *runnertest.Stack, string)
		outcome stack.Outcome
		made    string
	}{
		"it hears": {func(*testing.T, *site, *controller, *runnertest.Stack, string) {}, stack.Succeeded, "once\n"},
		"the run is cancelled": {func(t *testing.T, _ *site, c *controller, st *runnertest.Stack, id string) {
			if err := c.Cancel(t.Context(), st.Job.Stack, id); err != nil {
				t.Fatal(err)
			}
		}, stack.Interrupted, ""},
		"the pod is told to end": {func(t *testing.T, s *site, c *controller, st *runnertest.Stack, id string) {
			if err := s.launcher.Signal(c.PlaceOf(st.Job.Stack, id), syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}, stack.Interrupted, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			c := s.open(t.TempDir())
			st, id, made := unheard(t, s, c)
			tt.then(t, s, c, st, id)
			if tt.outcome == stack.Interrupted {
				await(t, "the run has ended in its place", func() bool { return s.ended(id) })
			}
			good := c.Handler()
			s.serve.Store(&good)
			d := st.Finish(id)
			if d.Outcome != tt.outcome || d.Untouched != (tt.made == "") {
				t.Errorf("ended %s, untouched %v: %s", d.Outcome, d.Untouched, d.Message)
			}
			if got, err := os.ReadFile(made); string(got) != tt.made || err != nil && !os.IsNotExist(err) {
				t.Errorf("the apply left %q, %v; want %q", got, err, tt.made)
			}
		})
	}
}

// A pod of an earlier release does not say that it has changed nothing: whatever it reported
// last, the run may have begun to apply.
func TestLostPodOfAnEarlierRelease(t *testing.T) {
	for _, phase := range []runner.Phase{runner.Starting, runner.Initializing, runner.Applying} {
		t.Run(string(phase), func(t *testing.T) {
			s := newSite(t)
			s.launcher.Hold = true
			c := s.open(t.TempDir())
			job := bare("a", "run")
			job.Kind = stack.ApplyRun
			if err := c.Start(t.Context(), job); err != nil {
				t.Fatal(err)
			}
			p := c.PlaceOf("a", "run")
			token := s.token(p)
			proof := order(t, c, token, true)
			body := fmt.Appendf(nil, `{"report":{"phase":%q},"files":{}}`, phase)
			if got := asked(c.Handler(), http.MethodPut, wire.Report, token, proof, body); got.Code != http.StatusNoContent {
				t.Fatalf("a report = %d %s", got.Code, got.Body)
			}
			if err := s.launcher.Kill(p); err != nil {
				t.Fatal(err)
			}
			s.launcher.Tell(p)
			if r := awaitDone(t, c, "a"); r.Outcome != stack.Killed || !r.Lost {
				t.Errorf("ended %s, lost %v: %s", r.Outcome, r.Lost, r.Message)
			}
		})
	}
}
