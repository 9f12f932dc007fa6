package runner_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Whatever is in the mirror: that a provider is started once for a run changes
// nothing of what comes of it. A provider that is added to the mirror needs a
// module here.
func TestReuseChangesNothing(t *testing.T) {
	modules := map[string]func(*runnertest.Mirror) string{
		"hashicorp/random": func(*runnertest.Mirror) string {
			return pet + "resource \"random_id\" \"a\" {\n  byte_length = 4\n  keepers = {\n    pet = random_pet.a.id\n  }\n}\n"
		},
		"hashicorp/local": func(m *runnertest.Mirror) string {
			return "resource \"local_file\" \"a\" {\n  filename = \"" + filepath.Join(m.Cloud, "file") + "\"\n  content = \"x\"\n}\n" +
				"data \"local_file\" \"a\" {\n  filename = local_file.a.filename\n}\noutput \"content\" {\n  value = data.local_file.a.content\n}\n"
		},
		"hashicorp/time":    func(*runnertest.Mirror) string { return "resource \"time_static\" \"a\" {\n}\n" },
		"terrier-iac/world": func(m *runnertest.Mirror) string { return things(m, 3, "  size = 2\n") },
	}
	found, err := filepath.Glob(filepath.Join(mirror(t), "registry.opentofu.org/*/*"))
	if err != nil || len(found) < 4 {
		t.Fatalf("the mirror holds %q, %v", found, err)
	}
	for _, dir := range found {
		name := filepath.Base(filepath.Dir(dir)) + "/" + filepath.Base(dir)
		t.Run(name, func(t *testing.T) {
			module, ok := modules[name]
			if !ok {
				t.Fatal("there is no module for this provider")
			}
			var came [2][]string
			for i, alone := range []bool{false, true} {
				s, m, _ := withProviders(t, "", "")
				s.Job.Files[0].Content = []byte(module(m))
				s.Job.Options.NoReattach = alone
				note := func(d runnertest.Done) runnertest.Done {
					came[i] = append(came[i], fmt.Sprintln(d.Kind, d.Outcome, d.Exit, d.Changes, d.Resources, d.Addresses, d.LockHash != "", len(d.Diagnostics)))
					if kept(d, name) == alone {
						t.Errorf("the %s kept the provider: %v; steps %+v\n%s", d.Kind, !alone, d.Steps, d.Log)
					}
					return d
				}
				note(s.Must(stack.ApplyRun, runnertest.Saved(note(s.Must(stack.PlanRun)))))
				note(s.Must(stack.CheckRun))
				note(s.Must(stack.DestroyRun, func(j *runner.Job) { j.Options.Parallelism = 1 }))
			}
			if a, b := fmt.Sprint(came[0]), fmt.Sprint(came[1]); a != b {
				t.Errorf("started once:\n%s\nstarted by the engine:\n%s", a, b)
			}
		})
	}
}
