package remote_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/remote"
	"github.com/terrier-iac/terrier/internal/runner/remote/wire"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit/executable"
)

// several lets a place carry out a number of checks, and wait for the next one as long as a
// test may take.
func several(most int) func(*remote.Config) {
	return func(c *remote.Config) { c.RunsPerPlace, c.IdleLimit = most, within }
}

// sharing makes a check one whose place others of the tenant may have.
func sharing(tenant string) func(*runner.Job) {
	return func(j *runner.Job) { j.Shares, j.Sandbox.MinLevel = tenant, 2 }
}

// finds nothing to change, for it has nothing.
const nothing = "locals {\n  a = 1\n}\n"

// checked carries out a check to its end, and returns its place.
func checked(t *testing.T, c *controller, s *runnertest.Stack, change ...func(*runner.Job)) remote.Place {
	t.Helper()
	id := s.Start(stack.CheckRun, change...)
	p := c.PlaceOf(s.Job.Key(), id)
	if d := s.Finish(id); d.Outcome != stack.Succeeded || !d.Changes.None() {
		t.Fatalf("the check ended %s with %v: %s\n%s", d.Outcome, d.Changes, d.Message, d.Log)
	}
	return p
}

// awaitAsking waits until the agent of a place asks for its next run.
func awaitAsking(t *testing.T, c *controller, p remote.Place) {
	t.Helper()
	await(t, "the agent of "+p.Name+" asks for another run", func() bool {
		for _, asking := range c.Asking() {
			if asking == p {
				return true
			}
		}
		return false
	})
}

// One place carries out quiet checks of one tenant one after another, no more than it may,
// and none of another tenant. The others have places of their own.
func TestChecksShareAPlace(t *testing.T) {
	dir := t.TempDir()
	s := newSite(t)
	c := s.open(dir, several(3))
	var stacks []*runnertest.Stack
	for range 5 {
		stacks = append(stacks, runnertest.NewStack(t, c, tofu(t), nothing))
	}
	first := checked(t, c, stacks[0], sharing("a"))
	awaitAsking(t, c, first)
	if other := checked(t, c, stacks[1], sharing("b")); other == first {
		t.Errorf("a check of another tenant had the place %v", other)
	}
	for _, again := range stacks[2:4] {
		awaitAsking(t, c, first)
		if p := checked(t, c, again, sharing("a")); p != first {
			t.Errorf("a check had the place %v, want %v", p, first)
		}
	}
	if p := checked(t, c, stacks[4], sharing("a")); p == first {
		t.Errorf("a fourth check had the place %v, want one of its own", p)
	}
	s.close(c)
	c = s.open(dir, several(3)) // open places do not survive their controller
	awaitRemoved(t, dir)
	if left, err := c.List(); err != nil || len(left) > 0 {
		t.Errorf("List() = %+v, %v after all checks, want nothing", left, err)
	}
}

// What one run leaves where it can, the next one in its place does not find, and no process
// of it is alive.
func TestNothingIsLeftForTheNextRunOfAPlace(t *testing.T) {
	for name, level := range map[string]int{"kernel": 2, "full": 3} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			// Below full, runs are another user than this test.
			if err := os.Chmod(filepath.Dir(s.launcher.Dir), 0o711); err != nil {
				t.Fatal(err)
			}
			s.launcher.Prepare = func(_ remote.Launch, dir string) error { return os.Mkdir(filepath.Join(dir, "agent"), 0o711) }
			c := s.open(t.TempDir(), several(2))
			mark := fmt.Sprintf("left-by-%d-%s", os.Getpid(), name)
			hostile, real := filepath.Join(t.TempDir(), "tofu"), shown(t)
			program := fmt.Sprintf(`#!/bin/sh
case "$1" in version) exec %[1]s "$@";; esac
dirs="$HOME $TMPDIR /tmp /dev/shm /var/tmp /run $PWD $PWD/.. $PWD/../.. $PWD/../../.. $PWD/../../../.. $PWD/../../../../.."
for dir in $dirs; do
	if [ -e "$dir/%[2]s" ] && [ "$(cat "$dir/%[2]s")" != "$LEFT_BY" ]; then echo "found $dir/%[2]s" >&2; exit 1; fi
done
for dir in $dirs; do (echo "$LEFT_BY" > "$dir/%[2]s") 2>/dev/null; done
(setsid sh -c 'trap "" TERM HUP INT; while :; do sleep 1; : %[2]s; done' >/dev/null 2>&1 &)
exec %[1]s "$@"
`, real.Path, mark)
			if err := executable.Write(hostile, []byte(program), 0o755); err != nil {
				t.Fatal(err)
			}
			c.Host().Provide(func(p *runner.Platform) { p.Readable = append(p.Readable, real.Path) })
			of := engine.Engine{Path: hostile, Name: real.Name, Version: real.Version}
			once := func(who string) remote.Place {
				return checked(t, c, runnertest.NewStack(t, c, of, nothing), sharing("a"), func(j *runner.Job) {
					j.Sandbox.Level, j.Env = level, map[string]string{"LEFT_BY": who}
				})
			}
			first := once("first")
			awaitAsking(t, c, first)
			if left := processesWith(t, mark); len(left) > 0 {
				t.Errorf("processes of a run that was forgotten are alive: %q", left)
			}
			for path, text := range files(t, s.launcher.PlaceDir(first)) {
				if strings.Contains(path, mark) || strings.HasSuffix(path, "/proof") {
					t.Errorf("the run left %s: %s", path, text)
				}
			}
			if p := once("second"); p != first {
				t.Errorf("the second check had the place %v, want %v", p, first)
			}
		})
	}
}

// The programs of a run have shared memory, as databases need it, unless its place may have
// another run after it: nothing but the end of the place would remove what they leave.
func TestSharedMemoryOfRuns(t *testing.T) {
	for name, tt := range map[string]struct {
		most int
		want stack.Outcome
	}{"a place of its own": {1, stack.Succeeded}, "a place that checks share": {2, stack.Failed}} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			if err := os.Chmod(filepath.Dir(s.launcher.Dir), 0o711); err != nil {
				t.Fatal(err)
			}
			s.launcher.Prepare = func(_ remote.Launch, dir string) error { return os.Mkdir(filepath.Join(dir, "agent"), 0o711) }
			c := s.open(t.TempDir(), several(tt.most))
			program, real := filepath.Join(t.TempDir(), "tofu"), shown(t)
			text := fmt.Sprintf("#!/bin/sh\nset -e\nmade=$(ipcmk -M 4096)\nipcrm -m \"${made##* }\"\nexec %s \"$@\"\n", real.Path)
			if err := executable.Write(program, []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
			c.Host().Provide(func(p *runner.Platform) { p.Readable = append(p.Readable, real.Path) })
			stacked := runnertest.NewStack(t, c, engine.Engine{Path: program, Name: real.Name, Version: real.Version}, nothing)
			id := stacked.Start(stack.CheckRun, sharing("a"), func(j *runner.Job) { j.Sandbox.Level = 2 })
			if got := stacked.Finish(id); got.Outcome != tt.want {
				t.Errorf("the check ended %s at level %d, want %s: %s\n%s", got.Outcome, got.Level, tt.want, got.Message, got.Log)
			}
		})
	}
}

// shown is the engine where a sandbox can show it to a program that starts it.
func shown(t *testing.T) engine.Engine {
	t.Helper()
	e := tofu(t)
	dir, err := os.MkdirTemp("/var/tmp", "terrier-engine-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	program, err := os.ReadFile(e.Path)
	if err != nil {
		t.Fatal(err)
	}
	e.Path = filepath.Join(dir, "tofu")
	if err := errors.Join(os.Chmod(dir, 0o755), executable.Write(e.Path, program, 0o755)); err != nil {
		t.Fatal(err)
	}
	return e
}

// processesWith lists the processes whose command line has a text.
func processesWith(t *testing.T, text string) (found []string) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lines {
		if line, err := os.ReadFile(path); err == nil && bytes.Contains(line, []byte(text)) {
			found = append(found, path+": "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

// played is an agent that a test plays.
type played struct {
	t            *testing.T
	c            *controller
	h            http.Handler
	token, proof string
	turn         int
}

// order gets the order of the first run of a place.
func (a *played) order(asks bool) *httptest.ResponseRecorder {
	a.t.Helper()
	req := httptest.NewRequest(http.MethodPost, wire.Order, nil)
	req.Header.Set("Authorization", a.token)
	req.Header.Set(wire.HeaderWaits, "true")
	req.Header.Set(wire.HeaderNext, fmt.Sprint(asks))
	w := httptest.NewRecorder()
	a.h.ServeHTTP(w, req)
	a.proof = w.Header().Get(wire.HeaderProof)
	if w.Code != http.StatusOK {
		a.t.Fatalf("the order = %d %s", w.Code, w.Body)
	}
	return w
}

// report delivers a report.
func (a *played) report(r runner.Report) {
	a.t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		a.t.Fatal(err)
	}
	body, err := json.Marshal(wire.Delivery{Report: text, Files: wire.Held{}})
	if err != nil {
		a.t.Fatal(err)
	}
	a.turn++
	req := httptest.NewRequest(http.MethodPut, wire.Report, bytes.NewReader(body))
	req.Header.Set("Authorization", a.token)
	req.Header.Set(wire.HeaderProof, a.proof)
	req.Header.Set(wire.HeaderTurn, fmt.Sprint(a.turn))
	w := httptest.NewRecorder()
	a.h.ServeHTTP(w, req)
	if w.Code != http.StatusNoContent {
		a.t.Fatalf("a report = %d %s", w.Code, w.Body)
	}
}

// quietly is the report of a check that found nothing.
func quietly() runner.Report {
	return runner.Report{Kind: stack.CheckRun, Phase: runner.Done, Outcome: stack.Succeeded, Level: 2}
}

// next asks for the next run, with the proof of the last one.
func (a *played) next() <-chan *httptest.ResponseRecorder {
	answer := make(chan *httptest.ResponseRecorder, 1)
	ctx := a.t.Context()
	go func() {
		req := httptest.NewRequestWithContext(ctx, http.MethodPost, wire.Next, nil)
		req.Header.Set("Authorization", a.token)
		req.Header.Set(wire.HeaderProof, a.proof)
		w := httptest.NewRecorder()
		a.h.ServeHTTP(w, req)
		answer <- w
	}()
	return answer
}

// check is a job that names nothing and may share its place.
func check(stackID string, change ...func(*runner.Job)) runner.Job {
	j := bare(stackID, "check-"+stackID)
	j.Kind = stack.CheckRun
	sharing("a")(&j)
	for _, f := range change {
		f(&j)
	}
	return j
}

// playing starts a check whose agent the test plays.
func playing(t *testing.T, c *controller, s *site, job runner.Job) *played {
	t.Helper()
	s.launcher.Hold = true
	if err := c.Start(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	return &played{t: t, c: c, h: c.Handler(), token: s.token(c.PlaceOf(job.Key(), job.ID))}
}

// T14: the credential of a run acts for nothing once the next run has its place, and the
// token of the place without it gets no order.
func TestCredentialsOfAFormerRun(t *testing.T) {
	s, dir := newSite(t), t.TempDir()
	c := s.open(dir, several(8))
	a := playing(t, c, s, check("a"))
	place := c.PlaceOf("a", "check-a")
	a.order(true)
	a.report(quietly())
	if err := c.Forget("a", "check-a"); err != nil {
		t.Fatal(err)
	}
	refusals := func(when string, want int) {
		t.Helper()
		before := files(t, dir)
		for _, route := range remote.Routes() {
			code := want
			switch route[1] {
			case wire.Next:
				continue // see below
			case wire.Order:
				code = http.StatusGone // the token alone gets none
			}
			if got := asked(a.h, route[0], route[1], a.token, a.proof, []byte("{}")); got.Code != code || strings.Contains(got.Body.String(), "cause") {
				t.Errorf("%s %s %s = %d %s, want %d", when, route[0], route[1], got.Code, got.Body, code)
			}
		}
		for path, text := range files(t, dir) {
			if before[path] != text {
				t.Errorf("%s a request that was refused changed %s", when, path)
			}
		}
	}
	refusals("between the runs", http.StatusGone)
	if got := asked(a.h, http.MethodPost, wire.Next, a.token, "x", nil); got.Code != http.StatusForbidden {
		t.Errorf("asking for the next run with another proof = %d, want 403", got.Code)
	}
	answer := a.next()
	awaitAsking(t, c, place)
	if err := c.Start(t.Context(), check("b")); err != nil {
		t.Fatal(err)
	}
	if p := c.PlaceOf("b", "check-b"); p != place {
		t.Fatalf("the second run has the place %v, want %v", p, place)
	}
	got := <-answer
	o, err := runner.ReadOrder(got.Body)
	if err != nil || o.Job.Stack != "b" {
		t.Fatalf("the next order is %+v, %v; want that of b", o.Job, err)
	}
	b := &played{t: t, c: c, h: a.h, token: a.token, proof: got.Header().Get(wire.HeaderProof)}
	if b.proof == a.proof || b.proof == "" {
		t.Fatalf("the proof of the second run is %q, want another one than %q", b.proof, a.proof)
	}
	refusals("before the first report of the second run", http.StatusForbidden)
	if again := <-a.next(); again.Code != http.StatusOK || again.Header().Get(wire.HeaderProof) != b.proof {
		t.Errorf("asking again for an order that was lost = %d, want it again", again.Code)
	}
	b.report(runner.Report{Kind: stack.CheckRun, Phase: runner.Planning})
	refusals("while the second run goes on", http.StatusForbidden)
	if again := <-a.next(); again.Code != http.StatusGone {
		t.Errorf("asking for the order after the first report = %d, want 410", again.Code)
	}
	if err := c.Cancel(t.Context(), "b", "check-b"); err != nil {
		t.Fatal(err)
	}
}

// A place takes no other run unless its run was a quiet check that leaves nothing behind.
func TestPlacesThatTakeNoOtherRun(t *testing.T) {
	for name, tt := range map[string]struct {
		job    func(*runner.Job)
		old    bool // the agent is of an earlier release
		report func(*runner.Report)
		first  func(c *controller) error
	}{
		"it found changes":           {report: func(r *runner.Report) { r.Changes.Change = 1 }},
		"it failed":                  {report: func(r *runner.Report) { r.Outcome = stack.Failed }},
		"it was isolated less":       {report: func(r *runner.Report) { r.Level = 1 }},
		"it need not be isolated":    {job: func(j *runner.Job) { j.Sandbox.MinLevel = 1 }},
		"it is a plan":               {job: func(j *runner.Job) { j.Kind = stack.PlanRun }},
		"its stack does not share":   {job: func(j *runner.Job) { j.Shares = "" }},
		"its agent asks for nothing": {old: true},
		"it was cancelled":           {first: func(c *controller) error { return c.Cancel(t.Context(), "a", "check-a") }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			c := s.open(t.TempDir(), several(8))
			job := check("a")
			if tt.job != nil {
				tt.job(&job)
			}
			a := playing(t, c, s, job)
			a.order(!tt.old)
			if tt.first != nil {
				a.report(runner.Report{Kind: stack.CheckRun, Phase: runner.Planning})
				if err := tt.first(c); err != nil {
					t.Fatal(err)
				}
			}
			r := quietly()
			if tt.report != nil {
				tt.report(&r)
			}
			a.report(r)
			if err := c.Forget("a", "check-a"); err != nil {
				t.Fatal(err)
			}
			if n := c.OpenPlaces(); n != 0 {
				t.Errorf("%d places are open after the run, want none", n)
			}
			// Its place may be gone by now, and the token with it.
			if got := <-a.next(); got.Code != http.StatusGone && got.Code != http.StatusUnauthorized {
				t.Errorf("asking for another run = %d, want 410 or 401", got.Code)
			}
		})
	}
}

// A run has an open place only if its own would be made in the same way.
func TestPlacesThatARunDoesNotTake(t *testing.T) {
	for name, change := range map[string]func(*runner.Job){
		"of another tenant":   func(j *runner.Job) { j.Shares = "b" },
		"of another template": func(j *runner.Job) { j.Pod = &runner.Pod{Template: []byte(`{"spec":{}}`)} },
		"of another account":  func(j *runner.Job) { j.Pod = &runner.Pod{Account: "other"} },
		"of another network":  func(j *runner.Job) { j.Sandbox.Network = "none" },
		"a plan":              func(j *runner.Job) { j.Kind = stack.PlanRun },
		"an apply":            func(j *runner.Job) { j.Kind = stack.ApplyRun },
		"beside its stack":    func(j *runner.Job) { j.Kind, j.Beside = stack.PlanRun, "pr-1" },
	} {
		t.Run(name, func(t *testing.T) {
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
			job := check("b", change)
			if err := c.Start(t.Context(), job); err != nil {
				t.Fatal(err)
			}
			if p := c.PlaceOf(job.Key(), job.ID); p == place {
				t.Errorf("the run has the place %v of another one", p)
			}
		})
	}
}
