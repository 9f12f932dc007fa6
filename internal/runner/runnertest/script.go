package runnertest

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// scripted makes a script the stack's way to be applied.
func scripted(text string) func(*runner.Job) {
	return func(j *runner.Job) {
		j.Script = &runner.Script{Apply: []byte(text), Destroy: []byte("terraform destroy -auto-approve\n")}
	}
}

// bare is a stack of nothing but a script.
func bare(t *testing.T, f Fixture) (*Stack, string) {
	t.Helper()
	s := f.stack(t, f.New(t), "")
	s.Job.Files, s.Job.Managed = nil, false
	dir := f.dir(t)
	s.Allow(dir)
	return s, dir
}

// AL-02: a script is run as it was written, to the byte, by the shell or by what its first
// line names.
func scriptBytes(t *testing.T, f Fixture) {
	s, dir := bare(t, f)
	copied := filepath.Join(dir, "copy")
	for name, text := range map[string]string{
		"by bash":               "cp -f \"$0\" " + copied + "\n[ -n \"$BASH_VERSION\" ] || exit 9\nexit 0\nit's $HOME ${x} \\n \\\\ `ls` \"q\"\r\nä\xff no end",
		"by its first line":     "#!/bin/sh -e\ncp -f \"$0\" " + copied + "\nfalse\nexit 9",
		"as another than named": "#!/no/such/shell -x\ncp -f \"$0\" " + copied,
	} {
		d := s.Finish(s.Start(stack.ScriptRun, scripted(text)))
		want := stack.Succeeded
		if name == "by its first line" {
			want = stack.Failed // by -e
		}
		if d.Outcome != want || d.Exit == 9 {
			t.Errorf("%s: ended %s with %d, want %s: %s\n%s", name, d.Outcome, d.Exit, want, d.Message, d.Log)
		}
		got, err := os.ReadFile(copied)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, []byte(text)) {
			t.Errorf("%s: the script was %q, want %q", name, got, text)
		}
		if len(d.Steps) != 1 || d.Steps[0].Name != "script" {
			t.Errorf("%s: a script without configuration took the steps %q, want itself alone", name, steps(d))
		}
	}
}

// AL-04: the exit code of a script is how its run ends, and what it says last on standard
// error is why.
func scriptFails(t *testing.T, f Fixture) {
	s, _ := bare(t, f)
	d := s.Finish(s.Start(stack.ScriptRun, scripted("echo to people; printf '\\033[31mit broke\\033[0m\\n' >&2; exit 3")))
	if d.Outcome != stack.Failed || d.Step != "script" || d.Exit != 3 || d.Message != "exit code 3: it broke" {
		t.Errorf("ended %s in %q with %d: %q, want Failed in script with the exit code 3: it broke", d.Outcome, d.Step, d.Exit, d.Message)
	}
	if !Has("to people", d.Log) || !Has("it broke", d.Log) {
		t.Errorf("the log lacks what the script printed:\n%s", d.Log)
	}
	for name, text := range map[string]string{"empty": "", "too long": strings.Repeat("#", runner.MaxScript+1), "with a NUL": "exit 0\n\x00"} {
		d := s.Finish(s.Start(stack.ScriptRun, scripted(text)))
		if d.Outcome != stack.Failed || len(d.Steps) != 0 || !strings.Contains(d.Message, "script") {
			t.Errorf("a script that is %s ended %s after the steps %q: %s", name, d.Outcome, steps(d), d.Message)
		}
	}
	// What a script leaves behind ends with it.
	began := time.Now()
	d = s.Finish(s.Start(stack.ScriptRun, scripted("sleep 1000 & (setsid sleep 1000 &) ; echo done")))
	if d.Outcome != stack.Succeeded || time.Since(began) > patience/2 {
		t.Errorf("a script that leaves daemons ended %s: %s", d.Outcome, d.Message)
	}
}

// A script applies the module with the state of the stack, whichever way it calls the
// engine.
func scriptApplies(t *testing.T, f Fixture) {
	s := f.stack(t, f.New(t), oneResource)
	first := s.Must(stack.ScriptRun, scripted("set -e\nterraform init\nterraform apply -auto-approve\necho it is $(terraform output -raw a)"))
	if first.Changes != (stack.Changes{Add: 1}) || first.Resources != 1 {
		t.Errorf("the script did %v and left %d resources, want one of each", first.Changes, first.Resources)
	}
	if got := string(first.Outputs); got != `{"a":{"sensitive":false,"type":"string","value":"one"}}` {
		t.Errorf("outputs = %s", got)
	}
	if !Has("it is one", first.Log) || !Has("terraform_data.a will be created", first.Log) || !Has(`"type":"apply_complete"`, first.Events) {
		t.Errorf("the log or the events lack what the engine did:\n%s\n%s", first.Log, first.Events)
	}
	before := Serial(t, s.State)
	second := s.Must(stack.ScriptRun, input("two"), scripted("terraform apply -auto-approve"))
	if second.Changes != (stack.Changes{Change: 1}) || Serial(t, s.State) <= before {
		t.Errorf("the second script did %v, serial %d after %d", second.Changes, Serial(t, s.State), before)
	}
	if check := s.Must(stack.CheckRun, input("two")); !check.Changes.None() {
		t.Errorf("a drift check after the script found %v", check.Changes)
	}
	failed := s.Finish(s.Start(stack.ScriptRun, scripted("terraform apply -auto-approve -no-such-flag")))
	if failed.Outcome != stack.Failed || !strings.Contains(failed.Message, "no-such-flag") {
		t.Errorf("a wrong flag ended %s: %s", failed.Outcome, failed.Message)
	}
	destroyed := s.Must(stack.DestroyRun, scripted(""))
	if destroyed.Changes.Destroy != 1 || destroyed.Resources != 0 || !strings.HasSuffix(steps(destroyed), "destroy destroy") {
		t.Errorf("destroying took the steps %q, did %v and left %d resources", steps(destroyed), destroyed.Changes, destroyed.Resources)
	}
}

// A script cannot lose a state by mistake, nor keep it elsewhere.
func scriptKeepsStateSafe(t *testing.T, f Fixture) {
	s := f.stack(t, f.New(t), oneResource)
	const other = "mkdir -p other; printf '%s' 'CONTENT resource \"terraform_data\" \"b\" {}' > other/main.tf\n"
	for name, c := range map[string]struct{ script, want string }{
		"another directory": {
			strings.Replace(other, "CONTENT", "", 1) + "cd other && terraform init", `The directory "other" of the source declares no remote backend, so its state would be lost`},
		"-chdir":     {strings.Replace(other, "CONTENT", "", 1) + "terraform -chdir=other apply -auto-approve", "would be lost with this run"},
		"a backend":  {"printf 'terraform {\\n  backend \"local\" {\\n  }\\n}\\n' > zz_override.tf; terraform init -reconfigure", `the module configures the backend "local", where "http" is the stack's`},
		"settings":   {"terraform init -backend-config=address=http://127.0.0.1:1/x", "the object of the stack says where its state is"},
		"hidden":     {"TF_CLI_ARGS_init=-backend-config=address=http://127.0.0.1:1/x terraform init", "-backend-config in TF_CLI_ARGS_init"},
		"data":       {"TF_DATA_DIR=/tmp/x terraform apply -auto-approve", "TF_DATA_DIR is set"},
		"workspaces": {"TF_WORKSPACE=x terraform apply -auto-approve", `The workspace of the stack is "default"`},
	} {
		d := s.Finish(s.Start(stack.ScriptRun, scripted(c.script)))
		if d.Outcome != stack.Failed || !strings.Contains(d.Message, c.want) || s.State != nil {
			t.Errorf("%s: ended %s, want Failed with %q and no state: %s", name, d.Outcome, c.want, d.Message)
		}
	}
	d := s.Must(stack.ScriptRun, scripted(strings.Replace(other, "CONTENT", "terraform {\n  backend \"inmem\" {\n  }\n}\n", 1)+"cd other && terraform init && terraform fmt && terraform apply -auto-approve && cd .. && terraform -chdir=other apply -auto-approve"))
	if !d.Changes.None() || s.State != nil || Has(`"apply_complete"`, d.Events) {
		t.Errorf("a command in another directory counts as a change of the stack: %v, state %s", d.Changes, s.State)
	}
}

// A script that is asked to stop interrupts its engine once, and does not go on.
func scriptCancelled(t *testing.T, f Fixture) {
	g, r := newGate(t, f.dir(t)), f.New(t)
	s := f.stack(t, r, waiting(g, g.Command()+"; touch "+filepath.Join(g.Dir, "after")))
	s.Allow(g.Dir)
	id := s.Start(stack.ScriptRun, scripted("terraform apply -auto-approve\necho the script went on"))
	g.Arrived(t)
	for range 3 {
		if err := r.Cancel(t.Context(), s.Job.Stack, id); err != nil {
			t.Fatalf("Cancel() = %v", err)
		}
	}
	d := s.Finish(id)
	if d.Outcome != stack.Interrupted || Has("the script went on", d.Log) {
		t.Errorf("outcome = %s, want Interrupted: %s\n%s", d.Outcome, d.Message, d.Log)
	}
	if n := strings.Count(string(d.Log), "Interrupt received"); n != 1 || Has("Two interrupts", d.Log) {
		t.Errorf("the engine was interrupted %d times; its log:\n%s", n, d.Log)
	}
	kept(t, s, g, d)
}

// A script that does not care is killed, and its engine is not before it could save what
// it had made.
func scriptStubborn(t *testing.T, f Fixture) {
	_, _, d := reached(t, func(limit time.Duration) (*Stack, *Gate, string) {
		g := newGate(t, f.dir(t))
		s := f.stack(t, f.New(t), oneResource)
		s.Allow(g.Dir)
		return s, g, s.Start(stack.ScriptRun, scripted("trap '' INT TERM\nterraform apply -auto-approve\n"+g.Command()), func(j *runner.Job) {
			j.Limits.Apply, j.Limits.Grace = limit, 200*time.Millisecond
		})
	})
	if d.Outcome != stack.Killed || d.Resources != 1 {
		t.Errorf("outcome = %s with %d resources, want Killed with one: %s", d.Outcome, d.Resources, d.Message)
	}
}

// An engine that outlives its script is interrupted and keeps its state.
func scriptLeaves(t *testing.T, f Fixture) {
	g := newGate(t, f.dir(t))
	s := f.stack(t, f.New(t), waiting(g, g.Command()))
	s.Allow(g.Dir)
	d := s.Finish(s.Start(stack.ScriptRun, scripted("terraform apply -auto-approve &\nread line < "+filepath.Join(g.Dir, "here")+"\nkill -9 $!\nexit 0")))
	if d.Outcome != stack.Failed || !strings.Contains(d.Message, "the script ended while tofu apply was running") {
		t.Errorf("outcome = %s, want Failed: %s", d.Outcome, d.Message)
	}
	if !Has(`"name":"first"`, s.State) || strings.Count(string(d.Log), "Interrupt received") != 1 {
		t.Errorf("the state is %s, the log:\n%s", s.State, d.Log)
	}
}

// The terraform of a script applies what was approved, and changes nothing else.
func scriptApproved(t *testing.T, f Fixture) {
	s := f.stack(t, f.New(t), oneResource)
	approved := s.Must(stack.PlanRun)
	for name, text := range map[string]string{
		"at once":      "terraform apply -auto-approve",
		"a saved plan": "terraform plan -out=x -var input=three && terraform apply x",
	} {
		d := s.Finish(s.Start(stack.ScriptRun, Saved(approved), input("two"), scripted(text)))
		if d.Outcome != stack.Stale || s.State != nil || !strings.Contains(d.Message, "Approve the next plan") {
			t.Errorf("%s: applying what was not approved ended %s with the state %s: %s", name, d.Outcome, s.State, d.Message)
		}
	}
	for _, command := range []string{"destroy -auto-approve", "apply -auto-approve -refresh-only", "import terraform_data.a x", "taint terraform_data.a", "untaint terraform_data.a",
		"refresh", "state rm terraform_data.a", "force-unlock -force x", "workspace new x", "test", "init -migrate-state", "-chdir=. destroy -auto-approve", "'' destroy -auto-approve"} {
		d := s.Finish(s.Start(stack.ScriptRun, Saved(approved), scripted("terraform "+command)))
		if d.Outcome != stack.Failed || s.State != nil || !strings.Contains(d.Message, "the approved plan lets tofu apply alone change them") {
			t.Errorf("%s ended %s with the state %s: %s", command, d.Outcome, s.State, d.Message)
		}
	}
	d := s.Finish(s.Start(stack.ScriptRun, Saved(approved), scripted("TF_CLI_ARGS_plan=-destroy terraform apply -auto-approve")))
	if d.Outcome != stack.Failed || s.State != nil || !strings.Contains(d.Message, "TF_CLI_ARGS_plan is set") {
		t.Errorf("arguments in the environment ended %s with the state %s: %s", d.Outcome, s.State, d.Message)
	}
	d = s.Must(stack.ScriptRun, Saved(approved), scripted("set -e\nterraform plan -out=$HOME/x\nterraform apply $HOME/x\nterraform state list\nterraform apply -auto-approve"))
	if d.Changes != (stack.Changes{Add: 1}) || d.Resources != 1 {
		t.Errorf("applying what was approved did %v and left %d resources\n%s", d.Changes, d.Resources, d.Log)
	}
}

// No secret of a stack is in what a script prints.
func scriptSecrets(t *testing.T, f Fixture) {
	const secret = "correct-horse-battery"
	s, _ := bare(t, f)
	d := s.Finish(s.Start(stack.ScriptRun, scripted("env; echo $PASSWORD | base64; echo \"x${PASSWORD}y\" >&2; exit 1"), func(j *runner.Job) {
		j.Env, j.Mask = map[string]string{"PASSWORD": secret}, []string{secret}
	}))
	made := f.stack(t, s.runner, "resource \"terraform_data\" \"a\" {\n  input = uuid()\n}\noutput \"new\" {\n  sensitive = true\n  value = terraform_data.a.output\n}\n")
	if m := made.Must(stack.ScriptRun, scripted("set -e; terraform apply -auto-approve; echo it is $(terraform output -raw new)")); !Has("it is "+plan.Mask, m.Log) {
		t.Errorf("the script printed a secret that it has made:\n%s", m.Log)
	}
	if !Has("PASSWORD=", d.Log) || Has(secret, d.Log, []byte(d.Message)) || Has("Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5", d.Log) {
		t.Errorf("the log or the message has a secret, or not what the script printed: %s\n%s", d.Message, d.Log)
	}
}

// What a script does beside calling terraform reaches no state.
func scriptAround(t *testing.T, f Fixture) {
	s := f.stack(t, f.New(t), oneResource)
	for name, text := range map[string]string{
		"the engine itself": f.Engine.Path + " apply -auto-approve || /engine/tofu apply -auto-approve",
		"two at once":       "terraform apply -auto-approve -lock-timeout=10m & terraform apply -auto-approve -lock-timeout=10m; a=$?; wait $! && [ $a = 0 ]",
		"no environment":    "env -i " + `PATH="$PATH" TERRIER_RUN="$TERRIER_RUN" terraform apply -auto-approve`,
		"closed streams":    "terraform apply -auto-approve >&- 2>&- <&-",
		"another program":   "exec terraform apply -auto-approve",
	} {
		d := s.Finish(s.Start(stack.ScriptRun, scripted(text)))
		if want := map[bool]stack.Outcome{true: stack.Failed, false: stack.Succeeded}[name == "the engine itself"]; d.Outcome != want {
			t.Errorf("%s: ended %s, want %s: %s\n%s", name, d.Outcome, want, d.Message, d.Log)
		}
	}
	if s.State == nil || strings.Count(string(s.State), `"type":"terraform_data"`) > 1 {
		t.Errorf("the state is %s, want one resource", s.State)
	}
}

// The scripts of a source are run by their path.
func scriptOfSource(t *testing.T, f Fixture) {
	s, _ := bare(t, f)
	s.Job.Files = []workdir.File{{Path: "deploy.sh", Mode: 0o600, Content: []byte("echo by ${0##*/} in $(ls)")}}
	d := s.Must(stack.ScriptRun, func(j *runner.Job) { j.Script = &runner.Script{ApplyPath: "deploy.sh"} })
	if !Has("by deploy.sh in deploy.sh", d.Log) {
		t.Errorf("the log is\n%s", d.Log)
	}
	echo, err := os.ReadFile("/bin/echo")
	if err != nil {
		t.Fatal(err)
	}
	d = s.Must(stack.ScriptRun, func(j *runner.Job) {
		j.Files = []workdir.File{{Path: "deploy", Mode: 0o700, Content: echo}}
		j.Script = &runner.Script{ApplyPath: "deploy", ApplyArgs: []string{"it's", "a program"}}
	})
	if !Has("it's a program\n", d.Log) {
		t.Errorf("the log of a program is\n%s", d.Log)
	}
	d = s.Finish(s.Start(stack.ScriptRun, func(j *runner.Job) { j.Script = &runner.Script{ApplyPath: "none.sh"} }))
	if d.Outcome != stack.Failed || !strings.Contains(d.Message, `there is no file "none.sh"`) || slices.ContainsFunc(d.Steps, func(s runner.Step) bool { return s.Name == "script" }) {
		t.Errorf("a script that is not there ended %s: %s", d.Outcome, d.Message)
	}
}

// source makes files of the source, and runs the deploy script of it.
func source(files map[string]string, change func(*runner.Script)) func(*runner.Job) {
	return func(j *runner.Job) {
		j.Files = nil
		for name, content := range files {
			j.Files = append(j.Files, workdir.File{Path: name, Mode: 0o600, Content: []byte(content)})
		}
		j.Script = &runner.Script{ApplyPath: "deploy.sh", DestroyPath: "destroy.sh"}
		if change != nil {
			change(j.Script)
		}
	}
}

// The postDeploy script gets its arguments as they are, runs after an apply script that
// succeeded and after nothing else, and decides with its exit code how the run ends.
func scriptAfter(t *testing.T, f Fixture) {
	s, dir := bare(t, f)
	after := func(args ...string) func(*runner.Script) {
		return func(s *runner.Script) { s.PostDeploy, s.PostDeployArgs = "after.sh", args }
	}
	args := []string{"-workspace=it's $(touch " + dir + "/shell) `x` \"; exit 3", "-empty="}
	const print = "for a in \"$@\"; do echo \"<$a>\"; done\n"
	d := s.Must(stack.ScriptRun, source(map[string]string{
		"deploy.sh": "echo \"deploy $*\"; (while :; do touch " + dir + "/left; sleep 0.01; done) & touch made",
		"after.sh":  "[ -f made ] || exit 9\n" + print,
	}, func(s *runner.Script) { s.ApplyArgs = []string{"-c", "x y"}; after(args...)(s) }))
	if got := steps(d); got != "script post-deploy" || !Has("deploy -c x y\n", d.Log) || !Has("<"+args[0]+">\n", d.Log) || !Has("<-empty=>\n", d.Log) {
		t.Errorf("the steps are %q, and the log is\n%s", got, d.Log)
	}
	if _, err := os.Stat(filepath.Join(dir, "shell")); err == nil {
		t.Error("a shell has read the arguments")
	}
	for name, tt := range map[string]struct {
		deploy, after string
		change        func(*runner.Script)
		steps, want   string
	}{
		"an apply that failed":                {"exit 2", "exit 0", after(), "script", "exit code 2: the script printed no error"},
		"a failure":                           {"exit 0", "echo no such cluster >&2; exit 4", after(), "script post-deploy", "exit code 4 of the postDeploy script \"after.sh\": no such cluster"},
		"a failure without a word":            {"exit 0", "exit 4", after(), "script post-deploy", "exit code 4: the postDeploy script \"after.sh\" printed no error"},
		"outputs that are too large":          {"exit 0", "printf '{\"outputs\":{\"a\":\"%070000d\"}}\n' 1", after(), "script post-deploy", "its outputs cannot be stored"},
		"a file that is not there":            {"exit 0", "", func(s *runner.Script) { s.PostDeploy = "none.sh" }, "script", "the postDeploy script \"none.sh\" cannot run: there is no file"},
		"a path out of the source":            {"exit 0", "", func(s *runner.Script) { s.PostDeploy = "../after.sh" }, "", "the postDeploy script \"../after.sh\" lies outside of the source"},
		"a link out of the source":            {"ln -s /bin/true out", "", func(s *runner.Script) { s.PostDeploy = "out" }, "script", "the postDeploy script \"out\" cannot run"},
		"a link to a file of another process": {"ln -s /proc/self/exe out", "", func(s *runner.Script) { s.PostDeploy = "out" }, "script", "the postDeploy script \"out\" cannot run"},
	} {
		d := s.Finish(s.Start(stack.ScriptRun, source(map[string]string{"deploy.sh": tt.deploy, "after.sh": tt.after}, tt.change)))
		if d.Outcome != stack.Failed || steps(d) != tt.steps || !strings.Contains(d.Message, tt.want) || d.PostDeploy != nil {
			t.Errorf("%s: ended %s after %q with %q and outputs %s, want Failed after %q with %q", name, d.Outcome, steps(d), d.Message, d.PostDeploy, tt.steps, tt.want)
		}
	}
	d = s.Must(stack.DestroyRun, source(map[string]string{"destroy.sh": "echo destroy \"$@\"", "after.sh": "exit 9"},
		func(s *runner.Script) { s.DestroyArgs = []string{"-c"}; after()(s) }))
	if steps(d) != "destroy" || !Has("destroy -c\n", d.Log) {
		t.Errorf("destroying took the steps %q:\n%s", steps(d), d.Log)
	}
}

// What the postDeploy script prints as its outputs is in the report, without secrets.
func scriptAfterOutputs(t *testing.T, f Fixture) {
	const secret = "correct-horse-battery"
	const module = "resource \"terraform_data\" \"a\" {\n  input = uuid()\n}\noutput \"new\" {\n  sensitive = true\n  value = terraform_data.a.output\n}\n"
	s := f.stack(t, f.New(t), module)
	d := s.Must(stack.ScriptRun, func(j *runner.Job) {
		j.Env, j.Mask = map[string]string{"PASSWORD": secret}, []string{secret}
		j.Files = append(slices.Clone(j.Files), workdir.File{Path: "after.sh", Mode: 0o600, Content: []byte(
			"echo to people\nprintf '{\"outputs\": {\"password\": \"x%sx\", \"new\": \"%s\", \"n\": 7}}\\n' \"$PASSWORD\" \"$(terraform output -raw new)\"\necho done\n")})
		j.Script = &runner.Script{Apply: []byte("terraform apply -auto-approve"), PostDeploy: "after.sh"}
	})
	want := `{"n":7,"new":"` + plan.Mask + `","password":"x` + plan.Mask + `x"}`
	if string(d.PostDeploy) != want || d.Changes != (stack.Changes{Add: 1}) || d.Resources != 1 {
		t.Errorf("the outputs are %s, want %s; it did %v and left %d resources", d.PostDeploy, want, d.Changes, d.Resources)
	}
	if !Has("to people", d.Log) || Has(secret, d.Log) {
		t.Errorf("the log lacks what the script printed, or has the secret:\n%s", d.Log)
	}
	silent := s.Must(stack.ScriptRun, func(j *runner.Job) {
		j.Files = append(slices.Clone(j.Files), workdir.File{Path: "after.sh", Mode: 0o600, Content: []byte("echo done\n")})
		j.Script = &runner.Script{Apply: []byte("exit 0"), PostDeploy: "after.sh"}
	})
	if silent.PostDeploy != nil {
		t.Errorf("a script without outputs has the outputs %s", silent.PostDeploy)
	}
}
