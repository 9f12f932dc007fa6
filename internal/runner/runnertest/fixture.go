// Package runnertest holds the tests that every runner has to pass, whatever it
// isolates runs with, as long as it reads paths of the test machine (see Runner), and what such tests are built from. They drive a real
// engine; the modules use nothing but what is built into it.
//
// Start reading at Run.
package runnertest

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// patience bounds every wait of a test: a machine that is busy is slow, and a
// test that waits this long has failed.
const patience = 5 * time.Minute

// Stack is a managed stack under test: it plays the part of the controller,
// which carries the state from run to run.
type Stack struct {
	t      testing.TB
	runner Runner
	Job    runner.Job // what all runs have in common
	State  []byte
	runs   int
	fresh  bool // see Fixture
}

var stacks atomic.Int64

// NewStack returns a stack of the module with this configuration.
func NewStack(t testing.TB, r Runner, e engine.Engine, module string) *Stack {
	t.Helper()
	s := &Stack{t: t, runner: r}
	r.Host().set(func() { r.Host().engines[e.Path] = e })
	s.Job = runner.Job{
		Stack: "stack-" + string('a'+rune(stacks.Add(1)%26)) + "-" + time.Now().Format("150405.000000"),
		Name:  "test/" + t.Name(), Created: time.Now(), Managed: true,
		Engine: runner.Engine{Asked: e.Path, Name: e.Name, Version: e.Version},
		Tree:   runner.Tree{Digest: "sha256:inline"},
		Files: []workdir.File{
			{Path: "main.tf", Mode: 0o600, Content: []byte(module)},
			{Path: "terrier_override.tf", Mode: 0o600, Content: []byte("terraform {\n  backend \"http\" {\n  }\n}\n")},
		},
		Options: runner.Options{InitKey: "key"},
		Sandbox: runner.Sandbox{Network: "none"},
	}
	t.Cleanup(func() {
		if err := s.runner.Remove(s.Job.Stack); err != nil {
			t.Errorf("Remove() = %v", err)
		}
	})
	return s
}

// Use makes the stack go on with another runner.
func (s *Stack) Use(r Runner) {
	r.Host().adopt(s.runner.Host())
	s.runner = r
}

// Beside returns the stack as runs beside it have it, under a name of their own.
func (s *Stack) Beside(name string) *Stack {
	b := *s
	b.Job.Beside, b.runs = name, 0
	b.Job.Files = append([]workdir.File(nil), s.Job.Files...)
	return &b
}

// Allow lets the runs of the stack's runner write a directory.
func (s *Stack) Allow(dir string) {
	h := s.runner.Host()
	h.Provide(func(p *runner.Platform) { p.Writable = append(p.Writable, dir) })
}

// Archive makes an archive the stack's tree.
func (s *Stack) Archive(path, digest string) {
	h := s.runner.Host()
	h.set(func() { h.archives[digest] = path })
	s.Job.Tree.Archive, s.Job.Tree.Digest = digest, digest
}

// Start starts a run of this kind, changed as the test wants it.
func (s *Stack) Start(kind stack.RunKind, change ...func(*runner.Job)) string {
	s.t.Helper()
	s.runs++
	job := s.Job
	job.ID, job.Kind, job.State = string(kind)+"-"+strings.Repeat("x", s.runs), kind, runner.ContentOf(s.State)
	job.Files = append([]workdir.File(nil), s.Job.Files...)
	for _, c := range change {
		c(&job)
	}
	if err := s.runner.Start(s.t.Context(), job); err != nil {
		s.t.Fatalf("Start(%s) = %v", kind, err)
	}
	return job.ID
}

// Await waits for the end of the stack's run.
func (s *Stack) Await() runner.Report {
	s.t.Helper()
	deadline := time.After(patience)
	for {
		if r := s.Current(); r != nil && r.Phase == runner.Done {
			return *r
		}
		select {
		case <-s.runner.Ended(): // maybe of another stack
		case <-deadline:
			s.t.Fatalf("the run has not ended: %+v", s.Current())
		}
	}
}

// Current returns the stack's run.
func (s *Stack) Current() *runner.Report {
	s.t.Helper()
	r, err := s.runner.Current(s.Job.Key())
	if err != nil {
		s.t.Fatalf("Current() error = %v", err)
	}
	return r
}

// Reach waits until the stack's run is in a phase: a report may be late.
func (s *Stack) Reach(p runner.Phase) *runner.Report {
	s.t.Helper()
	return s.reach(string(p), func(r *runner.Report) bool { return r.Phase == p })
}

// reach waits until the report of the stack's run is as is says.
func (s *Stack) reach(what string, is func(*runner.Report) bool) *runner.Report {
	s.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for {
		if r := s.Current(); r != nil && is(r) {
			return r
		}
		select {
		case <-tick.C:
		case <-deadline:
			s.t.Fatalf("the run is not %s: %+v", what, s.Current())
		}
	}
}

// Read returns a file of a run, or nil if there is none.
func (s *Stack) Read(id, file string) []byte {
	s.t.Helper()
	f, err := s.runner.Open(s.Job.Key(), id, file)
	if err != nil {
		return nil
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		s.t.Fatal(err)
	}
	return data
}

// Done is a run that has ended: its report and the files that matter.
type Done struct {
	runner.Report
	Plan, Doc, Outputs, Log, Events, LockFile, Uses []byte

	fresh bool // see Fixture
}

// Finish waits for the end of a run, records its state as a controller would,
// and forgets it.
func (s *Stack) Finish(id string) Done {
	s.t.Helper()
	d := Done{Report: s.Await(), fresh: s.fresh}
	if d.ID != id {
		s.t.Fatalf("run %s has ended, want %s", d.ID, id)
	}
	for file, to := range map[string]*[]byte{runner.FilePlan: &d.Plan, runner.FilePlanDoc: &d.Doc, runner.FileOutputs: &d.Outputs,
		runner.FileLog: &d.Log, runner.FileEvents: &d.Events, runner.FileLockHCL: &d.LockFile, runner.FileUses: &d.Uses} {
		*to = s.Read(id, file)
	}
	if state := s.Read(id, runner.FileState); state != nil {
		s.State = state
	}
	if err := s.runner.Forget(s.Job.Key(), id); err != nil {
		s.t.Fatalf("Forget() = %v", err)
	}
	return d
}

// Must runs a run to its end and fails the test unless it succeeds.
func (s *Stack) Must(kind stack.RunKind, change ...func(*runner.Job)) Done {
	s.t.Helper()
	d := s.Finish(s.Start(kind, change...))
	if d.Outcome != stack.Succeeded {
		s.t.Fatalf("%s ended %s: %s\n%s", kind, d.Outcome, d.Message, d.Log)
	}
	return d
}

// Saved makes a run apply the plan of d.
func Saved(d Done) func(*runner.Job) {
	return func(j *runner.Job) {
		j.Plan, j.LockFile = runner.ContentOf(d.Plan), runner.ContentOf(d.LockFile)
		j.Lineage, j.Serial = d.State.Lineage, d.State.Serial
	}
}

// Serial returns the serial of a state.
func Serial(t testing.TB, state []byte) int {
	t.Helper()
	var s struct{ Serial int }
	if err := json.Unmarshal(state, &s); err != nil {
		t.Fatalf("reading state: %v", err)
	}
	return s.Serial
}

// Gate stands between a run and its end: a pipe that code in the sandbox writes
// to when it is there and reads from until it may go on.
type Gate struct {
	Dir         string // for Stack.Allow
	here, enter *os.File
}

// NewGate makes a gate.
func NewGate(t testing.TB) *Gate {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return newGate(t, dir)
}

// newGate makes a gate in a directory.
func newGate(t testing.TB, dir string) *Gate {
	t.Helper()
	g := &Gate{Dir: dir}
	for name, to := range map[string]**os.File{"here": &g.here, "enter": &g.enter} {
		path := filepath.Join(g.Dir, name)
		if err := unix.Mkfifo(path, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o666); err != nil {
			t.Fatal(err)
		}
		// Both ends open here: a program at the gate never waits for an open.
		f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		*to = f
		t.Cleanup(func() { f.Close() })
	}
	return g
}

// Command is what the code in the sandbox runs to wait at the gate.
func (g *Gate) Command() string {
	return "echo here > " + filepath.Join(g.Dir, "here") + "; read line < " + filepath.Join(g.Dir, "enter")
}

// Arrived waits until a program waits at the gate.
func (g *Gate) Arrived(t testing.TB) {
	t.Helper()
	if err := g.here.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	if _, err := g.here.Read(buf); err != nil {
		t.Fatalf("no program came to the gate: %v", err)
	}
}

// passed reports whether a program came to the gate, once it has ended.
func (g *Gate) passed(t testing.TB) bool {
	t.Helper()
	const nobody = "nobody\n"
	if _, err := g.here.WriteString(nobody); err != nil { // a read of an empty pipe would wait
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	n, err := g.here.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n]) != nobody
}

// Open lets the program that waits go on.
func (g *Gate) Open(t testing.TB) {
	t.Helper()
	if _, err := g.enter.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
}

// Has reports whether text stands in any of files.
func Has(text string, files ...[]byte) bool {
	for _, f := range files {
		if bytes.Contains(f, []byte(text)) {
			return true
		}
	}
	return false
}
