package runner_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit/apart"
)

// bulk is a module that makes a few things of some size, once its first one has
// filled the disk that the run is on.
func bulk(filling string) string {
	return `
resource "terraform_data" "fill" {
  provisioner "local-exec" {
    command = "` + filling + `"
  }
}
resource "terraform_data" "bulk" {
  depends_on = [terraform_data.fill]
  count      = 20
  input      = join("", [for i in range(1000) : "0123456789"])
}
`
}

// free is how many bytes fit on the disk.
func free(t *testing.T, dir string) uint64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return st.Bavail * uint64(st.Bsize)
}

// F42: a disk that fills up in the middle of an apply. State, events and report
// are written all the same, in the room that the run has held from its start.
func TestStateIsSavedOnAFullDisk(t *testing.T) {
	dir := apart.Disk(t, 24, 0o711)
	if dir == "" {
		return
	}
	s := runnertest.NewStack(t, open(t, dir), tofu(t), bulk("head -c 100M /dev/zero > fill; true"))
	id := s.Start(stack.ApplyRun, runnertest.Saved(s.Must(stack.PlanRun)))
	r := s.Await()
	if r.Outcome != stack.Succeeded || r.Resources != 21 {
		t.Errorf("ended %s with %d resources: %s", r.Outcome, r.Resources, r.Message)
	}
	if events := s.Read(id, runner.FileEvents); strings.Count(string(events), `"type":"apply_complete"`) != 21 {
		t.Errorf("the events do not tell of all operations:\n%s", events)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "runs", s.Job.Stack, id, "reserve*")); err != nil || len(left) > 0 {
		t.Errorf("%q is left, %v", left, err)
	}
	s.Finish(id)
	if d := s.Must(stack.CheckRun); !d.Changes.None() {
		t.Errorf("after that, a check finds %v", d.Changes)
	}
}

// F42: what fails because the disk is full says so, and what was there before
// is there still.
func TestFullDiskIsNamed(t *testing.T) {
	dir := apart.Disk(t, 24, 0o711)
	if dir == "" {
		return
	}
	s := runnertest.NewStack(t, open(t, dir), tofu(t), bulk("true"))
	s.Must(stack.ApplyRun, runnertest.Saved(s.Must(stack.PlanRun)))
	old := string(s.State)

	s.Job.Files[0].Content = []byte(bulk("true") + "resource \"terraform_data\" \"more\" {\n  provisioner \"local-exec\" {\n    command = \"head -c 100M /dev/zero > fill\"\n  }\n}\n")
	plan := s.Must(stack.PlanRun)
	d := s.Finish(s.Start(stack.ApplyRun, runnertest.Saved(plan)))
	if d.Outcome != stack.Failed || d.Reason != runner.NoSpace || !strings.Contains(d.Message, "no space left") {
		t.Errorf("ended %s for %q: %s", d.Outcome, d.Reason, d.Message)
	}
	if len(s.State) < len(old) || d.Resources != 22 {
		t.Errorf("the state has %d bytes and %d resources, after %d and 21", len(s.State), d.Resources, len(old))
	}

	// Nothing is begun that could not be written down.
	plan = s.Must(stack.PlanRun)
	fill := filepath.Join(dir, "fill")
	if err := os.WriteFile(fill, make([]byte, free(t, dir)-2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	before := string(s.State)
	d = s.Finish(s.Start(stack.ApplyRun, runnertest.Saved(plan)))
	if d.Outcome != stack.Failed || d.Reason != runner.NoSpace || len(d.Steps) != 0 || string(s.State) != before {
		t.Errorf("without room for the state: ended %s for %q after %+v: %s", d.Outcome, d.Reason, d.Steps, d.Message)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	if d := s.Must(stack.CheckRun); d.Changes.None() {
		t.Error("a check of what was not applied finds nothing")
	}
}
