package runner_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit/executable"
)

const pet = `
resource "random_pet" "a" {
}
`

// ours is how a provider's script knows that the supervisor has started it: an
// engine asks for TLS.
const ours = `[ -n "$PLUGIN_CLIENT_CERT" ] || `

// withProviders returns a stack whose providers do something ahead.
func withProviders(t *testing.T, module, ahead string) (*runnertest.Stack, *runnertest.Mirror, string) {
	t.Helper()
	dir := t.TempDir()
	m := runnertest.NewMirror(t, mirror(t), ahead)
	s := runnertest.NewStack(t, open(t, dir), tofu(t), module)
	m.Use(s)
	return s, m, filepath.Join(dir, "stacks", s.Job.Stack)
}

// kept reports whether a run kept this provider to its end.
func kept(d runnertest.Done, provider string) bool {
	for _, step := range d.Steps {
		if step.Name == "provider "+provider {
			return step.Exit == 0
		}
	}
	return false
}

func TestProvidersThatCannotBeKept(t *testing.T) {
	for name, c := range map[string]struct {
		ahead, says string
		within      time.Duration
	}{
		"ends":      {"echo out of order $RUN_TEST_SECRET >&2; exit 3", "it ended before it served (exit code 3): out of order", time.Minute},
		"garbles":   {"echo This is a plugin for people.; exec sleep 1000", "greets with", time.Minute},
		"hangs":     {"exec sleep 1000", "did not say in time", 5 * time.Second},
		"is old":    {"echo '1|4|unix|/tmp/x|grpc|'; exec sleep 1000", "speaks the protocol", time.Minute},
		"floods":    {"head -c 1000000 /dev/zero; exec sleep 1000", "greets with", time.Minute},
		"wants TLS": {"echo '1|5|unix|/tmp/x|grpc|MIIB'; exec sleep 1000", "TLS", time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			s, m, _ := withProviders(t, pet, ours+"{ echo tried >> $CLOUD/starts; "+c.ahead+"; }")
			alive := runnertest.Marked(t, s)
			s.Job.Env["RUN_TEST_SECRET"] = "canary-provider"
			s.Job.Mask = []string{"canary-provider"}
			s.Job.Limits.Provider = c.within
			plan := s.Must(stack.PlanRun)
			if !runnertest.Has(c.says, plan.Log) || runnertest.Has("canary-provider", plan.Log, plan.Events) {
				t.Errorf("the log does not say %q, or more than it may:\n%s", c.says, plan.Log)
			}
			if got := m.Started(); strings.Count(got, "tried") != 1 || strings.Count(got, "random") < 3 {
				t.Errorf("the plan started %q, want one try and the engine's own starts", got)
			}
			if left := alive(); len(left) > 0 {
				t.Errorf("%q live after the plan", left)
			}
			s.Must(stack.ApplyRun, runnertest.Saved(plan))
			s.Must(stack.CheckRun)
			if got := m.Started(); strings.Contains(got, "tried") {
				t.Errorf("the provider was tried again: %q", got)
			}
		})
	}
}

// A provider that crashes fails its step. A step that reads is run again without the
// session.
func TestAStepThatReadsIsRunAgain(t *testing.T) {
	s, m, work := withProviders(t, "", "")
	s.Job.Files[0].Content = []byte(m.World() + "resource \"world_thing\" \"a\" {\n  name = \"a\"\n}\n" + pet)
	s.Must(stack.ApplyRun, runnertest.Saved(s.Must(stack.PlanRun)))
	m.Started()

	m.Fault(`{"call": "read", "do": "crash-before", "times": 1}`)
	d := s.Must(stack.CheckRun)
	if !d.Changes.None() || len(d.Diagnostics) != 0 {
		t.Errorf("the check found %v and said %+v, want nothing", d.Changes, d.Diagnostics)
	}
	for _, want := range []string{"The provider terrier-iac/world ended early", "Trying once more"} {
		if !runnertest.Has(want, d.Log) {
			t.Errorf("the log does not say %q:\n%s", want, d.Log)
		}
	}
	if refused, err := os.ReadFile(filepath.Join(work, "refused.json")); err != nil || !strings.Contains(string(refused), "terrier-iac/world 0.1.0") || strings.Contains(string(refused), "random") {
		t.Errorf("refused = %s, %v; want the world alone", refused, err)
	}
	m.Started()
	again := s.Must(stack.CheckRun)
	if kept(again, "terrier-iac/world") || !kept(again, "hashicorp/random") {
		t.Errorf("the steps of the next run = %+v, want the world started by the engine", again.Steps)
	}
}

// F12: an apply is run once, whatever its provider does.
func TestAnApplyIsNotRunAgain(t *testing.T) {
	s, m, work := withProviders(t, "", "")
	s.Job.Files[0].Content = []byte(m.World() + "resource \"world_thing\" \"a\" {\n  name = \"a\"\n}\n")
	plan := s.Must(stack.PlanRun)
	m.Fault(`{"call": "create", "do": "crash-after"}`)
	d := s.Finish(s.Start(stack.ApplyRun, runnertest.Saved(plan)))
	if d.Outcome != stack.Failed || d.Step != "apply" || !strings.Contains(d.Message, "The provider terrier-iac/world ended early") {
		t.Errorf("ended %s in %s: %s", d.Outcome, d.Step, d.Message)
	}
	journal, err := os.ReadFile(filepath.Join(m.Cloud, "world.json.journal"))
	if err != nil || strings.Count(string(journal), `"call":"create","phase":"begin"`) != 1 {
		t.Errorf("the world was asked: %s, %v; want one create", journal, err)
	}
	if _, err := os.Stat(filepath.Join(work, "refused.json")); err == nil {
		t.Error("a crash in the middle of an apply was held against keeping the provider")
	}
}

// An apply that could not talk to its provider has changed nothing; it says
// so, and the next one is without.
func TestAnApplyWithoutContact(t *testing.T) {
	s, m, _ := withProviders(t, pet, ours+"[ ! -e $CLOUD/deaf ] || { echo '1|5|unix|/tmp/nobody|grpc|'; exec sleep 1000; }")
	plan := s.Must(stack.PlanRun)
	if !kept(plan, "hashicorp/random") {
		t.Fatalf("the provider was not kept: %+v\n%s", plan.Steps, plan.Log)
	}
	if err := os.WriteFile(filepath.Join(m.Cloud, "deaf"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d := s.Finish(s.Start(stack.ApplyRun, runnertest.Saved(plan)))
	if d.Outcome != stack.Failed || !strings.Contains(d.Message, "Nothing was changed") {
		t.Errorf("ended %s: %s\n%s", d.Outcome, d.Message, d.Log)
	}
	d = s.Must(stack.ApplyRun, runnertest.Saved(plan))
	if kept(d, "hashicorp/random") || d.Resources != 1 {
		t.Errorf("the second apply left %d resources after %+v", d.Resources, d.Steps)
	}
}

func TestASwappedProviderIsNotStarted(t *testing.T) {
	s, m, _ := withProviders(t, pet, "")
	s.Must(stack.ApplyRun, runnertest.Saved(s.Must(stack.PlanRun)))
	if d := s.Must(stack.CheckRun); !kept(d, "hashicorp/random") {
		t.Fatalf("the provider was not kept: %+v\n%s", d.Steps, d.Log)
	}
	program := filepath.Join(m.Dir, "registry.opentofu.org/hashicorp/random/2.0.0/linux_amd64/terraform-provider-random_v2.0.0")
	info, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	evil := []byte(strings.Replace(string(good), "echo random", "echo mellow", 1))
	if err := executable.Write(program, evil, 0o755); err != nil {
		t.Fatal(err)
	}
	// The same size and the same time, as far as one can set it.
	if err := os.Chtimes(program, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	m.Started()
	d := s.Finish(s.Start(stack.CheckRun))
	if d.Outcome != stack.Failed || kept(d, "hashicorp/random") || !strings.Contains(d.Message+string(d.Log), "checksum") {
		t.Errorf("ended %s after %+v: %s", d.Outcome, d.Steps, d.Message)
	}
	if got := m.Started(); got != "" {
		t.Errorf("started %q, want nothing", got)
	}
	// Its own file again, though another inode would do: hashed, and kept.
	if err := executable.Write(program, good, 0o755); err != nil {
		t.Fatal(err)
	}
	if d := s.Must(stack.CheckRun); !kept(d, "hashicorp/random") {
		t.Errorf("the provider that was put back was not kept: %+v", d.Steps)
	}
}

// One process holds one configuration: an alias needs another.
func TestAProviderWithAnAliasIsTheEngines(t *testing.T) {
	s, m, _ := withProviders(t, "", "")
	s.Job.Files[0].Content = []byte(m.World() + `
provider "world" {
  alias = "other"
  path  = "` + filepath.Join(m.Cloud, "other.json") + `"
}
resource "world_thing" "a" {
  name = "a"
}
resource "world_thing" "b" {
  provider = world.other
  name     = "b"
}
` + pet)
	plan := s.Must(stack.PlanRun)
	apply := s.Must(stack.ApplyRun, runnertest.Saved(plan))
	for _, d := range []runnertest.Done{plan, apply} {
		if kept(d, "terrier-iac/world") || !kept(d, "hashicorp/random") {
			t.Errorf("the steps of the %s = %+v, want the random provider kept alone", d.Kind, d.Steps)
		}
	}
	for file, name := range map[string]string{"world.json": `"name": "a"`, "other.json": `"name": "b"`} {
		if data, err := os.ReadFile(filepath.Join(m.Cloud, file)); err != nil || strings.Count(string(data), `"name"`) != 1 || !strings.Contains(string(data), name) {
			t.Errorf("%s = %s, %v; want %s alone", file, data, err, name)
		}
	}
}

func TestNothingOfAKilledRunLives(t *testing.T) {
	for name, level := range map[string]int{"full": 0, "kernel": 2} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil {
				t.Fatal(err)
			}
			g := runnertest.NewGate(t)
			m := runnertest.NewMirror(t, mirror(t), "")
			s := runnertest.NewStack(t, open(t, dir), tofu(t), pet+slow(g))
			s.Job.Sandbox.Level = level
			m.Use(s)
			alive := runnertest.Marked(t, s)
			s.Allow(g.Dir)
			plan := s.Must(stack.PlanRun)
			id := s.Start(stack.ApplyRun, runnertest.Saved(plan))
			g.Arrived(t)
			if got := alive(); len(got) < 2 {
				t.Errorf("at work are %q, want the engine and its provider at least", got)
			}
			if err := syscall.Kill(s.Current().PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if r := s.Await(); r.Outcome != stack.Killed {
				t.Errorf("ended %s: %s", r.Outcome, r.Message)
			}
			// Below full the keeper is told by the end of a stream, a moment
			// later.
			for deadline := time.Now().Add(5 * time.Minute); len(alive()) > 0; {
				if time.Now().After(deadline) {
					t.Fatalf("%q live after the supervisor", alive())
				}
			}
			s.Finish(id)
			if d := s.Must(stack.PlanRun); d.Outcome != stack.Succeeded || !kept(d, "hashicorp/random") {
				t.Errorf("the next plan ended %s: %s", d.Outcome, d.Message)
			}
		})
	}
}

// The engine is interrupted once and its provider not at all, so that what was
// begun is finished and kept.
func TestAProviderOutlivesTheInterrupt(t *testing.T) {
	t.Parallel() // waits
	s, m, _ := withProviders(t, "", "")
	s.Job.Files[0].Content = []byte(m.World() + "resource \"world_thing\" \"a\" {\n  name = \"a\"\n}\n" +
		"resource \"world_thing\" \"b\" {\n  name = \"b\"\n  depends_on = [world_thing.a]\n}\n")
	plan := s.Must(stack.PlanRun)
	m.Fault(`{"call": "create", "name": "b", "do": "hang"}`)
	id := s.Start(stack.ApplyRun, runnertest.Saved(plan), func(j *runner.Job) { j.Limits.Apply = runnertest.Ample(plan) })
	d := s.Finish(id)
	if d.Outcome != stack.TimedOut || !kept(d, "terrier-iac/world") {
		t.Errorf("ended %s after %+v: %s\n%s", d.Outcome, d.Steps, d.Message, d.Log)
	}
	if !runnertest.Has(`"name":"a"`, s.State) && !runnertest.Has(`"name": "a"`, s.State) {
		t.Errorf("the state does not hold what was made: %s", s.State)
	}
}

// A provider that refuses its configuration may do so because it got it twice.
// If it refuses it alone as well, the failure is told once and held against
// nothing.
func TestAConfigurationThatIsRefusedEitherWay(t *testing.T) {
	s, _, work := withProviders(t, "", "")
	s.Job.Files[0].Content = []byte(`
terraform {
  required_providers {
    world = { source = "terrier-iac/world" }
  }
}
provider "world" {
}
resource "world_thing" "a" {
  name = "a"
}
`)
	d := s.Finish(s.Start(stack.PlanRun))
	failures := slices.DeleteFunc(d.Diagnostics, func(d plan.Diagnostic) bool { return d.Severity != "error" })
	if d.Outcome != stack.Failed || len(failures) != 1 || !strings.Contains(failures[0].Address, "terrier-iac/world") {
		t.Errorf("ended %s with %+v, want one error about the provider", d.Outcome, failures)
	}
	if n := strings.Count(string(d.Log), "Trying once more"); n != 1 {
		t.Errorf("tried again %d times:\n%s", n, d.Log)
	}
	if _, err := os.Stat(filepath.Join(work, "refused.json")); err == nil {
		t.Error("a configuration that is wrong was held against keeping the provider")
	}
}

// What is shown is what is saved: no process in the sandbox can write the plan that
// an engine reads to show it.
func TestThePlanThatIsShownCannotBeWritten(t *testing.T) {
	for name, level := range map[string]int{"full": 0, "kernel": 2} {
		t.Run(name, func(t *testing.T) {
			s, m, stackDir := withProviders(t, pet, `for f in /shown/plan $(cat $CLOUD/target); do
  [ -s $f ] && echo seen >> $CLOUD/starts
  rm -f $f 2>/dev/null; (echo x >> $f) 2>/dev/null && echo written >> $CLOUD/starts
done`)
			if err := errors.Join(os.Chmod(filepath.Dir(filepath.Dir(filepath.Dir(stackDir))), 0o711),
				os.WriteFile(filepath.Join(m.Cloud, "target"), []byte(filepath.Join(stackDir, "shown/plan")), 0o644)); err != nil {
				t.Fatal(err)
			}
			s.Job.Sandbox.Level = level
			s.Job.Options.NoReattach = true // so that the provider is started while the plan is shown
			s.Job.Options.ReadableText = true
			plan := s.Must(stack.PlanRun)
			if got := m.Started(); !strings.Contains(got, "seen") || strings.Contains(got, "written") {
				t.Errorf("the provider did %q, want it to see the plan and not to write it", got)
			}
			s.Must(stack.ApplyRun, runnertest.Saved(plan))
			if _, err := os.Stat(filepath.Join(stackDir, "shown")); err == nil {
				t.Error("the plan that was shown is left")
			}
		})
	}
}
