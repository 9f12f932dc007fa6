package runnertest

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/afterapply"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// follows makes these the steps of a run, with these files in the tree.
func follows(files map[string]string, steps ...runner.AfterStep) func(*runner.Job) {
	return func(j *runner.Job) {
		for name, text := range files {
			j.Files = append(j.Files, workdir.File{Path: name, Mode: 0o700, Content: []byte(text)})
		}
		for i := range steps {
			if steps[i].Timeout == 0 {
				steps[i].Timeout = patience
			}
		}
		j.After = steps
	}
}

// states are those of the steps of a run: a Succeeded, b Failed.
func states(d Done) string {
	var all []string
	for _, s := range d.AfterSteps {
		all = append(all, s.Name+" "+string(s.State))
	}
	return strings.Join(all, ", ")
}

// TB-07: steps run in their order, with the outputs in a file, and the first that fails ends
// the run, with its last lines.
func stepsFollow(t *testing.T, f Fixture) {
	s, dir := bare(t, f)
	copied := filepath.Join(dir, "copy")
	files := map[string]string{
		"good.sh":  "#!/bin/sh\necho \"$TERRIER_STEP got $1\"\ncp \"$2\" " + copied + "\ncmp \"$2\" \"$TERRIER_OUTPUTS\"\n",
		"bad.sh":   "#!/bin/sh\necho first\necho last words of hunter2 >&2\nexit 7\n",
		"count.sh": "#!/bin/sh\necho x >> " + filepath.Join(dir, "count") + "\n[ $(wc -l < " + filepath.Join(dir, "count") + ") -ge 3 ]\n",
	}
	outputs := []byte(`{"ip":"10.0.0.1"}`)
	d := s.Must(stack.StepsRun, follows(files,
		runner.AfterStep{Name: "good", Argv: []string{"./good.sh", "$HOME; ls", afterapply.StepFile("outputs.json")}, Outputs: outputs},
		runner.AfterStep{Name: "again", Argv: []string{"./count.sh"}, Retries: 5, Pause: time.Millisecond},
		runner.AfterStep{Name: "image", Argv: []string{"cat", afterapply.StepFile("own.txt")}, Files: []runner.StepFile{{Name: "own.txt", Content: []byte("a file of the step")}}},
	))
	if got := states(d); got != "good Succeeded, again Succeeded, image Succeeded" || d.AfterSteps[1].Attempts != 3 {
		t.Errorf("the steps ended %s after %d attempts of the second, want all of them Succeeded, that one in its third", got, d.AfterSteps[1].Attempts)
	}
	if got := d.AfterSteps[0].Message; got != "good got $HOME; ls" {
		t.Errorf("the step says %q, want its argument as it was written", got)
	}
	if got := d.AfterSteps[2].Message; got != "a file of the step" {
		t.Errorf("the program of the image says %q, want the file", got)
	}
	if got, err := os.ReadFile(copied); err != nil || string(got) != string(outputs) {
		t.Errorf("the step was given the outputs %s, %v, want %s", got, err, outputs)
	}
	d = s.Finish(s.Start(stack.StepsRun, follows(files,
		runner.AfterStep{Name: "bad", Argv: []string{"./bad.sh"}, Retries: 1, Pause: time.Millisecond},
		runner.AfterStep{Name: "never", Argv: []string{"./good.sh"}},
	), func(j *runner.Job) { j.Mask = []string{"hunter2"} }))
	if got := states(d); d.Outcome != stack.Failed || got != "bad Failed, never Pending" || d.AfterSteps[0].Attempts != 2 {
		t.Errorf("the steps ended %s: %s after %d attempts, want bad Failed after 2, and never Pending", d.Outcome, got, d.AfterSteps[0].Attempts)
	}
	for _, said := range []string{d.Message, d.AfterSteps[0].Message, string(d.Log)} {
		if !strings.Contains(said, "last words of") || strings.Contains(said, "hunter2") {
			t.Errorf("the failure says %q, want its last words without what is secret", said)
		}
	}
	if !strings.HasPrefix(d.Message, "the step bad failed after 2 attempts: exit code 7: ") {
		t.Errorf("message = %q, want the step, its attempts and its exit code", d.Message)
	}
	for name, step := range map[string]runner.AfterStep{
		"there is no file \"none.sh\"":     {Argv: []string{"./none.sh"}},
		"lies outside of the source":       {Argv: []string{"../../../bin/ls"}},
		"there is no program no-such-tool": {Argv: []string{"no-such-tool"}},
		"the stack has no output ip":       {Argv: []string{"./good.sh"}, Broken: "outputs: the stack has no output ip"},
		"after its timeout of 300ms":       {Argv: []string{"sleep", "1000"}, Timeout: 300 * time.Millisecond},
	} {
		step.Name = "odd"
		if d := s.Finish(s.Start(stack.StepsRun, follows(files, step))); d.Outcome != stack.Failed || !strings.Contains(strings.ReplaceAll(d.Message, "./none.sh", "none.sh"), name) {
			t.Errorf("it ended %s: %q, want Failed with %q", d.Outcome, d.Message, name)
		}
	}
}

// A step that had succeeded is not run again, and what a step does to the tree reaches no
// other run.
func stepsResume(t *testing.T, f Fixture) {
	s, dir := bare(t, f)
	count := filepath.Join(dir, "count")
	files := map[string]string{"one.sh": "#!/bin/sh\necho one >> " + count + "\necho changed > main.tf\n", "two.sh": "#!/bin/sh\necho two >> " + count + "\n"}
	done := &stack.StepResult{Name: "one", State: stack.StepSucceeded, Attempts: 1, Message: "as before"}
	d := s.Must(stack.StepsRun, follows(files, runner.AfterStep{Name: "one", Argv: []string{"./one.sh"}, Done: done}, runner.AfterStep{Name: "two", Argv: []string{"./two.sh"}}))
	if got, err := os.ReadFile(count); err != nil || string(got) != "two\n" || d.AfterSteps[0] != *done {
		t.Errorf("the run did %q, %v, and says %+v of the step before; want only the second, and that step as it was", got, err, d.AfterSteps[0])
	}
	module := f.stack(t, f.New(t), "output \"a\" {\n  value = 1\n}\n")
	module.Allow(dir)
	module.Must(stack.StepsRun, follows(files, runner.AfterStep{Name: "one", Argv: []string{"./one.sh"}}))
	if d := module.Must(stack.PlanRun); d.Changes.Outputs != 1 {
		t.Errorf("a plan after the steps has %v, want the output of the module as it was", d.Changes)
	}
}

// Hosts are waited for: a port that takes connections, or a server that speaks SSH.
func stepsWait(t *testing.T, f Fixture) {
	s, _ := bare(t, f)
	s.Job.Sandbox.Network = "host"
	greet := func(text string) string {
		l := f.listen(t)
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Write([]byte(text))
				c.Close()
			}
		}()
		return l.Addr().String()
	}
	ssh, web := greet("welcome\r\nSSH-2.0-OpenSSH_9\r\n"), greet("HTTP/1.1 400\r\n\r\n")
	d := s.Must(stack.StepsRun, follows(nil,
		runner.AfterStep{Name: "open", Hosts: []string{ssh, web}},
		runner.AfterStep{Name: "ssh", Hosts: []string{ssh}, SSH: true},
	))
	if got := d.AfterSteps[1].Message; got != "answers: "+ssh {
		t.Errorf("the wait says %q, want which host answers", got)
	}
	d = s.Finish(s.Start(stack.StepsRun, follows(nil, runner.AfterStep{Name: "ssh", Hosts: []string{ssh, web}, SSH: true, Timeout: 3 * time.Second})))
	if d.Outcome != stack.Failed || !strings.Contains(d.Message, "1 of 2 hosts do not answer: "+web+": not within 3s: takes connections, and does not speak SSH") {
		t.Errorf("a wait for a host that does not speak SSH ended %s: %s", d.Outcome, d.Message)
	}
	// A host that comes up later ends the wait.
	at := closedPort(t, f)
	id := s.Start(stack.StepsRun, follows(nil, runner.AfterStep{Name: "late", Hosts: []string{at}}))
	late, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { late.Close() })
	if d := s.Finish(id); d.Outcome != stack.Succeeded {
		t.Errorf("a wait for a host that came up ended %s: %s", d.Outcome, d.Message)
	}
}

// TB-08: the real Ansible configures the hosts of an output in the sandbox, with variables that
// keep their types. A task that fails is the end of the step, with Ansible's own words.
func stepsPlay(t *testing.T, f Fixture) {
	s, dir := bare(t, f)
	if _, err := exec.LookPath("ansible-playbook"); err != nil {
		t.Skip("ansible-playbook is not installed (Debian has it in ansible-core): no playbook is run")
	}
	play := afterapply.Step{Name: "play", Ansible: &afterapply.Ansible{Playbook: "ansible/site.yml", HostsFrom: "hosts", Inventory: "ansible/groups.yml", ExtraVars: []string{"zone"}}}
	made := func(hosts string) runner.AfterStep {
		t.Helper()
		g, err := play.Given(map[string]afterapply.Output{"hosts": {Value: []byte(hosts)}, "zone": {Value: []byte(`{"id": 7, "name": "dmz; ls"}`)}})
		if err != nil {
			t.Fatal(err)
		}
		step := runner.AfterStep{Name: play.Name, Argv: g.Argv, Outputs: g.Outputs}
		for _, file := range g.Files {
			step.Files = append(step.Files, runner.StepFile{Name: file.Name, Content: file.Content})
		}
		return step
	}
	files := map[string]string{
		"ansible/groups.yml": "web:\n  vars: {ansible_connection: local, port: 8080}\n",
		"ansible/site.yml": `- hosts: web
  gather_facts: false
  tasks:
  - ansible.builtin.assert:
      that: [zone.id + 1 == 8, port == 8080]
  - ansible.builtin.copy:
      content: "{{ inventory_hostname }} {{ ansible_host }} {{ ansible_user }} {{ zone.name }}"
      dest: "` + dir + `/{{ inventory_hostname }}"
  - ansible.builtin.fail: {msg: the host cannot be configured}
    when: inventory_hostname == "web09"
`,
	}
	var adapted runner.Job
	if f.Adapt != nil {
		f.Adapt(&adapted)
	}
	if l := sandbox.Level(adapted.Sandbox.Level); l != sandbox.None && l < sandbox.Full {
		d := s.Finish(s.Start(stack.StepsRun, follows(files, made(`{"web01": {"ip": "10.0.0.1", "groups": ["web"]}}`))))
		if d.Outcome != stack.Failed || !strings.Contains(d.AfterSteps[0].Message, "--runs-as pods") {
			t.Errorf("Ansible without a /dev/shm ended %s with %q, want what to do\n%s", d.Outcome, d.Message, d.Log)
		}
		return
	}
	s.Must(stack.StepsRun, follows(files, made(`{"web01": {"ip": "10.0.0.1", "user": "fedora", "groups": ["web"]}, "db01": "10.0.0.2"}`)))
	if got, err := os.ReadFile(filepath.Join(dir, "web01")); err != nil || string(got) != "web01 10.0.0.1 fedora dmz; ls" {
		t.Errorf("the host has %q, %v, want what the inventory and the output say", got, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "db01")); !os.IsNotExist(err) {
		t.Errorf("a host of another group was configured, %v", err)
	}
	d := s.Finish(s.Start(stack.StepsRun, follows(files, made(`{"web09": {"ip": "10.0.0.9", "user": "fedora", "groups": ["web"]}}`))))
	if d.Outcome != stack.Failed || states(d) != "play Failed" || !strings.Contains(string(d.Log), "the host cannot be configured") || !strings.Contains(d.AfterSteps[0].Message, "failed=1") {
		t.Errorf("a task that failed ended %s: %s, with %q\n%s", d.Outcome, states(d), d.Message, d.Log)
	}
}

// A cancelled step is interrupted, and says so.
func stepsCancelled(t *testing.T, f Fixture) {
	s, dir := bare(t, f)
	g := newGate(t, dir)
	id := s.Start(stack.StepsRun, follows(map[string]string{"long.sh": "#!/bin/sh\ntrap 'echo I stop; exit 3' INT\n" + g.Command() + "\n"},
		runner.AfterStep{Name: "long", Argv: []string{"./long.sh"}}, runner.AfterStep{Name: "never", Argv: []string{"true"}}))
	g.Arrived(t)
	s.reach("in its first step, with the second one to come", func(r *runner.Report) bool { // a report may be late
		return r.Phase == runner.RunningSteps && len(r.AfterSteps) == 2 && r.AfterSteps[0].State == stack.StepRunning && r.AfterSteps[1].State == stack.StepPending
	})
	if err := s.runner.Cancel(t.Context(), s.Job.Stack, id); err != nil {
		t.Fatal(err)
	}
	d := s.Finish(id)
	if d.Outcome != stack.Interrupted || states(d) != "long Failed, never Pending" || !strings.Contains(d.Message, "the step long was interrupted: exit code 3: I stop") {
		t.Errorf("a cancelled run of steps ended %s: %s, with %q", d.Outcome, states(d), d.Message)
	}
}
