package runner_test

import (
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// own is the file with the variables of a stack.
func own(text string) workdir.File {
	return workdir.File{Path: workdir.VariablesPath, Mode: 0o600, Content: []byte(text)}
}

// Sources of modules may depend on variables, wherever those are set: init is
// given all of them, and again when they change.
func TestInitKnowsTheVariables(t *testing.T) {
	module := "variable \"which\" {\n  type = string\n}\nmodule \"m\" {\n  source = \"./modules/${var.which}\"\n}\noutput \"m\" {\n  value = module.m.name\n}\n"
	files := map[string]string{
		"main.tf": module, "env/a.tfvars": "which = \"a\"\n",
		"modules/a/m.tf": "output \"name\" {\n  value = \"module a\"\n}\n", "modules/b/m.tf": "output \"name\" {\n  value = \"module b\"\n}\n",
	}
	for name, give := range map[string]func(s *runnertest.Stack, which string){
		"by tfVarsFiles":    func(s *runnertest.Stack, which string) { s.Job.Options.VarFiles = []string{"env/" + which + ".tfvars"} },
		"by spec.vars":      func(s *runnertest.Stack, which string) { s.Job.Files[0] = own(`{"which": "` + which + `"}`) },
		"by an environment": func(s *runnertest.Stack, which string) { s.Job.Env = map[string]string{"TF_VAR_which": which} },
	} {
		t.Run(name, func(t *testing.T) {
			files["env/b.tfvars"] = "which = \"b\"\n"
			s := runnertest.NewStack(t, open(t, t.TempDir()), tofu(t), "")
			s.Archive(pack(t, files))
			s.Job.Files[0] = own("{}")
			give(s, "a")
			plan := s.Must(stack.PlanRun)
			if apply := s.Must(stack.ApplyRun, runnertest.Saved(plan)); !runnertest.Has("module a", apply.Outputs) {
				t.Errorf("outputs = %s, want those of module a", apply.Outputs)
			}
			give(s, "b")
			plan = s.Must(stack.PlanRun)
			if plan.Changes.Outputs != 1 {
				t.Errorf("with the other module: %v, want one change\n%s", plan.Changes, plan.Log)
			}
			if apply := s.Must(stack.ApplyRun, runnertest.Saved(plan)); !runnertest.Has("module b", apply.Outputs) {
				t.Errorf("outputs = %s, want those of module b", apply.Outputs)
			}
		})
	}

	s := runnertest.NewStack(t, open(t, t.TempDir()), tofu(t), "")
	s.Archive(pack(t, files))
	s.Job.Files = s.Job.Files[1:]
	if d := s.Finish(s.Start(stack.PlanRun)); d.Outcome != stack.Failed || d.Step != "init" || !d.Permanent || !strings.HasPrefix(d.Message, "2 errors. (1) The variable which has no value.") {
		t.Errorf("without the variable: %s at %s, permanent %v: %s; want a failure that no retry repairs", d.Outcome, d.Step, d.Permanent, d.Message)
	}

	s = runnertest.NewStack(t, open(t, t.TempDir()), tofu(t), "")
	s.Archive(pack(t, map[string]string{"main.tf": "variable \"zone\" {}\noutput \"zone\" {\n  value = var.zone\n}\n"}))
	s.Job.Files, s.Job.Words = s.Job.Files[1:], stack.Words{Variables: "spec.vars"}
	if d := s.Finish(s.Start(stack.PlanRun)); d.Step != "plan" || !d.Permanent || !strings.HasPrefix(d.Message, "The variable zone has no value. Set it with spec.vars") {
		t.Errorf("a plan without the variable: at %s, permanent %v: %s; want the fields of the spec that set it", d.Step, d.Permanent, d.Message)
	}
}

// The variables of the spec overrule those in files that the engine loads by
// itself, whatever those are called, and the plan warns of each such file.
func TestTheSpecOverrulesFilesOfTheModule(t *testing.T) {
	s := runnertest.NewStack(t, open(t, t.TempDir()), tofu(t), "")
	s.Archive(pack(t, map[string]string{
		"envs/p/main.tf":          "variable \"a\" {}\nvariable \"b\" {}\nvariable \"c\" {}\noutput \"all\" {\n  value = \"${var.a} ${var.b} ${var.c}\"\n}\n",
		"envs/p/zz.auto.tfvars":   "# a = 1\na = \"zz\"\nb = \"zz\"\n",
		"envs/p/aa.auto.tfvars":   "c = \"aa\"\n",
		"envs/p/terraform.tfvars": "a = \"weakest\"\n",
		"by-name.tfvars":          "c = \"file\"\n",
	}))
	s.Job.Tree.Path, s.Job.Files[0] = "envs/p", own(`{"a": "spec", "c": "spec"}`)
	s.Job.Options.VarFiles = []string{"by-name.tfvars"}
	plan := s.Must(stack.PlanRun)
	apply := s.Must(stack.ApplyRun, runnertest.Saved(plan))
	if got := string(apply.Outputs); !strings.Contains(got, "spec zz file") {
		t.Errorf("outputs = %s, want a of the spec, b of the file that alone sets it, c of tfVarsFiles", got)
	}
	var warned []string
	for _, d := range plan.Diagnostics {
		warned = append(warned, d.Severity+" "+d.File)
	}
	if got := strings.Join(warned, ", "); got != "warning envs/p/aa.auto.tfvars, warning envs/p/zz.auto.tfvars" {
		t.Errorf("diagnostics of %q, want a warning of each file that the spec overrules: %+v", got, plan.Diagnostics)
	}
	if !runnertest.Has("The spec of the stack sets a, so the values in zz.auto.tfvars are not used", plan.Log) {
		t.Errorf("the log does not warn:\n%s", plan.Log)
	}
	if check := s.Must(stack.CheckRun); !check.Changes.None() {
		t.Errorf("a check found %v", check.Changes)
	}
	s.Job.Files[0] = own(`{"x": "spec"}`)
	if d := s.Finish(s.Start(stack.PlanRun, func(j *runner.Job) { j.Options.VarFiles = nil })); len(d.Diagnostics) > 0 && strings.Contains(d.Diagnostics[0].Summary, "overruled") {
		t.Errorf("a warning of variables that only the file sets: %+v", d.Diagnostics)
	}
}

// The variables of the spec overrule those in a file that is too large to be read
// for its names.
func TestTheSpecOverrulesLargeFiles(t *testing.T) {
	s := runnertest.NewStack(t, open(t, t.TempDir()), tofu(t), "")
	s.Archive(pack(t, map[string]string{
		"main.tf":        "variable \"a\" {}\noutput \"a\" {\n  value = \"it is ${var.a}\"\n}\n",
		"zz.auto.tfvars": "a = \"zz\"\n" + strings.Repeat("# filled up\n", 100_000),
	}))
	s.Job.Files[0] = own(`{"a": "spec"}`)
	plan := s.Must(stack.PlanRun)
	apply := s.Must(stack.ApplyRun, runnertest.Saved(plan))
	if got := string(apply.Outputs); !strings.Contains(got, "it is spec") {
		t.Errorf("outputs = %s, want a of the spec", got)
	}
}

// A state in the cluster is out of the reach of a run, and the message says what
// is within it.
func TestRemoteStatesOfTheClusterHaveAnAlternative(t *testing.T) {
	for name, config := range map[string]string{
		"by the account of the pod": "in_cluster_config = true",
		"by the default":            "",
		"by a file":                 "config_path = \"~/.kube/config\"",
	} {
		t.Run(name, func(t *testing.T) {
			s := runnertest.NewStack(t, open(t, t.TempDir()), tofu(t), "data \"terraform_remote_state\" \"n\" {\n  backend = \"kubernetes\"\n  config = {\n    secret_suffix = \"network\"\n    "+
				config+"\n  }\n}\noutput \"x\" {\n  value = data.terraform_remote_state.n.outputs.y\n}\n")
			d := s.Finish(s.Start(stack.PlanRun))
			for _, want := range []string{"data.terraform_remote_state.n cannot read the state of another stack", "writeOutputsToSecret", "readInputsFromSecrets"} {
				if d.Outcome != stack.Failed || !strings.Contains(d.Message, want) {
					t.Errorf("ended %s: %q, want %q in it", d.Outcome, d.Message, want)
				}
			}
		})
	}
}

// A file of variables that the source does not have ends the run with the name of the
// field, once: no retry would find it.
func TestAFileOfVariablesThatIsMissing(t *testing.T) {
	s := runnertest.NewStack(t, open(t, t.TempDir()), tofu(t), "")
	s.Archive(pack(t, map[string]string{"main.tf": "variable \"zone\" {}\noutput \"zone\" {\n  value = var.zone\n}\n", "env/a.tfvars": "zone = \"a\"\n"}))
	s.Job.Files = s.Job.Files[1:]
	for name, want := range map[string]string{
		"env/b.tfvars": `spec.tfVarsFiles[1]: the source has no file "env/b.tfvars".`,
		"env":          `spec.tfVarsFiles[1]: the source has no regular file, but another kind of file, at "env".`,
	} {
		s.Job.Options.VarFiles = []string{"env/a.tfvars", name}
		d := s.Finish(s.Start(stack.PlanRun))
		if d.Outcome != stack.Failed || !d.Permanent || d.Step != "init" || !strings.HasPrefix(d.Message, want) || !strings.HasSuffix(d.Message, "or add the file to the source.") {
			t.Errorf("with %s: %s at %s, permanent %v: %s; want a failure that no retry repairs: %s", name, d.Outcome, d.Step, d.Permanent, d.Message, want)
		}
	}
	s.Job.Options.VarFiles = []string{"env/a.tfvars"}
	s.Must(stack.PlanRun)
}
