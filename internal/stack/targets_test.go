package stack

import (
	"testing"
	"time"
)

// A destroy of targets leaves the other resources. The deletion of the stack destroys them, or
// retains them on record: the object is not released as if nothing were left.
func TestADestroyOfTargetsLeavesTheRest(t *testing.T) {
	plan := &Plan{Name: "p", Digest: "d", PlanInputs: calmBasis, Destroy: true, Changes: Changes{Destroy: 1}}
	last := LastState{Place: "bucket", Lineage: "l", Serial: 4, Resources: 5}
	for name, tt := range map[string]struct {
		run  RunKind
		plan *Plan
		want bool // something is left
		of   Cause
	}{
		"the apply of a plan of everything":   {ApplyRun, plan, false, Cause{Whole: true}},
		"the apply of a plan of targets":      {ApplyRun, plan, true, Cause{}},
		"a plan of everything finds nothing":  {PlanRun, nil, false, Cause{Whole: true}},
		"a plan of targets finds nothing":     {PlanRun, nil, true, Cause{}},
		"a check of everything finds nothing": {CheckRun, nil, false, Cause{Whole: true}},
		"a check of targets finds nothing":    {CheckRun, nil, true, Cause{}},
	} {
		t.Run(name, func(t *testing.T) {
			cause := tt.of
			cause.PlanInputs, cause.Destroy, cause.Plan = calmBasis, true, tt.plan
			m := Status{Resources: Resources{Created: true, Snapshot: "stacks/u/snapshots/1"}, StoredState: StoredState{LastState: last}}
			m = m.Record(Run{ID: "1", Kind: tt.run, Cause: cause, Done: true, Outcome: Succeeded, At: calm})
			if m.Created != tt.want || m.Destroyed == tt.want {
				t.Errorf("created %v, destroyed %v, want that something is left: %v", m.Created, m.Destroyed, tt.want)
			}
			if tt.run == ApplyRun && m.LastState.Holds() != tt.want {
				t.Errorf("the last known state is %s", m.LastState)
			}

			o := calmly(Spec{Mode: Auto, Destroy: true, DestroyLast: true}, m)
			o.Deleting = true
			_, released := Decide(o).Action.(Finish)
			if released == tt.want {
				t.Errorf("the deletion decides %T", Decide(o).Action)
			}
			o.Spec.DestroyLast = false
			if f, ok := Decide(o).Action.(Finish); !ok || f.Retained != tt.want {
				t.Errorf("a deletion that destroys nothing decides %+v", Decide(o).Action)
			}
		})
	}
}

// What targets leave is looked after as before: drift is checked at each interval.
func TestWhatTargetsLeaveIsCheckedForDrift(t *testing.T) {
	m := Status{Resources: Resources{Created: true}}
	m = m.Record(Run{ID: "1", Kind: ApplyRun, Cause: Cause{PlanInputs: calmBasis, Destroy: true, Plan: &Plan{Destroy: true, PlanInputs: calmBasis}}, Done: true, Outcome: Succeeded, At: calm})
	o := calmly(Spec{Mode: Auto, Destroy: true, CheckDrift: true, Interval: time.Hour}, m)
	o.Status.Planned = calmBasis
	o.Now = calm.Add(2 * time.Hour)
	if a, ok := Decide(o).Action.(Start); !ok || a.Kind != CheckRun {
		t.Errorf("it decides %+v", Decide(o))
	}
}

// A plan that destroys the targets may be pending when the object is deleted. The deletion makes
// a plan of everything, whatever was approved before, and applies no other.
func TestADeletionAppliesNoDestroyOfTargets(t *testing.T) {
	plan := Plan{Name: "p", Digest: "d", PlanInputs: calmBasis, Destroy: true, Changes: Changes{Destroy: 1}}
	for name, m := range map[string]Status{
		"after a destroy of the targets":    {Resources: Resources{Created: true, Snapshot: "stacks/u/snapshots/1"}},
		"without a record of what was made": {Resources: Resources{Created: true}},
	} {
		t.Run(name, func(t *testing.T) {
			found := plan
			m = m.Record(Run{ID: "1", Kind: PlanRun, Cause: Cause{PlanInputs: calmBasis, Destroy: true}, Plan: &found, Exists: true, Done: true, Outcome: Succeeded, At: calm})
			o := calmly(Spec{Mode: Manual, DestroyLast: true, ApproveDestroy: true, Approved: "p"}, m)
			if _, ok := Decide(o).Action.(Apply); !ok {
				t.Fatalf("before the deletion it decides %+v, want the targets destroyed", Decide(o))
			}
			o.Deleting, o.Status = true, m.WithDeletion()
			if m.Snapshot == "" {
				o.PlanInputs = PlanInputs{}
			}
			if a, ok := Decide(o).Action.(Start); !ok || a.Kind != PlanRun || !a.Destroy {
				t.Fatalf("the deletion decides %+v, want a plan of everything", Decide(o))
			}

			found = plan // the targets are everything: the changes are the same, and so is the digest
			o.Status = o.Status.Record(Run{ID: "2", Kind: PlanRun, Cause: Cause{PlanInputs: calmBasis, Destroy: true, Whole: true}, Plan: &found, Exists: true, Done: true, Outcome: Succeeded, At: calm})
			if a, ok := Decide(o).Action.(Apply); !ok || !a.Plan.Whole {
				t.Errorf("the deletion decides %+v, want the plan of everything applied", Decide(o))
			}
		})
	}
}
