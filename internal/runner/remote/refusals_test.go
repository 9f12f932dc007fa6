package remote_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/remote"
	"github.com/terrier-iac/terrier/internal/runner/remote/wire"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/stack"
)

// write writes a file, and the directories above it.
func write(t *testing.T, data string, path ...string) string {
	t.Helper()
	file := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// config is that of a controller on a directory.
func (s *site) config(dir string) remote.Config {
	return remote.Config{Dir: dir, Launcher: s.launcher, Identify: s.launcher.Identify, Contents: runnertest.NewHost(), Key: bytes.Repeat([]byte{7}, 32),
		Log: slog.New(slog.DiscardHandler)}
}

// refusedAs checks that a runner is refused because of the runs of the other kind.
func refusedAs(t *testing.T, err error, as, owner string) {
	t.Helper()
	if fault.Reason(err, "") != runner.OtherRunner || !strings.Contains(err.Error(), "--runs-as="+as+": ") || !strings.Contains(err.Error(), "start with --runs-as="+owner) {
		t.Errorf("opening as %s = %v, want that it is refused for runs of %s", as, err, owner)
	}
}

// A directory with runs of processes is not opened for places, whether or not it says
// whose they are, and nothing of them is removed.
func TestRunsOfProcessesAreRefused(t *testing.T) {
	s, dir := newSite(t), t.TempDir()
	write(t, `{"id":"run","stack":"a","phase":"Applying"}`, dir, "runs", "a", "run", "run.json")
	write(t, "{}", dir, "runs", "a", "run", runner.FileState)
	for _, owner := range []string{"", runner.AsProcesses} {
		if owner != "" {
			write(t, owner+"\n", dir, "runs-as")
		}
		before := files(t, dir)
		_, err := remote.New(t.Context(), s.config(dir))
		refusedAs(t, err, runner.AsPods, runner.AsProcesses)
		if after := files(t, dir); len(after) != len(before) {
			t.Errorf("left are %v of %v", after, before)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, "runs", "a", "run")); err != nil {
		t.Fatal(err)
	}
	s.close(s.open(dir))
}

// A directory with runs or removals of places is not opened for processes.
func TestRunsOfPlacesAreRefused(t *testing.T) {
	s, dir := newSite(t), t.TempDir()
	s.launcher.Hold = true
	c := s.open(dir)
	if err := c.Start(t.Context(), bare("a", "run")); err != nil {
		t.Fatal(err)
	}
	s.close(c)
	_, err := runner.New(runner.Config{Dir: dir})
	refusedAs(t, err, runner.AsProcesses, runner.AsPods)
	if err := os.Remove(filepath.Join(dir, "runs-as")); err != nil { // as an earlier version
		t.Fatal(err)
	}
	_, err = runner.New(runner.Config{Dir: dir})
	refusedAs(t, err, runner.AsProcesses, runner.AsPods)
	c = s.open(dir)
	if err := c.Cancel(t.Context(), "a", "run"); err != nil {
		t.Fatal(err)
	}
	if err := c.Forget("a", "run"); err != nil {
		t.Fatal(err)
	}
	awaitRemoved(t, dir)
	s.close(c)
	removal := write(t, "{}", dir, "removals", "x.json")
	_, err = runner.New(runner.Config{Dir: dir})
	refusedAs(t, err, runner.AsProcesses, runner.AsPods)
	if err := os.Remove(removal); err != nil {
		t.Fatal(err)
	}
	p, err := runner.New(runner.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// A report without a record of its place is never removed. Its stack waits for the record, and
// no other one does.
func TestReportWithoutAPlace(t *testing.T) {
	s, dir := newSite(t), t.TempDir()
	write(t, runner.AsPods, dir, "runs-as")
	report := write(t, `{"id":"run","stack":"a","phase":"Applying"}`, dir, "runs", "a", "run", "run.json")
	c := s.open(dir)
	for range 2 {
		if r, err := c.Current("a"); err == nil || !strings.Contains(err.Error(), "no place.json") {
			t.Errorf("Current() = %+v, %v, want that the record is missing", r, err)
		}
		c.ReadAgain()
	}
	if _, err := os.Stat(report); err != nil {
		t.Error(err)
	}
}

// pretend makes a place that this installation did not make.
func (s *site) pretend(name, key string) remote.Place {
	s.t.Helper()
	p := remote.Place{Namespace: "test", Name: name, UID: strings.Repeat("u", 36)}
	dir := filepath.Join(s.launcher.Dir, name)
	if err := os.Mkdir(dir, 0o711); err != nil {
		s.t.Fatal(err)
	}
	for file, text := range map[string]string{"uid": p.UID, "key": key, "seal": "none"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	return p
}

// A place with the longest name that a cluster allows is removed as any other one.
func TestPlaceWithALongName(t *testing.T) {
	s, dir := newSite(t), t.TempDir()
	p := s.pretend(strings.Repeat("x", 253), "a")
	s.open(dir)
	await(t, "the place is gone", func() bool {
		_, err := os.Stat(s.launcher.PlaceDir(p))
		return os.IsNotExist(err)
	})
	awaitRemoved(t, dir)
}

// A place keeps no stack of another namespace from beginning a run, whatever key and name
// it has.
func TestPlaceOfAnotherNamespace(t *testing.T) {
	s := newSite(t)
	s.launcher.Hold = true
	s.pretend("x", "a")
	s.launcher.Fail(io.ErrUnexpectedEOF)
	defer s.launcher.Fail(nil)
	c := s.open(t.TempDir())
	if err := c.Start(t.Context(), bare("a", "run")); fault.Of(err) != fault.Later {
		t.Errorf("Start() in the namespace of the place = %v, want Later", err)
	}
	job := bare("a", "run")
	job.Name = "other/a"
	if err := c.Start(t.Context(), job); err != nil {
		t.Errorf("Start() in another namespace = %v", err)
	}
}

// A record that is older than the run, as one from a backup, ends no run that goes on.
func TestRecordIsOlderThanTheRun(t *testing.T) {
	s, dir := newSite(t), t.TempDir()
	c := s.open(dir)
	st, g, id := applying(t, c)
	s.close(c)
	file := filepath.Join(c.Dir(st.Job.Stack, id), runner.FilePlace)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var rec map[string]json.RawMessage
	if err := json.Unmarshal(data, &rec); err != nil {
		t.Fatal(err)
	}
	delete(rec, "ordered")
	if data, err = json.Marshal(rec); err != nil {
		t.Fatal(err)
	}
	write(t, string(data), file)
	c = s.open(dir)
	st.Use(c)
	g.Open(t)
	if d := st.Finish(id); d.Outcome != stack.Succeeded || d.Resources != 2 {
		t.Errorf("ended %s with %d resources: %s", d.Outcome, d.Resources, d.Message)
	}
}

// A report that cannot be read for a while ends no run.
func TestReportCannotBeReadForAWhile(t *testing.T) {
	s := newSite(t)
	c := s.open(t.TempDir())
	st, g, id := applying(t, c)
	p := c.PlaceOf(st.Job.Stack, id)
	file := filepath.Join(s.launcher.AgentDir(p), "runner", "runs", st.Job.Stack, id, "run.json")
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, "{", file)
	await(t, "the agent has seen it", func() bool {
		log, err := os.ReadFile(filepath.Join(s.launcher.PlaceDir(p), "agent.log"))
		return err == nil && strings.Contains(string(log), "reading the report")
	})
	write(t, string(good), file)
	g.Open(t)
	if d := st.Finish(id); d.Outcome != stack.Succeeded || d.Resources != 2 {
		t.Errorf("ended %s with %d resources: %s", d.Outcome, d.Resources, d.Message)
	}
}

// The agent of a run sends one body at a time, says its size, and leaves no more than a
// run may.
func TestBodiesOfARunAreBounded(t *testing.T) {
	c, token := newSite(t).held(t.TempDir())
	h := c.Handler()
	put := func(name string, body io.Reader, size int64) int {
		req := httptest.NewRequest(http.MethodPut, wire.File+name, body)
		req.ContentLength = size
		req.Header.Set("Authorization", token)
		req.Header.Set(wire.HeaderProof, c.Proof("a", "run"))
		req.Header.Set(wire.HeaderTurn, "1")
		req.Header.Set(wire.HeaderDigest, stack.Sum([]byte("{}")))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		return w.Code
	}
	r, w := io.Pipe()
	first := make(chan int)
	go func() { first <- put(runner.FilePlan, r, 2) }()
	if _, err := w.Write([]byte("{")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{runner.FilePlanDoc, runner.FileState} {
		if got := put(name, strings.NewReader("{}"), 2); got != http.StatusServiceUnavailable {
			t.Errorf("a second body = %d, want 503", got)
		}
	}
	if _, err := w.Write([]byte("}")); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if got := <-first; got != http.StatusNoContent {
		t.Errorf("the first body = %d, want 204", got)
	}
	if got := put(runner.FilePlanDoc, strings.NewReader("{}"), -1); got != http.StatusLengthRequired {
		t.Errorf("a body without a size = %d, want 411", got)
	}
	// Files of no content stand in for large ones.
	for _, name := range []string{runner.FilePlan, runner.FilePlanRaw} {
		if err := os.Truncate(write(t, "", c.Dir("a", "run"), name), 512<<20); err != nil {
			t.Fatal(err)
		}
	}
	if got := put(runner.FilePlanDoc, strings.NewReader("{}"), 2); got != http.StatusRequestEntityTooLarge {
		t.Errorf("one file more than a run may leave = %d, want 413", got)
	}
	if got := put(runner.FileState, strings.NewReader("{}"), 2); got != http.StatusNoContent {
		t.Errorf("the state of a run that left too much = %d, want 204", got)
	}
	if err := c.Cancel(t.Context(), "a", "run"); err != nil {
		t.Error(err)
	}
}
