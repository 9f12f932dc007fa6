package runner_test

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// What a stack gives its runs reaches them, and nothing of it is left when they
// end: no file, and nothing of what init wrote down.
func TestWhatRunsAreGivenEndsWithThem(t *testing.T) {
	const home, setting = "canary-at-home-0c55", "canary-of-a-backend-0c55"
	f, dir := &foreign{}, t.TempDir()
	shown := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		shown <- user + ":" + password
		f.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s := runnertest.NewStack(t, open(t, dir), tofu(t), "")
	s.Job.Managed, s.Job.Sandbox.Network, s.Job.Options.BackendType = false, "host", "http"
	s.Job.Options.BackendFile = runner.BackendFile
	settings := "address = \"" + server.URL + "\"\nusername = \"me\"\npassword = \"" + setting + "\"\n"
	s.Job.Limits.CPUs = 3
	s.Job.Home = []workdir.File{{Path: ".config/deep/cred", Mode: 0o600, Content: []byte(home)}}
	s.Job.Files[0].Content = []byte(`
output "cred"  { value = sha256(file(pathexpand("~/.config/deep/cred"))) }
resource "terraform_data" "who" {
  provisioner "local-exec" {
    command = "test \"$(stat -c %a ~/.config/deep/cred)\" = 600 && test \"$GOMAXPROCS\" = 3 && echo home:$HOME:; grep -o \":/work/home:\" /etc/passwd || true"
  }
}
`)
	s.Job.Files = append(s.Job.Files, workdir.File{Path: runner.BackendFile, Mode: 0o600, Content: []byte(settings)})
	s.Job.Mask = []string{home, setting}

	plan := s.Must(stack.PlanRun)
	id := s.Start(stack.ApplyRun, runnertest.Saved(plan))
	s.Await()
	log := string(s.Read(id, runner.FileLog))
	if !strings.Contains(log, "/home:") || strings.Contains(log, "canary") {
		t.Errorf("the log of the apply does not say that the file was there, or says what is in it:\n%s", log)
	}
	apply := s.Finish(id)
	if apply.Outcome != stack.Succeeded || taken(apply.Report) != "init apply state" {
		t.Fatalf("the apply ended %s after %q, want init again and no new directory: %s", apply.Outcome, taken(apply.Report), apply.Message)
	}
	if got := <-shown; got != "me:"+setting {
		t.Errorf("the backend was shown %q", got)
	}
	if d := s.Must(stack.CheckRun); !d.Changes.None() {
		t.Errorf("checking an unchanged stack found %v", d.Changes)
	}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if runnertest.Has("canary-", content) {
			t.Errorf("%s holds what a run was given", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	// A run without them has an empty home.
	s.Job.Home = nil
	if d := s.Finish(s.Start(stack.PlanRun)); d.Outcome != stack.Failed || !strings.Contains(d.Message, ".config/deep/cred") {
		t.Errorf("without the file: ended %s: %s", d.Outcome, d.Message)
	}
}

// taken are the engine's steps of a run.
func taken(r runner.Report) string {
	var names []string
	for _, s := range r.Steps {
		names = append(names, s.Name)
	}
	return strings.Join(names, " ")
}
