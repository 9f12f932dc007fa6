package aftersteps

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/afterapply"
	"github.com/terrier-iac/terrier/internal/archive/archivetest"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Only the files that steps use are in the digest: those in the module, and those above it.
func TestDigestOfFiles(t *testing.T) {
	files := map[string]string{"a/terraform/main.tf": "1", "a/terraform/bin/run": "1", "a/ansible/site.yml": "1", "a/ansible/roles/web/tasks.yml": "1", "b/x": "1", "a/terraform/data/x": "1"}
	steps := []afterapply.Step{
		{Name: "run", Command: []string{"bin/run"}, Files: []string{"data", "../ansible/roles"}},
		{Name: "play", Ansible: &afterapply.Ansible{Playbook: "../ansible/site.yml", HostsFrom: "h"}},
		{Name: "image", Command: []string{"true"}},
	}
	var known Files
	digest := func(change map[string]string) string {
		t.Helper()
		all := maps.Clone(files)
		maps.Copy(all, change)
		d, err := known.Digest(archivetest.Pack(t, all), stack.Digest(all), "a/terraform", steps)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	before := digest(nil)
	for name, counts := range map[string]bool{
		"a/terraform/bin/run": true, "a/ansible/site.yml": true, "a/ansible/roles/web/tasks.yml": true, "a/terraform/data/x": true, "a/terraform/data/new": true,
		"a/terraform/main.tf": false, "b/x": false, "a/terraform/bin/other": false, "a/ansible/hosts.yml": false,
	} {
		if changed := digest(map[string]string{name: "2"}) != before; changed != counts {
			t.Errorf("a change of %s counts: %t, want %t", name, changed, counts)
		}
	}
	if d, err := known.Digest("", "", "", steps); d != "" || err != nil {
		t.Errorf("Digest() of an inline module = %q, %v, want none", d, err)
	}
	if d, err := known.Digest(archivetest.Pack(t, files), "x", "", steps[2:]); d != "" || err != nil {
		t.Errorf("Digest() of steps without files = %q, %v, want none", d, err)
	}
}

// Ansible reads what is beside a playbook and an inventory, and no step leads out of the source.
func TestWhatStepsRead(t *testing.T) {
	steps := []afterapply.Step{
		{Name: "run", Command: []string{"bin/run"}, Files: []string{"../../../../data"}},
		{Name: "play", Ansible: &afterapply.Ansible{Playbook: "../ansible/site.yml", Inventory: "../hosts.yml"}},
		{Name: "verify", Inventory: &afterapply.Inventory{Path: "../hosts.yml", HostsFrom: "h"}},
		{Name: "write", Inventory: &afterapply.Inventory{Path: "../written.yml", HostsFrom: "h", Mode: afterapply.Commit}},
	}
	if diff := cmp.Diff([]string{"a/ansible/site.yml", "a/hosts.yml", "a/terraform/bin/run", "data"}, Used("a/terraform", steps)); diff != "" {
		t.Errorf("Used() (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a/ansible", "a/group_vars", "a/host_vars"}, Beside("a/terraform", steps)); diff != "" {
		t.Errorf("Beside() (-want +got):\n%s", diff)
	}
	top := []afterapply.Step{{Name: "play", Ansible: &afterapply.Ansible{Playbook: "../site.yml", HostsFrom: "h"}}}
	if got := Beside("a", top); len(got) != 1 || got[0] != "" {
		t.Errorf("Beside() a playbook in the root of the source = %q, want the root", got)
	}
}

// A step that had succeeded is marked as done, and one that cannot be carried out says why.
func TestJob(t *testing.T) {
	outputs := map[string]kube.Output{"zone": {Value: json.RawMessage(`"x"`)}, "token": {Value: json.RawMessage(`"s"`), Sensitive: true}}
	steps := []afterapply.Step{{Name: "a", Command: []string{"a"}}, {Name: "b", Command: []string{"b"}, Retries: 2}, {Name: "c", Command: []string{"c"}, Outputs: []string{"none"}}}
	before := []stack.StepResult{{Name: "a", State: stack.StepSucceeded}, {Name: "b", State: stack.StepInterrupted}}
	got := Job(steps, outputs, before, Tree{})
	given := []byte(`{"zone":"x"}`)
	want := []runner.AfterStep{
		{Name: "a", Argv: []string{"a"}, Outputs: given, Timeout: afterapply.DefaultTimeout, Pause: afterapply.DefaultPause, Done: &before[0]},
		{Name: "b", Argv: []string{"b"}, Outputs: given, Timeout: afterapply.DefaultTimeout, Pause: afterapply.DefaultPause, Retries: 2},
		{Name: "c", Timeout: afterapply.DefaultTimeout, Pause: afterapply.DefaultPause, Broken: "outputs: the stack has no output none"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Job() (-want +got):\n%s", diff)
	}
	lost := Job(steps, nil, nil, Tree{})
	if lost[0].Broken != "" || lost[2].Broken != "outputs: the stack has no output none. No outputs are known: if the module has any, the next plan reads them (terrier replan)" {
		t.Errorf("Job() without outputs = %+v, want the step that names one to say what to do", lost)
	}
}
