package runner_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// slow is a module that makes one thing and then waits at the gate.
func slow(g *runnertest.Gate) string {
	return `
resource "terraform_data" "first" {
  input = "made"
}
resource "terraform_data" "slow" {
  depends_on = [terraform_data.first]
  provisioner "local-exec" {
    command = "` + g.Command() + "; touch " + filepath.Join(g.Dir, "after") + `"
  }
}
`
}

// applying starts an apply that waits at a gate.
func applying(t *testing.T, p *runnertest.Local) (*runnertest.Stack, *runnertest.Gate, string) {
	t.Helper()
	g := runnertest.NewGate(t)
	s := runnertest.NewStack(t, p, tofu(t), slow(g))
	s.Allow(g.Dir)
	plan := s.Must(stack.PlanRun)
	id := s.Start(stack.ApplyRun, runnertest.Saved(plan))
	g.Arrived(t)
	return s, g, id
}

// child returns the one child process of pid.
func child(t *testing.T, pid int) int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // gone meanwhile
		}
		after := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if after[1] == strconv.Itoa(pid) {
			n, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("process %d has no child", pid)
	return 0
}

// F09: the death of the supervisor is that of everything in its sandbox.
func TestSupervisorKilledDuringApply(t *testing.T) {
	dir := t.TempDir()
	s, g, id := applying(t, open(t, dir))
	engine := child(t, s.Current().PID)
	if err := syscall.Kill(s.Current().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r := s.Await()
	if r.Outcome != stack.Killed || r.ID != id {
		t.Errorf("run %s ended %s, want %s Killed: %s", r.ID, r.Outcome, id, r.Message)
	}
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", engine)); err == nil && !strings.Contains(string(stat), ") Z ") {
		t.Errorf("the engine outlived its supervisor: %s", stat)
	}
	g.Open(t) // a surviving process would continue now
	if !runnertest.Has(`"type":"apply_complete"`, s.Read(id, runner.FileEvents)) {
		t.Error("the finished operation is not on disk")
	}
	wiped(t, dir, s.Job.Stack)
	s.Finish(id)
	// What the dead run made is not in the state; planning goes on from there.
	if d := s.Must(stack.PlanRun); d.Changes.Add != 2 {
		t.Errorf("planned changes = %v, want two to add", d.Changes)
	}
	if _, err := os.Stat(filepath.Join(g.Dir, "after")); err == nil {
		t.Error("the code in the sandbox went on after its supervisor was killed")
	}
}

// wiped checks that nothing of a run is left in its stack's work directory.
func wiped(t *testing.T, dir, stack string) {
	t.Helper()
	work := filepath.Join(dir, "stacks", stack)
	err := filepath.WalkDir(work, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := d.Name(); {
		case strings.HasSuffix(name, ".tf"), name == "plan", name == "sheet.json", name == "run", name == "shadow",
			strings.Contains(name, "tfstate") && filepath.Base(filepath.Dir(path)) != ".terraform":
			t.Errorf("%s is left in the work directory", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// F08: an engine that is killed leaves the list of what it did.
func TestEngineKilledDuringApply(t *testing.T) {
	dir := t.TempDir()
	s, _, id := applying(t, open(t, dir))
	if err := syscall.Kill(child(t, s.Current().PID), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d := s.Finish(id)
	if d.Outcome != stack.Killed || d.Step != "apply" {
		t.Errorf("ended %s in %q, want Killed in apply: %s", d.Outcome, d.Step, d.Message)
	}
	if !runnertest.Has(`"type":"apply_complete"`, d.Events) {
		t.Error("the finished operation is not on disk")
	}
	wiped(t, dir, s.Job.Stack)
}

func TestRestartFindsTheRun(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir)
	s, g, id := applying(t, first)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := open(t, dir)
	s.Use(second)
	reports, err := second.List()
	if err != nil || len(reports) != 1 || reports[0].ID != id || reports[0].Phase != runner.Applying {
		t.Fatalf("List() after a restart = %+v, %v; want the apply at work", reports, err)
	}
	g.Open(t)
	select {
	case got := <-second.Ended():
		if got != s.Job.Stack {
			t.Errorf("Ended() = %s, want %s", got, s.Job.Stack)
		}
	case <-time.After(5 * time.Minute):
		t.Fatal("the end of a run found after a restart is not announced")
	}
	if d := s.Finish(id); d.Outcome != stack.Succeeded || d.Resources != 2 {
		t.Errorf("ended %s with %d resources: %s", d.Outcome, d.Resources, d.Message)
	}
}

func TestCloseInterruptsReadsIfTold(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p, err := runnertest.NewLocal(runner.Config{Dir: dir, Binary: self, StopReads: true, Log: discard})
	if err != nil {
		t.Fatal(err)
	}
	g := runnertest.NewGate(t)
	apply := runnertest.NewStack(t, p, tofu(t), slow(g))
	apply.Allow(g.Dir)
	plan := apply.Must(stack.PlanRun)
	applyID := apply.Start(stack.ApplyRun, runnertest.Saved(plan))
	g.Arrived(t)
	reading, url := hanging(t)
	read := runnertest.NewStack(t, p, tofu(t), `
data "terraform_remote_state" "x" {
  backend = "http"
  config = {
    address = "`+url+`"
  }
}
`)
	read.Job.Sandbox.Network = "host"
	read.Job.Limits.Grace = 100 * time.Millisecond
	readID := read.Start(stack.PlanRun)
	<-reading

	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, dir)
	apply.Use(again)
	read.Use(again)
	if d := read.Finish(readID); d.Outcome != stack.Interrupted && d.Outcome != stack.Killed {
		t.Errorf("a plan ended %s after Close(), want it stopped: %s", d.Outcome, d.Message)
	}
	g.Open(t)
	if d := apply.Finish(applyID); d.Outcome != stack.Succeeded {
		t.Errorf("an apply ended %s after Close(), want Succeeded: %s", d.Outcome, d.Message)
	}
}

// hanging serves a page that never comes, and reports the first request for it.
func hanging(t *testing.T) (arrived <-chan struct{}, url string) {
	t.Helper()
	here := make(chan struct{}, 16)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		here <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	return here, server.URL
}

// F53: a stack has one supervisor.
func TestSecondSupervisorIsRefused(t *testing.T) {
	dir := t.TempDir()
	s, g, id := applying(t, open(t, dir))
	job := s.Job
	job.ID, job.Kind = "intruder", stack.ApplyRun
	if err := os.MkdirAll(filepath.Join(dir, "runs", job.Stack, job.ID), 0o700); err != nil {
		t.Fatal(err)
	}
	var answer error
	_, err := runner.Supervise(t.Context(), job, runner.Supervisor{Dir: dir, Now: time.Now, Ready: func(err error) { answer = err }})
	if fault.Of(err) != fault.Conflict || fault.Of(answer) != fault.Conflict {
		t.Errorf("a second supervisor got %v and said %v, want Conflicts", err, answer)
	}
	if err := os.RemoveAll(filepath.Join(dir, "runs", job.Stack, job.ID)); err != nil {
		t.Fatal(err)
	}
	g.Open(t)
	s.Finish(id)
}

func TestSupervisorThatCannotBeStarted(t *testing.T) {
	dir := t.TempDir()
	p, err := runnertest.NewLocal(runner.Config{Dir: dir, Binary: "/bin/false", Log: discard})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	job := runner.Job{ID: "x", Stack: "s", Kind: stack.PlanRun}
	if err := p.Start(t.Context(), job); fault.Of(err) != fault.Broken {
		t.Errorf("Start() = %v, want Broken", err)
	}
	if r, err := p.Current("s"); r != nil || err != nil {
		t.Errorf("Current() after a failed start = %+v, %v; want nothing", r, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Start(ctx, job); err == nil {
		t.Error("Start() with an ended context = nil")
	}
}

// pack makes an archive of files.
func pack(t *testing.T, files map[string]string) (path, digest string) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	path = filepath.Join(t.TempDir(), "tree.tar.gz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := archive.Pack(dir, nil, f, archive.Limits{}); err != nil {
		t.Fatal(err)
	}
	return path, fmt.Sprintf("sha256:%x", len(files))
}

func TestTreeOfAnArchive(t *testing.T) {
	dir := t.TempDir()
	p := open(t, dir)
	s := runnertest.NewStack(t, p, tofu(t), "")
	module := "output \"a\" {\n  value = file(\"../../text\")\n}\noutput \"v\" {\n  value = var.v\n}\nvariable \"v\" {\n}\n"
	files := map[string]string{
		"text": "from the tree", "envs/prod/main.tf": module, "envs/prod/v.auto.tfvars": "v = \"tree\"\n",
		"envs/prod/.terraform/terraform.tfstate": "not ours", "envs/prod/prod.tfvars": "v = \"file\"\n",
	}
	s.Archive(pack(t, files))
	s.Job.Tree.Path = "./envs/prod"
	s.Job.Files = s.Job.Files[1:]

	d := s.Must(stack.ApplyRun, runnertest.Saved(s.Must(stack.PlanRun)))
	if !runnertest.Has("from the tree", d.Outputs) || !runnertest.Has(`"value":"tree"`, d.Outputs) {
		t.Errorf("outputs = %s, want what the tree holds", d.Outputs)
	}
	// A generated file stands in for one of the tree, for this run only.
	generated := func(j *runner.Job) {
		j.Files = append(j.Files, workdir.File{Path: "v.auto.tfvars", Mode: 0o600, Content: []byte("v = \"generated\"\n")})
	}
	d = s.Must(stack.ApplyRun, runnertest.Saved(s.Must(stack.PlanRun, generated)), generated)
	if !runnertest.Has(`"value":"generated"`, d.Outputs) {
		t.Errorf("outputs = %s, want the generated value", d.Outputs)
	}
	plan := s.Must(stack.PlanRun)
	if plan.Changes.Outputs != 1 || !plan.InitSkipped {
		t.Errorf("planned %v, init skipped %v; want the tree's own file back and no init", plan.Changes, plan.InitSkipped)
	}
	if plan = s.Must(stack.PlanRun, func(j *runner.Job) { j.Options.VarFiles = []string{"envs/prod/prod.tfvars"} }); plan.Changes.Outputs != 1 {
		t.Errorf("planned %v with a variable file, want one change", plan.Changes)
	}
	// Another revision starts from nothing.
	left := filepath.Join(dir, "stacks", s.Job.Stack, "work", "tree", "left-by-a-run")
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	files["more"] = "x"
	s.Archive(pack(t, files))
	if plan = s.Must(stack.PlanRun); plan.InitSkipped {
		t.Error("init was skipped for another revision")
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("a file that a run left has reached the next revision")
	}
	for _, path := range []string{"/etc", "nowhere", "text"} {
		d := s.Finish(s.Start(stack.PlanRun, func(j *runner.Job) { j.Tree.Path = path; j.Options.InitKey = path }))
		if d.Outcome != stack.Failed || len(d.Steps) != 0 {
			t.Errorf("the path %q ended %s after %d steps, want Failed at once: %s", path, d.Outcome, len(d.Steps), d.Message)
		}
	}
}

func TestTreeThatLeadsOut(t *testing.T) {
	p := open(t, t.TempDir())
	for _, path := range []string{"..", "../..", "a/../../b"} {
		err := p.Start(t.Context(), runner.Job{ID: "x", Stack: "s", Kind: stack.PlanRun, Tree: runner.Tree{Path: path}})
		if fault.Of(err) != fault.Invalid {
			t.Errorf("Start() with the path %q = %v, want Invalid", path, err)
		}
	}
}

// foreign is a state store that is not ours, with a will of its own.
type foreign struct {
	state   []byte
	held    map[string]string // a foreign lock
	refuse  bool              // writes
	refused func()            // called before that; nil for nothing
	broken  atomic.Bool       // refuses everything, from now on
}

func (f *foreign) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	switch {
	case f.broken.Load():
		w.WriteHeader(http.StatusInternalServerError)
	case r.Method == "LOCK" && f.held != nil:
		w.WriteHeader(http.StatusLocked)
		_ = json.NewEncoder(w).Encode(f.held)
	case r.Method == "UNLOCK":
		f.held = nil
	case r.Method == http.MethodPost && f.refuse:
		if f.refused != nil {
			f.refused()
		}
		w.WriteHeader(http.StatusInsufficientStorage)
	case r.Method == http.MethodPost:
		f.state = body
	case r.Method == http.MethodGet && f.state == nil:
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodGet:
		_, _ = w.Write(f.state)
	}
}

// abroad is a stack whose state is in f.
func abroad(t *testing.T, f *foreign) *runnertest.Stack {
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	s := runnertest.NewStack(t, open(t, t.TempDir()), tofu(t), "resource \"terraform_data\" \"a\" {\n  input = \"x\"\n}\noutput \"a\" {\n  value = terraform_data.a.output\n}\n")
	s.Job.Managed = false
	s.Job.Sandbox.Network = "host"
	s.Job.Options.Backend = []string{"address=" + server.URL, "lock_address=" + server.URL, "unlock_address=" + server.URL, "retry_max=0"}
	s.Job.Options.BackendType = "http"
	return s
}

func TestForeignBackend(t *testing.T) {
	f := &foreign{}
	s := abroad(t, f)
	s.Job.Options.Outputs = true
	d := s.Must(stack.ApplyRun, runnertest.Saved(s.Must(stack.PlanRun)))
	var outputs map[string]struct{ Value string }
	if err := json.Unmarshal(d.Outputs, &outputs); err != nil || outputs["a"].Value != "x" {
		t.Errorf("outputs = %s, %v; want those the engine printed", d.Outputs, err)
	}
	if s.State != nil || !runnertest.Has(`"terraform_data"`, f.state) {
		t.Errorf("the state is with us: %s, and abroad: %s", s.State, f.state)
	}
}

// F17: a foreign lock is named, and can be broken.
func TestForeignLock(t *testing.T) {
	f := &foreign{held: map[string]string{"ID": "lock-1", "Who": "somebody@else", "Created": "2026-01-02T03:04:05Z", "Info": "nightly"}}
	s := abroad(t, f)
	d := s.Finish(s.Start(stack.PlanRun))
	if d.Outcome != stack.Locked || d.Lock == nil || d.Lock.ID != "lock-1" || d.Lock.Who != "somebody@else" || d.Lock.Info != "nightly" {
		t.Errorf("ended %s with the lock %+v: %s", d.Outcome, d.Lock, d.Message)
	}
	if d := s.Beside("pr-1").Must(stack.PlanRun); d.Lock != nil || f.held == nil {
		t.Errorf("a run beside the stack met the lock %+v, which is now %v; want it to take no notice", d.Lock, f.held)
	}
	d = s.Must(stack.PlanRun, func(j *runner.Job) { j.Options.ForceUnlock = "lock-1" })
	if d.Lock != nil || f.held != nil {
		t.Errorf("the lock %+v is still there after it was broken, reported as %+v", f.held, d.Lock)
	}
}

// F16: a state that its backend refuses is kept.
func TestForeignBackendRefusesTheState(t *testing.T) {
	f := &foreign{}
	s := abroad(t, f)
	plan := s.Must(stack.PlanRun)
	f.refuse = true
	id := s.Start(stack.ApplyRun, runnertest.Saved(plan))
	r := s.Await()
	if r.Outcome != stack.Failed || r.Rescued == nil || r.Rescued.Lineage == "" {
		t.Errorf("ended %s with the rescued state %+v: %s", r.Outcome, r.Rescued, r.Message)
	}
	if rescued := s.Read(id, runner.FileRescue); !runnertest.Has(`"name": "a"`, rescued) {
		t.Errorf("rescued state = %s, want what was made in it", rescued)
	}
	s.Finish(id)
}

func TestStateForgedByTheModule(t *testing.T) {
	s := runnertest.NewStack(t, open(t, t.TempDir()), tofu(t), `
resource "terraform_data" "a" {
  provisioner "local-exec" {
    command = "echo '{\"lineage\":\"forged\",\"serial\":99}' > errored.tfstate"
  }
}
`)
	d := s.Must(stack.ApplyRun, runnertest.Saved(s.Must(stack.PlanRun)))
	if d.State.Lineage == "forged" || runnertest.Has("forged", s.State) {
		t.Errorf("the module has replaced the state by %s", s.State)
	}
	if d.Rescued == nil || d.Rescued.Serial != 99 {
		t.Errorf("rescued = %+v, want what was left, apart", d.Rescued)
	}
	if d := s.Must(stack.CheckRun); !d.Changes.None() {
		t.Errorf("changes after that = %v, want none", d.Changes)
	}
}

// A supervisor that dies takes its script and the engine of it along, and what the engine
// did is known.
func TestSupervisorKilledDuringScript(t *testing.T) {
	dir := t.TempDir()
	g := runnertest.NewGate(t)
	s := runnertest.NewStack(t, open(t, dir), tofu(t), slow(g))
	s.Allow(g.Dir)
	id := s.Start(stack.ScriptRun, func(j *runner.Job) {
		j.Script = &runner.Script{Apply: []byte("terraform apply -auto-approve\ntouch " + filepath.Join(g.Dir, "after"))}
	})
	g.Arrived(t)
	if err := syscall.Kill(s.Current().PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r := s.Await()
	if r.Outcome != stack.Killed || r.ID != id {
		t.Errorf("run %s ended %s, want %s Killed: %s", r.ID, r.Outcome, id, r.Message)
	}
	g.Open(t) // a surviving process would continue now
	if events := s.Read(id, runner.FileEvents); !runnertest.Has(`"type":"apply_complete"`, events) {
		t.Errorf("the finished operation is not on disk:\n%s", events)
	}
	wiped(t, dir, s.Job.Stack)
	for _, left := range []string{filepath.Join(dir, "stacks", s.Job.Stack, "programs"), filepath.Join(g.Dir, "after")} {
		if _, err := os.Stat(left); err == nil {
			t.Errorf("%s is there after the supervisor was killed", left)
		}
	}
	s.Finish(id)
	if d := s.Must(stack.PlanRun); d.Changes.Add != 2 {
		t.Errorf("planned changes = %v, want two to add", d.Changes)
	}
}

// A supervisor that a program has stopped, or that waits for what never comes, does not end its
// run when it is asked to. The run is killed instead, and says why.
func TestSupervisorThatDoesNotEndItsRun(t *testing.T) {
	p, err := runnertest.NewLocal(runner.Config{Dir: t.TempDir(), Binary: bound(t), LateLimit: 100 * time.Millisecond, Log: discard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	reading, url := hanging(t)
	s := runnertest.NewStack(t, p, tofu(t), "data \"terraform_remote_state\" \"x\" {\n  backend = \"http\"\n  config = {\n    address = \""+url+"\"\n  }\n}\n")
	s.Job.Sandbox.Network, s.Job.Limits.Grace = "host", 100*time.Millisecond
	id := s.Start(stack.PlanRun)
	<-reading
	if err := syscall.Kill(s.Current().PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := p.Cancel(t.Context(), s.Job.Key(), id); err != nil {
		t.Fatal(err)
	}
	d := s.Finish(id)
	if d.Outcome != stack.Killed || d.Reason != runner.Stuck || !strings.Contains(d.Message, "after it was cancelled") {
		t.Errorf("ended %s for %q: %s", d.Outcome, d.Reason, d.Message)
	}
}
