package clienttest

import (
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// returns rolls net back to its last good apply, and ends that.
func returns(t *testing.T, w *World, s Subject) {
	ctx, net := t.Context(), w.key("net")
	_, err := s.Stacks.RollBack(ctx, net, command.StackRollback{})
	want(t, "no earlier apply", err, fault.Conflict, command.ReasonNoRollback)
	_, err = s.Stacks.RollBack(ctx, net, command.StackRollback{End: true})
	want(t, "the end of no rollback", err, fault.Conflict, command.ReasonNoRollback)

	good, bad := stack.PlanInputs{Revision: "main@sha1:good", Source: "sha256:aa"}, stack.PlanInputs{Revision: "main@sha1:bad", Source: "sha256:bb"}
	m := stack.Status{
		Plans: stack.Plans{Planned: bad}, Resources: stack.Resources{Created: true, Applied: &stack.Plan{Name: "p2", PlanInputs: bad}},
		Recovery: stack.Recovery{Revisions: []stack.Revision{{PlanInputs: good, Plan: "p1", Healthy: true}, {PlanInputs: bad, Plan: "p2"}}},
	}
	w.status(t, m, nil)
	seen := must(s.Stacks.Get(ctx, net))(t)
	if b := seen.CanRollBack; b == nil || b.Leaves != bad.Token() || b.To != good.Revision || seen.RolledBack != nil {
		t.Errorf("Get() = %+v, %+v; want that it can be rolled back", b, seen.RolledBack)
	}
	_, err = s.Stacks.RollBack(ctx, net, command.StackRollback{Leaves: good.Token()})
	want(t, "something else than was seen", err, fault.Conflict, command.ReasonOtherRollback)
	got := must(s.Stacks.RollBack(ctx, net, command.StackRollback{Reason: "it\nis slow"}))(t)
	if got != (command.RollbackTo{From: bad.Revision, To: good.Revision, Plan: "p1"}) {
		t.Errorf("RollBack() = %+v, want from the bad to the good revision", got)
	}
	token, why, ok := stack.ReadRollbackRequest(w.object(t, "net").Annotations[dialect.RollBack])
	if !ok || token != bad.Token() || why != "it is slow" {
		t.Errorf("the object says %q for %q, %v; want that the bad inputs are left", token, why, ok)
	}

	m.Rollback = &stack.Rollback{From: bad, To: m.Revisions[0], At: time.Unix(1e9, 0).UTC()}
	w.status(t, m, nil)
	if seen := must(s.Stacks.Get(ctx, net))(t); seen.CanRollBack != nil || seen.RolledBack == nil || seen.RolledBack.From != bad.Revision {
		t.Errorf("Get() = %+v, %+v; want that it is rolled back", seen.CanRollBack, seen.RolledBack)
	}
	_, err = s.Stacks.RollBack(ctx, net, command.StackRollback{})
	want(t, "a rollback of a rollback", err, fault.Conflict, command.ReasonNoRollback)
	got = must(s.Stacks.RollBack(ctx, net, command.StackRollback{End: true}))(t)
	if got != (command.RollbackTo{From: good.Revision, To: bad.Revision, Plan: "p1"}) {
		t.Errorf("RollBack() = %+v, want the end of the rollback", got)
	}
	if token, _, ok := stack.ReadRollbackRequest(w.object(t, "net").Annotations[dialect.RollBack]); !ok || token != stack.EndRollback {
		t.Errorf("the object says %q, %v; want the end of the rollback", token, ok)
	}
}
