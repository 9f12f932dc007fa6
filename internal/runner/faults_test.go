package runner_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/stack"
)

// pair is a stack of two things in a world, one after the other.
func pair(t *testing.T) (*runnertest.Stack, *runnertest.Mirror) {
	t.Helper()
	s, m, _ := withProviders(t, "", "")
	s.Job.Files[0].Content = []byte(m.World() + "resource \"world_thing\" \"a\" {\n  name = \"a\"\n}\n" +
		"resource \"world_thing\" \"b\" {\n  name = \"b\"\n  depends_on = [world_thing.a]\n}\n")
	return s, m
}

// F08: an engine that reaches the limit of its memory in the middle of an
// apply: what it made is listed, and the report says why and with which figure.
func TestEngineOutOfMemory(t *testing.T) {
	const limit = 220 << 20
	m := runnertest.NewMirror(t, mirror(t), "")
	s := runnertest.NewStack(t, open(t, t.TempDir()), tofu(t), things(m, 3, "")+`
resource "terraform_data" "n" {
  depends_on = [world_thing.t0, world_thing.t1, world_thing.t2]
  input      = 1024
}
resource "terraform_data" "greedy" {
  input = length(setproduct(range(terraform_data.n.output), range(1024), range(16)))
}
`)
	m.Use(s)
	d := s.Finish(s.Start(stack.ApplyRun, runnertest.Saved(s.Must(stack.PlanRun)), func(j *runner.Job) { j.Limits.Memory = limit }))
	if d.Reason != runner.OutOfMemory || !strings.Contains(d.Message, "memory limit") || !strings.Contains(d.Message, " MiB") {
		t.Errorf("ended %s for %q: %s", d.Outcome, d.Reason, d.Message)
	}
	if d.Outcome == stack.Killed && !strings.Contains(d.Message, "limit of 220 MiB") {
		t.Errorf("the message does not name the limit: %s", d.Message)
	}
	gap := m.Exact(d, s.State)
	if len(gap) != 3 || !gap[0].Finished {
		t.Errorf("the gap is %+v, want the three things that were made", gap)
	}
}

// F10: SIGTERM to the supervisor is one interrupt to the engine, at once: what
// was begun is finished, nothing else is begun, and the state is kept.
func TestTermIsOneInterrupt(t *testing.T) {
	s, m := pair(t)
	plan := s.Must(stack.PlanRun)
	m.Fault(`{"call": "create", "name": "a", "do": "delay", "delay": "500ms", "ignoreStop": true}`)
	id := s.Start(stack.ApplyRun, runnertest.Saved(plan))
	m.Await("create", "begin", 1)
	for range 2 { // an eviction may send it more than once
		if err := syscall.Kill(s.Current().PID, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	d := s.Finish(id)
	if d.Outcome != stack.Interrupted || !strings.Contains(d.Message, "while creating world_thing.a for ") {
		t.Errorf("ended %s: %s", d.Outcome, d.Message)
	}
	if n := strings.Count(string(d.Log), "Interrupt received"); n != 1 || runnertest.Has("Two interrupts", d.Log) {
		t.Errorf("the engine was interrupted %d times; its log:\n%s", n, d.Log)
	}
	if got := m.Things(); len(got) != 1 || got["thing-1"] != "world_thing.a" || !runnertest.Has(`"thing-1"`, s.State) {
		t.Errorf("the world holds %v and the state is %s, want the first thing in both", got, s.State)
	}
	if gap := m.Exact(d, s.State); len(gap) > 0 {
		t.Errorf("the gap is %+v, want none", gap)
	}
}

// F12: a provider that dies in the middle of a call. What was made before is in the
// state, the crash is shown, and the requested resource may exist, for both ways to
// start a provider.
func TestProviderDiesInTheMiddleOfACall(t *testing.T) {
	for _, do := range []string{"crash-before", "crash-after"} {
		for by, alone := range map[string]bool{"kept": false, "started by the engine": true} {
			t.Run(do+" "+by, func(t *testing.T) {
				s, m := pair(t)
				s.Job.Options.NoReattach = alone
				plan := s.Must(stack.PlanRun)
				m.Fault(`{"call": "create", "name": "b", "do": "` + do + `"}`)
				d := s.Finish(s.Start(stack.ApplyRun, runnertest.Saved(plan)))
				if d.Outcome != stack.Failed || len(d.Diagnostics) == 0 || !d.Diagnostics[0].LostContact() {
					t.Errorf("ended %s with %+v: %s", d.Outcome, d.Diagnostics, d.Message)
				}
				if !alone && !strings.Contains(d.Message, "The provider terrier-iac/world ended early (ended by signal killed)") {
					t.Errorf("the message does not tell of the crash: %s", d.Message)
				}
				if !runnertest.Has(`"thing-1"`, s.State) {
					t.Errorf("what was made before is not in the state: %s", s.State)
				}
				if gap := m.Exact(d, s.State); len(gap) != 1 || gap[0].Address != "world_thing.b" || gap[0].Finished {
					t.Errorf("the gap is %+v, want that the second thing may exist", gap)
				}
			})
		}
	}
}

// F13: a provider that neither works nor answers. At the deadline the engine is
// interrupted once, the state is kept, and the message names the resource and
// for how long.
func TestProviderHangs(t *testing.T) {
	t.Parallel() // waits
	s, m := pair(t)
	plan := s.Must(stack.PlanRun)
	m.Fault(`{"call": "create", "name": "b", "do": "hang"}`)
	limit := runnertest.Ample(plan)
	d := s.Finish(s.Start(stack.ApplyRun, runnertest.Saved(plan), func(j *runner.Job) { j.Limits.Apply = limit }))
	if d.Outcome != stack.TimedOut || d.Reason != runner.Stuck {
		t.Errorf("ended %s for %q", d.Outcome, d.Reason)
	}
	for _, want := range []string{"deadline after " + limit.String(), "while creating world_thing.b for "} {
		if !strings.Contains(d.Message, want) {
			t.Errorf("the message does not say %q: %s", want, d.Message)
		}
	}
	if n := strings.Count(string(d.Log), "Interrupt received"); n != 1 {
		t.Errorf("the engine was interrupted %d times", n)
	}
	if !runnertest.Has(`"thing-1"`, s.State) || len(m.Exact(d, s.State)) != 0 {
		t.Errorf("the state is %s, want the first thing in it and nothing missing", s.State)
	}
}

// F14: a provider that does not care about being told to stop. It is killed
// after the grace period, together with its engine, which is not interrupted a
// second time; what it was asked for may exist.
func TestProviderIgnoresStop(t *testing.T) {
	t.Parallel() // waits
	s, m := pair(t)
	alive := runnertest.Marked(t, s)
	plan := s.Must(stack.PlanRun)
	m.Fault(`{"call": "create", "name": "b", "do": "hang", "ignoreStop": true}`)
	d := s.Finish(s.Start(stack.ApplyRun, runnertest.Saved(plan), func(j *runner.Job) {
		j.Limits.Apply, j.Limits.Grace = runnertest.Ample(plan), 300*time.Millisecond
	}))
	if d.Outcome != stack.Killed || d.Reason != runner.Stuck {
		t.Errorf("ended %s for %q", d.Outcome, d.Reason)
	}
	for _, want := range []string{"grace period of 300ms", "while creating world_thing.b for "} {
		if !strings.Contains(d.Message, want) {
			t.Errorf("the message does not say %q: %s", want, d.Message)
		}
	}
	if runnertest.Has("Two interrupts", d.Log) {
		t.Errorf("the engine was interrupted twice:\n%s", d.Log)
	}
	if left := alive(); len(left) > 0 {
		t.Errorf("%q live on", left)
	}
	gap := m.Exact(d, s.State)
	if n := len(gap); n == 0 || gap[n-1].Address != "world_thing.b" || gap[n-1].Finished {
		t.Errorf("the gap is %+v, want that the second thing may exist", gap)
	}
}

// F15: an engine that is held up by a server during init ends at its deadline
// and says at what.
func TestInitIsHeldUp(t *testing.T) {
	t.Parallel() // waits
	asked, url := hanging(t)
	p := open(t, t.TempDir())
	limit := runnertest.Ample(runnertest.NewStack(t, p, tofu(t), "output \"a\" {\n  value = 1\n}\n").Must(stack.PlanRun))
	s := runnertest.NewStack(t, p, tofu(t), "module \"m\" {\n  source = \""+url+"/m.zip\"\n}\n")
	s.Job.Sandbox.Network = "host"
	d := s.Finish(s.Start(stack.PlanRun, func(j *runner.Job) { j.Limits.Init, j.Limits.Grace = limit, 300*time.Millisecond }))
	if d.Outcome != stack.TimedOut && d.Outcome != stack.Killed || d.Reason != runner.Stuck || d.Step != "init" {
		t.Errorf("ended %s in %s for %q: %s", d.Outcome, d.Step, d.Reason, d.Message)
	}
	if len(asked) == 0 || !strings.Contains(d.Message, "Downloading ") {
		t.Errorf("the server was asked %d times, and the message does not say at what it was: %s", len(asked), d.Message)
	}
}

// F16: a foreign backend that works until the apply is over half done. What it
// refused is kept, and is the newest state there is.
func TestForeignBackendGoesAway(t *testing.T) {
	g := runnertest.NewGate(t)
	f := &foreign{}
	s := abroad(t, f)
	s.Job.Files[0].Content = []byte(slow(g))
	s.Allow(g.Dir)
	plan := s.Must(stack.PlanRun)
	id := s.Start(stack.ApplyRun, runnertest.Saved(plan))
	g.Arrived(t)
	f.broken.Store(true)
	g.Open(t)
	r := s.Await()
	rescued := s.Read(id, runner.FileRescue)
	if r.Outcome != stack.Failed || r.Rescued == nil || !runnertest.Has(`"name": "slow"`, rescued) {
		t.Errorf("ended %s with the rescued state %+v: %s\n%s", r.Outcome, r.Rescued, rescued, r.Message)
	}
	s.Finish(id)
}

// F17: a backend that does not answer, and one whose lock is held: the wait is
// bounded, and the holder is named.
func TestForeignBackendIsSlow(t *testing.T) {
	_, url := hanging(t)
	s := abroad(t, &foreign{})
	s.Job.Options.Backend = []string{"address=" + url, "retry_max=0"}
	d := s.Finish(s.Start(stack.PlanRun, func(j *runner.Job) {
		j.Limits.Init, j.Limits.Plan, j.Limits.Grace = 2*time.Second, 2*time.Second, 300*time.Millisecond
	}))
	if d.Outcome != stack.TimedOut && d.Outcome != stack.Killed || d.Reason != runner.Stuck {
		t.Errorf("ended %s for %q: %s", d.Outcome, d.Reason, d.Message)
	}

	held := abroad(t, &foreign{held: map[string]string{"ID": "lock-1", "Who": "somebody@else"}})
	began := time.Now()
	d = held.Finish(held.Start(stack.PlanRun, func(j *runner.Job) { j.Options.LockTimeout = time.Second }))
	if d.Outcome != stack.Locked || d.Lock == nil || d.Lock.Who != "somebody@else" || time.Since(began) < time.Second {
		t.Errorf("ended %s after %s with the lock %+v: %s", d.Outcome, time.Since(began), d.Lock, d.Message)
	}
}

// F43: a run that uses all the resources that it can get harms no other process.
func TestGreedyRunHarmsNoOther(t *testing.T) {
	for name, greedy := range map[string]string{
		"processes":       "i=0; while [ $i -lt 300 ]; do sleep 1000 & i=$((i+1)); done",
		"open files":      "i=0; while [ $i -lt 300 ]; do (exec 3< /dev/null 4< /dev/null 5< /dev/null 6< /dev/null; sleep 1000) & i=$((i+1)); done",
		"memory":          "head -c 1G /dev/zero | tail",
		"temporary files": "head -c 1G /dev/zero > /tmp/fill",
	} {
		t.Run(name, func(t *testing.T) {
			p := open(t, t.TempDir())
			g := runnertest.NewGate(t)
			s := runnertest.NewStack(t, p, tofu(t), slow(g))
			s.Job.Files[0].Content = []byte(strings.Replace(slow(g), `command = "`, `command = "(`+greedy+`) > /dev/null 2>&1; `, 1))
			alive := runnertest.Marked(t, s)
			s.Allow(g.Dir)
			plan := s.Must(stack.PlanRun)
			id := s.Start(stack.ApplyRun, runnertest.Saved(plan), func(j *runner.Job) {
				j.Limits.Processes = 120
				if name != "temporary files" { // they are memory, and bounded before it is
					j.Limits.Memory = 300 << 20
				}
			})
			g.Arrived(t)
			other := runnertest.NewStack(t, p, tofu(t), "resource \"terraform_data\" \"a\" {\n  input = \"x\"\n}\n")
			if d := other.Must(stack.ApplyRun, runnertest.Saved(other.Must(stack.PlanRun))); d.Resources != 1 {
				t.Errorf("the other stack has %d resources", d.Resources)
			}
			g.Open(t)
			if d := s.Finish(id); d.Outcome != stack.Succeeded && d.Outcome != stack.Failed && d.Outcome != stack.Killed {
				t.Errorf("ended %s: %s", d.Outcome, d.Message)
			}
			if left := alive(); len(left) > 0 {
				t.Errorf("%d processes live on", len(left))
			}
		})
	}
}

// F44: a flood, a line of 10 MB and binary garbage, in an apply, whose output
// goes through a file: everything stays small, the end is kept, and so is every
// operation.
func TestFloodOfAnApplyIsBounded(t *testing.T) {
	dir := t.TempDir()
	g := runnertest.NewGate(t)
	flood := "head -c 300000 /dev/urandom; head -c 10000000 /dev/zero | tr '\\\\0' x; yes a line of a flood | head -c 300000; " + g.Command() + "; echo the last words"
	s := runnertest.NewStack(t, open(t, dir), tofu(t), "resource \"terraform_data\" \"first\" {\n  provisioner \"local-exec\" {\n    command = \""+flood+"\"\n  }\n}\n"+
		"resource \"terraform_data\" \"second\" {\n  depends_on = [terraform_data.first]\n}\n")
	s.Allow(g.Dir)
	plan := s.Must(stack.PlanRun)
	id := s.Start(stack.ApplyRun, runnertest.Saved(plan), func(j *runner.Job) { j.Limits.LogBytes = 256 << 10 })
	run := filepath.Join(dir, "runs", s.Job.Stack, id)
	most := watchSize(t, run)
	g.Arrived(t)
	g.Open(t)
	d := s.Finish(id)
	if got := most(); got > 8<<20 {
		t.Errorf("the run's directory had %d bytes at a time", got)
	}
	if d.Outcome != stack.Succeeded || !runnertest.Has("the last words", d.Log) || !runnertest.Has("left out", d.Log) {
		t.Errorf("ended %s: %s\n…%s", d.Outcome, d.Message, d.Log[max(0, len(d.Log)-500):])
	}
	if n := strings.Count(string(d.Events), `"type":"apply_complete"`); n != 2 || len(d.Events) > 512<<10 || len(d.Log) > 512<<10 {
		t.Errorf("%d operations are in %d bytes of events, beside %d of log", n, len(d.Events), len(d.Log))
	}
	for line := range strings.Lines(string(d.Events)) {
		if !json.Valid([]byte(line)) {
			t.Fatalf("the events hold what is no JSON: %.200q", line)
		}
	}
}

// watchSize notes how large a directory becomes, until it is asked.
func watchSize(t *testing.T, dir string) (most func() int64) {
	stop, done := make(chan struct{}), make(chan int64, 1)
	go func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		var most int64
		for {
			var sum int64
			entries, _ := os.ReadDir(dir)
			for _, e := range entries {
				if info, err := e.Info(); err == nil && !strings.HasPrefix(e.Name(), "reserve") {
					sum += info.Size()
				}
			}
			most = max(most, sum)
			select {
			case <-tick.C:
			case <-stop:
				done <- most
				return
			}
		}
	}()
	return func() int64 {
		close(stop)
		return <-done
	}
}

// F46: a supervisor from before the upgrade, or from after it, reports to this
// controller.
func TestReportsOfOtherVersions(t *testing.T) {
	for name, report := range map[string]string{
		"from before there were versions": `{"id":"apply-1","stack":"s","name":"n/s","kind":"apply","phase":"Applying","since":"2026-01-02T03:04:05Z","started":"2026-01-02T03:04:05Z","pid":1,"level":3,"note":{"cause":"x"}}`,
		"from the future":                 `{"version":9,"id":"apply-1","stack":"s","name":"n/s","kind":"apply","phase":"Dreaming","since":"2026-01-02T03:04:05Z","started":"2026-01-02T03:04:05Z","pid":1,"level":3,"note":{"cause":"x"},"mood":{"of":"the day"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			run := filepath.Join(dir, "runs", "s", "apply-1")
			event := `{"@message":"m","type":"apply_start","hook":{"resource":{"addr":"x.a"},"action":"create"}}` + "\n"
			if err := errors.Join(os.MkdirAll(run, 0o700), os.WriteFile(filepath.Join(run, "run.json"), []byte(report), 0o600),
				os.WriteFile(filepath.Join(run, runner.FileEvents), []byte(event), 0o600)); err != nil {
				t.Fatal(err)
			}
			p := open(t, dir)
			r, err := p.Current("s")
			if err != nil || r == nil || r.Phase != runner.Done || r.Outcome != stack.Killed || string(r.Note) != `{"cause":"x"}` {
				t.Fatalf("Current() = %+v, %v; want the run of a dead supervisor", r, err)
			}
			kept, err := os.ReadFile(filepath.Join(run, "run.json"))
			if future := strings.Contains(report, "mood"); err != nil || strings.Contains(string(kept), `"mood":{"of":"the day"}`) != future {
				t.Errorf("run.json = %s, %v; want what is not known of it kept", kept, err)
			}
			if err := p.Forget("s", "apply-1"); err != nil {
				t.Errorf("Forget() = %v", err)
			}
		})
	}
}
