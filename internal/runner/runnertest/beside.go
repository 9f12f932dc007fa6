package runnertest

import (
	"slices"
	"testing"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// listed are the keys that the runner finds runs under, of one stack.
func listed(t *testing.T, r Runner, id string) []string {
	t.Helper()
	reports, err := r.List()
	if err != nil {
		t.Fatalf("List() = %v", err)
	}
	var keys []string
	for _, rep := range reports {
		if rep.Stack == id {
			keys = append(keys, rep.Key())
		}
	}
	slices.Sort(keys)
	return keys
}

// besideIt plans other code of a stack twice while the stack is applied.
func besideIt(t *testing.T, f Fixture) {
	own, r, g, id := atGate(t, f)
	one, two := own.Beside("pr-1"), own.Beside("pr-2")
	one.Job.Files[0].Content = []byte("resource \"terraform_data\" \"other\" {\n}\n")
	firstID, secondID := one.Start(stack.PlanRun), two.Start(stack.PlanRun)
	first, second := one.Await(), two.Await()
	if first.Outcome != stack.Succeeded || first.Changes.Add != 1 || second.Changes.Add != 2 || first.Beside != "pr-1" || first.Stack != own.Job.Stack {
		t.Errorf("beside the stack ended %+v and %+v, want plans of one and of two resources", first, second)
	}
	want := []string{own.Job.Stack, one.Job.Key(), two.Job.Key()}
	if got := listed(t, r, own.Job.Stack); !slices.Equal(got, want) {
		t.Errorf("List() finds %q, want %q", got, want)
	}
	if got := own.Current(); got == nil || got.ID != id || got.Phase != runner.Applying || got.Beside != "" {
		t.Errorf("the stack's own run is %+v, want %s applying", got, id)
	}
	if one.Read(firstID, runner.FileState) != nil || one.Read(firstID, runner.FilePlan) == nil || one.Read(secondID+"x", runner.FilePlan) != nil {
		t.Error("a run beside the stack left a state, or no plan")
	}
	again := one.Job
	again.ID, again.Kind = "again", stack.PlanRun
	if err := r.Start(t.Context(), again); fault.Of(err) != fault.Conflict {
		t.Errorf("starting a second run under the key = %v, want a Conflict", err)
	}
	if err := r.Remove(own.Job.Stack); fault.Of(err) != fault.Conflict {
		t.Errorf("removing the stack while it is applied = %v, want a Conflict", err)
	}
	one.Finish(firstID)
	if got := listed(t, r, own.Job.Stack); !slices.Equal(got, []string{own.Job.Stack, two.Job.Key()}) {
		t.Errorf("List() finds %q after one run was forgotten", got)
	}
	g.Open(t)
	if d := own.Finish(id); d.Outcome != stack.Succeeded || d.Resources != 2 || d.InitSkipped == f.Fresh {
		t.Errorf("the stack's own run ended %s with %d resources, init skipped %v: %s", d.Outcome, d.Resources, d.InitSkipped, d.Message)
	}
	if got := two.Current(); got == nil || got.ID != secondID {
		t.Errorf("the run beside is %+v after the stack's own was forgotten, want %s", got, secondID)
	}
	if err := r.Remove(own.Job.Stack); err != nil {
		t.Errorf("Remove() = %v", err)
	}
	if got := listed(t, r, own.Job.Stack); len(got) > 0 {
		t.Errorf("List() finds %q after the stack was removed", got)
	}
}

// besideOnlyPlans tries the other kinds of run beside a stack.
func besideOnlyPlans(t *testing.T, f Fixture) {
	r := f.New(t)
	s := f.stack(t, r, oneResource).Beside("pr-1")
	for _, kind := range []stack.RunKind{stack.ApplyRun, stack.DestroyRun, stack.BreakGlassRun, stack.CheckRun, stack.PreviewRun, stack.HealthRun} {
		job := s.Job
		job.ID, job.Kind = string(kind)+"-x", kind
		if err := r.Start(t.Context(), job); fault.Of(err) != fault.Invalid || fault.Reason(err, "") != runner.BesideWrites {
			t.Errorf("Start() of kind %s beside a stack = %v, want Invalid", kind, err)
		}
	}
	job := s.Job
	job.ID, job.Kind, job.Options.ForceUnlock = "plan-x", stack.PlanRun, "lock-1"
	if err := r.Start(t.Context(), job); fault.Of(err) != fault.Invalid {
		t.Errorf("Start() of a plan beside a stack that breaks a lock = %v, want Invalid", err)
	}
	if got := s.Current(); got != nil {
		t.Errorf("Current() = %+v after runs that were refused, want nothing", got)
	}
}
