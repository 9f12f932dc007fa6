package stack

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A status that is lost costs a plan: what may not be forgotten is known from
// the records.
func TestWhatLastsOutlivesAStatus(t *testing.T) {
	gap := &Untracked{Run: "apply-1", Source: calmBasis.Source, Objects: []UntrackedResource{{Address: "x.a"}}}
	kept := Status{Resources: Resources{Untracked: gap, Created: true, Snapshot: "s"}, LastWrite: "apply-1", LastRun: "apply-1", Plans: Plans{Planned: calmBasis}, Failure: Failure{Failures: 1}}
	if kept.Blank() || !(Status{Answers: Answers{HandledReplan: "t1"}, Resources: Resources{Created: true}, StoredState: StoredState{Outputs: []string{"a"}}}).Blank() {
		t.Errorf("a memory of ours is taken for lost, or what upstream wrote for ours")
	}
	got := Status{}.Restored(kept.Checkpoint())
	if want := (Status{Resources: Resources{Untracked: gap, Created: true, Snapshot: "s"}, LastWrite: "apply-1"}); !cmp.Equal(got, want) {
		t.Errorf("restored is %s", cmp.Diff(want, got))
	}
	if d := Decide(calmly(Spec{Mode: Auto}, got)); d.Reason != StateIncomplete {
		t.Errorf("Decide() = %s (%s), want %s", d.Reason, d.Rule, StateIncomplete)
	}
	gone := Checkpoint{Destroyed: true, Snapshot: "s", LastWrite: "apply-2"}
	if got := (Status{}).Restored(gone); got.Created || !got.Destroyed {
		t.Errorf("what was taken down is restored as built %v, destroyed %v", got.Created, got.Destroyed)
	}
	o := calmly(Spec{Mode: Auto, DestroyLast: true}, Status{Resources: Resources{Created: true}}.Restored(gone)) // another controller applied it since
	o.Deleting = true
	if d := Decide(o); d.Action != Action(Destroy{}) {
		t.Errorf("Decide() = %#v (%s), want what exists by its status to be taken down", d.Action, d.Rule)
	}
}

func TestLastingIsWrittenWhenItChanges(t *testing.T) {
	is := Checkpoint{Created: true, LastWrite: "apply-1", AfterApply: &AfterApply{Done: "k", Run: "steps-1"}, Untracked: &Untracked{Run: "apply-1", Objects: []UntrackedResource{{Address: "x.a"}, {Address: "x.b"}}}}
	for name, tt := range map[string]struct {
		change func(*Checkpoint)
		same   bool
	}{
		"nothing":             {func(*Checkpoint) {}, true},
		"a gap read again":    {func(l *Checkpoint) { g := *l.Untracked; l.Untracked = &g }, true},
		"a gap that is gone":  {func(l *Checkpoint) { l.Untracked = nil }, false},
		"a smaller gap":       {func(l *Checkpoint) { l.Untracked = l.Untracked.Less(l.Untracked.Objects[:1]) }, false},
		"a gap of a new run":  {func(l *Checkpoint) { l.Untracked = &Untracked{Run: "apply-2", Objects: l.Untracked.Objects} }, false},
		"another write":       {func(l *Checkpoint) { l.LastWrite = "apply-2" }, false},
		"nothing that exists": {func(l *Checkpoint) { l.Created = false }, false},
		"the same steps":      {func(l *Checkpoint) { a := *l.AfterApply; a.Outputs, a.At = "o", calm; l.AfterApply = &a }, true},
		"another run of them": {func(l *Checkpoint) { a := *l.AfterApply; a.Run = "steps-2"; l.AfterApply = &a }, false},
		"steps that failed":   {func(l *Checkpoint) { a := *l.AfterApply; a.Done, a.Failed = "", "k"; l.AfterApply = &a }, false},
		"no steps":            {func(l *Checkpoint) { l.AfterApply = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			other := is
			tt.change(&other)
			if got := is.Same(other); got != tt.same {
				t.Errorf("Same() = %v, want %v", got, tt.same)
			}
		})
	}
}

// Untracked resources are shown until a user handled them, whatever else happens to
// the stack.
func TestNothingPassesOverUntrackedResources(t *testing.T) {
	gap := &Untracked{Run: "apply-1", Source: calmBasis.Source, Objects: []UntrackedResource{{Address: "x.a", ID: "1", Finished: true}}}
	other := calmBasis
	other.Source = "without x.a"
	for name, tt := range map[string]struct {
		spec Spec
		now  PlanInputs
		run  Run
	}{
		"everything that the state holds was taken down": {
			Spec{Mode: Auto, Destroy: true}, calmBasis,
			Run{ID: "apply-2", Kind: ApplyRun, Cause: Cause{PlanInputs: calmBasis, Destroy: true, Whole: true, Plan: &Plan{Destroy: true}}},
		},
		"a module without the object has nothing to change": {
			Spec{Mode: Auto}, other, Run{ID: "plan-2", Kind: PlanRun, Cause: Cause{PlanInputs: other}, Exists: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tt.run.Done, tt.run.Outcome, tt.run.At = true, Succeeded, calm
			o := calmly(tt.spec, Status{Resources: Resources{Untracked: gap, Created: true}}.Record(tt.run))
			o.PlanInputs = tt.now
			if d := Decide(o); d.Reason != StateIncomplete {
				t.Errorf("Decide() = %s (%s), want %s", d.Reason, d.Rule, StateIncomplete)
			}
			o.Spec.IgnoreUntracked = gap.Run
			if d := Decide(o); d.Reason == StateIncomplete {
				t.Errorf("Decide() = %s, although somebody dealt with the gap", d.Reason)
			}
		})
	}
}
