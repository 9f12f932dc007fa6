package remote_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/remote"
	"github.com/terrier-iac/terrier/internal/runner/remote/wire"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit/executable"
)

// The run of a stack that has the slot of a place, and cannot have the place, begins once
// the place has ended.
func TestPlaceEndsBeforeItsSlotIsUsed(t *testing.T) {
	s := newSite(t)
	c := s.open(t.TempDir(), several(8))
	first := checked(t, c, runnertest.NewStack(t, c, tofu(t), nothing), sharing("a"))
	awaitAsking(t, c, first)
	for _, remain := range c.Remains("") {
		c.Answer(remain, "b", false)
	}
	s.launcher.Prepare = func(l remote.Launch, _ string) error {
		if life, err := s.launcher.Look(t.Context(), first); err != nil || life.State != remote.Ended && life.State != remote.Gone {
			return fmt.Errorf("the place of %s is made while that of the run before is %s, %w", l.Key, life.State, err)
		}
		return nil
	}
	s.launcher.Hold = true
	if err := c.Start(t.Context(), check("b", func(j *runner.Job) { j.Kind = stack.PlanRun })); err != nil {
		t.Error(err)
	}
}

// A place that is not gone in time keeps its slot: the run that was given the slot waits for
// another one.
func TestPlaceThatDoesNotEndKeepsItsSlot(t *testing.T) {
	s := newSite(t)
	c := s.open(t.TempDir(), several(8))
	a := playing(t, c, s, check("a"))
	place := c.PlaceOf("a", "check-a")
	a.order(true)
	a.report(quietly())
	if err := c.Forget("a", "check-a"); err != nil {
		t.Fatal(err)
	}
	a.next()
	awaitAsking(t, c, place)
	remain := c.Remains("")
	c.Answer(remain[0], "b", false)
	s.launcher.Fail(os.ErrDeadlineExceeded)
	defer s.launcher.Fail(nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := c.Start(ctx, check("b", sharing("b")))
	if fault.Of(err) != fault.Later || fault.Reason(err, "") != runner.NoRoom {
		t.Errorf("Start() = %v, want Later and NoRoom", err)
	}
	if got := c.Remains(""); len(got) != 1 || got[0] != remain[0] || got[0].Tenant != "a" {
		t.Errorf("Remains() = %v, want %v", got, remain)
	}
}

// A place that another run waits for ends, and so does one whose agent is gone.
func TestOpenPlaceEnds(t *testing.T) {
	for name, end := range map[string]func(s *site, c *controller, p remote.Place) error{
		"another run waits for its slot": func(_ *site, c *controller, _ remote.Place) error {
			c.Answer(c.Remains("")[0], "", true)
			return nil
		},
		"its node is lost": func(s *site, _ *controller, p remote.Place) error { return s.launcher.Kill(p) },
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := newSite(t), t.TempDir()
			c := s.open(dir, several(8))
			p := checked(t, c, runnertest.NewStack(t, c, tofu(t), nothing), sharing("a"))
			awaitAsking(t, c, p)
			if err := end(s, c, p); err != nil {
				t.Fatal(err)
			}
			awaitRemoved(t, dir)
			if got := <-c.Vacated(); got.Namespace != p.Namespace {
				t.Errorf("Vacated() = %v, want the place %v", got, p)
			}
			if n := c.OpenPlaces(); n != 0 {
				t.Errorf("%d places are open, want none", n)
			}
		})
	}
}

// The agent of a run that was forgotten asks for the next one, also if it sends the report
// of the end once more: it hears that the controller has another report than it knows of
// before it reads that the controller took the last one.
func TestPlaceStaysOpenIfTheEndIsToldTwice(t *testing.T) {
	s := newSite(t)
	c := s.open(t.TempDir(), several(8))
	good, twice, forgotten := c.Handler(), make(chan struct{}), make(chan struct{})
	var told, asked atomic.Int64
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		// It asks again once the answer before has reached it. What comes then would say that
		// the run is forgotten.
		if req.URL.Path == wire.AskWish && told.Load() > 0 && asked.Add(1) > 1 {
			if asked.Load() == 2 {
				close(twice)
			}
			<-req.Context().Done()
			return
		}
		good.ServeHTTP(w, req)
		if req.URL.Path == wire.Report && bytes.Contains(body, []byte(`"phase":"`+string(runner.Done)+`"`)) && told.Add(1) == 1 {
			<-twice
			<-forgotten
		}
	})
	s.serve.Store(&h)
	st := runnertest.NewStack(t, c, tofu(t), nothing)
	id := st.Start(stack.CheckRun, sharing("a"))
	p := c.PlaceOf(st.Job.Key(), id)
	<-twice
	st.Finish(id)
	close(forgotten)
	awaitAsking(t, c, p)
	if n := told.Load(); n != 2 {
		t.Errorf("the end was told %d times, want 2", n)
	}
}

// A controller that takes over an open place has no run of it, with its directory or
// without: that run was recorded.
func TestControllerIsReplacedWhileAPlaceIsOpen(t *testing.T) {
	for name, empty := range map[string]bool{"with its directory": false, "with an empty directory": true} {
		t.Run(name, func(t *testing.T) {
			s, dir := newSite(t), t.TempDir()
			c := s.open(dir, several(8))
			stackOf := runnertest.NewStack(t, c, tofu(t), nothing)
			p := checked(t, c, stackOf, sharing("a"))
			awaitAsking(t, c, p)
			s.close(c)
			if empty {
				dir = t.TempDir()
			}
			c = s.open(dir, several(8))
			if empty { // it takes the place for the run that it had; the agent says that there is none
				if r := awaitDone(t, c, stackOf.Job.Stack); r.Outcome != stack.Interrupted || r.Reason != remote.NeverStarted {
					t.Errorf("the run of the place ended %s %s, want Interrupted and NeverStarted", r.Outcome, r.Reason)
				}
				if err := c.Forget(stackOf.Job.Stack, "check-x"); err != nil {
					t.Fatal(err)
				}
			}
			awaitRemoved(t, dir)
			if left, err := c.List(); err != nil || len(left) > 0 {
				t.Errorf("List() = %+v, %v; want nothing", left, err)
			}
		})
	}
}

// A place that is lost during its second run ends that run, and no other one.
func TestPlaceIsLostDuringItsSecondRun(t *testing.T) {
	s := newSite(t)
	c := s.open(t.TempDir(), several(8))
	g := runnertest.NewGate(t)
	p := checked(t, c, runnertest.NewStack(t, c, tofu(t), nothing), sharing("a"))
	awaitAsking(t, c, p)
	held, real := filepath.Join(t.TempDir(), "tofu"), shown(t)
	program := fmt.Sprintf("#!/bin/sh\ncase \"$1\" in version) exec %[1]s \"$@\";; esac\n%[2]s\nexec %[1]s \"$@\"\n", real.Path, g.Command())
	if err := executable.Write(held, []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	c.Host().Provide(func(p *runner.Platform) { p.Readable = append(p.Readable, real.Path, g.Dir) })
	second := runnertest.NewStack(t, c, engine.Engine{Path: held, Name: real.Name, Version: real.Version}, nothing)
	id := second.Start(stack.CheckRun, sharing("a"))
	if got := c.PlaceOf(second.Job.Key(), id); got != p {
		t.Fatalf("the second check has the place %v, want %v", got, p)
	}
	await(t, "the second run has begun", func() bool {
		r := second.Current()
		return r.Phase != runner.Starting
	})
	if err := s.launcher.Kill(p); err != nil {
		t.Fatal(err)
	}
	if r := second.Await(); r.Outcome != stack.Killed || !r.Lost {
		t.Errorf("the run ended %s, lost: %v; want Killed and lost", r.Outcome, r.Lost)
	}
	if err := c.Forget(second.Job.Key(), id); err != nil {
		t.Fatal(err)
	}
	if n := c.OpenPlaces(); n != 0 {
		t.Errorf("%d places are open, want none", n)
	}
}

// A controller that dies while it gives a place to the next run leaves no run without an
// agent: with its directory there is none, and without it the agent says so.
func TestControllerDiesWhileItGivesAPlaceAway(t *testing.T) {
	for name, empty := range map[string]bool{"with its directory": false, "with an empty directory": true} {
		t.Run(name, func(t *testing.T) {
			s, dir := newSite(t), t.TempDir()
			c := s.open(dir, several(8))
			first := runnertest.NewStack(t, c, tofu(t), nothing)
			awaitAsking(t, c, checked(t, c, first, sharing("a")))
			dead := errors.New("the controller is dead")
			s.launcher.Fail(dead)
			defer s.launcher.Fail(nil)
			s.launcher.Reused = func() error {
				s.serve.Store(nil)
				s.server.CloseClientConnections()
				return dead
			}
			if err := c.Start(t.Context(), check("b", func(j *runner.Job) { j.Sandbox.Network = first.Job.Sandbox.Network })); fault.Of(err) != fault.Later || fault.Reason(err, "") != runner.NoRoom {
				t.Fatalf("Start() = %v, want Later and NoRoom", err)
			}
			s.close(c)
			s.launcher.Fail(nil)
			if empty {
				dir = t.TempDir()
			}
			c = s.open(dir, several(8))
			if empty {
				if r := awaitDone(t, c, "b"); r.Outcome != stack.Interrupted || r.Reason != remote.NeverStarted {
					t.Errorf("the run of the place ended %s %s, want Interrupted and NeverStarted", r.Outcome, r.Reason)
				}
				if err := c.Forget("b", "check-b"); err != nil {
					t.Fatal(err)
				}
			}
			awaitRemoved(t, dir)
			if left, err := c.List(); err != nil || len(left) > 0 {
				t.Errorf("List() = %+v, %v; want nothing", left, err)
			}
		})
	}
}
