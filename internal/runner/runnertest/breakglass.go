package runnertest

import (
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// types makes a run execute the command of a user.
func types(command string) func(*runner.Job) {
	return func(j *runner.Job) { j.Command = strings.Fields(command) }
}

// inMain puts another text in the place of the module, which is the first file.
func inMain(module string) func(*runner.Job) {
	return func(j *runner.Job) { j.Files[0].Content, j.Options.InitKey = []byte(module), "another" }
}

// backendFile names the file of the backend as a controller does.
func backendFile(s *Stack) {
	for i, f := range s.Job.Files {
		if strings.HasSuffix(f.Path, "_override.tf") {
			s.Job.Files[i].Path = "backend_override.tf"
		}
	}
}

func breakGlass(t *testing.T, f Fixture) {
	s := f.stack(t, f.New(t), oneResource+"output \"b\" {\n  sensitive = true\n  value = \"canary-of-break-glass\"\n}\n")
	backendFile(s)
	s.Must(stack.ApplyRun, Saved(s.Must(stack.PlanRun)))
	before := Serial(t, s.State)

	for command, want := range map[string]string{
		"state list": "terraform_data.a\n", "state show terraform_data.a": "# terraform_data.a:", "output -raw a": "one",
		"plan": "No changes.", "validate": "The configuration is valid", "graph": "digraph", "providers": "terraform.io/builtin/terraform", "state rm -dry-run terraform_data.a": "Would remove",
	} {
		d := s.Must(stack.BreakGlassRun, types(command))
		if !Has(want, d.Log) || s.Read(d.ID, runner.FileState) != nil || Serial(t, s.State) != before {
			t.Errorf("%s: the log is %q, want %q in it; and the state as it was", command, d.Log, want)
		}
	}
	if d := s.Must(stack.BreakGlassRun, types("output -raw b")); Has("canary", d.Log) {
		t.Errorf("a sensitive output is in the log: %s", d.Log)
	}
	d := s.Must(stack.BreakGlassRun, types("state mv terraform_data.a terraform_data.b"))
	if Serial(t, s.State) <= before || !Has(`"name":"b"`, s.State) || d.State.Serial != uint64(Serial(t, s.State)) {
		t.Errorf("after state mv the report says %+v and the state is %s, want it to be stored", d.State, s.State)
	}
	if d := s.Finish(s.Start(stack.BreakGlassRun, types("state show terraform_data.none"))); d.Outcome != stack.Failed || d.Step != "glass" || !strings.Contains(d.Message, "No instance found") {
		t.Errorf("a command that fails ended %s in %q: %s", d.Outcome, d.Step, d.Message)
	}
	for _, command := range []string{"apply", "console", "state push x", "plan -out=x"} {
		if d := s.Finish(s.Start(stack.BreakGlassRun, types(command))); d.Outcome != stack.Failed || d.Reason != "CommandInvalid" || len(d.Steps) != 0 {
			t.Errorf("%s ended %s with %q after the steps %q, want it to be refused before anything is run", command, d.Outcome, d.Reason, steps(d))
		}
	}
}

// A module that cannot be read, and a source without it, do not keep a user
// from the state.
func breakGlassWithABrokenModule(t *testing.T, f Fixture) {
	for _, workspace := range []string{"", "blue"} {
		s := f.stack(t, f.New(t), oneResource)
		backendFile(s)
		if s.Job.Workspace = workspace; workspace != "" {
			s.Job.Files[1].Content = []byte("terraform {\n  backend \"local\" {\n  }\n}\n")
		}
		s.Must(stack.ApplyRun, Saved(s.Must(stack.PlanRun)))
		broken := inMain("resource \"terraform_data\" {")
		if d := s.Finish(s.Start(stack.PlanRun, broken)); d.Outcome != stack.Failed {
			t.Fatalf("planning a broken module ended %s", d.Outcome)
		}
		if d := s.Must(stack.BreakGlassRun, broken, types("state list")); !Has("run without the module", d.Log) || !Has("terraform_data.a\n", d.Log) {
			t.Errorf("the log is %s, want what is in the state", d.Log)
		}
		s.Must(stack.BreakGlassRun, broken, types("state rm terraform_data.a"))
		if Has("terraform_data", s.State) {
			t.Errorf("the state is %s, want it to be empty", s.State)
		}
		if d := s.Finish(s.Start(stack.BreakGlassRun, broken, types("validate"))); d.Outcome != stack.Failed || !Has("could not be prepared", d.Log) {
			t.Errorf("a command about the module ended %s: %s", d.Outcome, d.Log)
		}
		if plan := s.Must(stack.PlanRun); plan.Changes.Add != 1 {
			t.Errorf("the next plan does %v, want it to be of the module again", plan.Changes)
		}
	}
}
