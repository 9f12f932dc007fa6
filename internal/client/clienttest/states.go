package clienttest

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/record"
)

func readsStates(t *testing.T, w *World, s Subject) {
	old, now := stateOf(3, "a", "b"), stateOf(7, "b")
	w.stored(t, now, old, now)
	kept := must(s.Stacks.StateVersions(t.Context(), w.key("net")))(t)
	if len(kept.Versions) != 2 || kept.Versions[0].Serial != 3 || kept.Head.Serial != 7 {
		t.Errorf("StateVersions() = %+v, want both", kept)
	}
	for version, resources := range map[string]int{"": 1, "3": 2, kept.Versions[0].Digest: 2} {
		v := must(s.Stacks.StateOf(t.Context(), w.key("net"), version, false))(t)
		if len(v.Resources) != resources || len(v.Outputs) != 1 || fmt.Sprint(v.Outputs[0].Value) == "open" {
			t.Errorf("StateOf(%q) = %+v, want %d resources and a masked output", version, v, resources)
		}
	}
	if v := must(s.Stacks.StateOf(t.Context(), w.key("net"), "", true))(t); fmt.Sprint(v.Outputs[0].Value) != "open" {
		t.Errorf("revealed is %+v", v.Outputs)
	}
	_, err := s.Stacks.StateOf(t.Context(), w.key("net"), "5", false)
	want(t, "a version that is not kept", err, fault.Missing, query.ReasonNoVersion)

	w.stored(t, stateOf(8, "from-a-secret"))
	known := plan.Remembered{Key: []byte("k")}
	known.Add([]string{"from-a-secret"})
	w.put(t, record.Secrets(w.id(t).UID), string(must(json.Marshal(known))(t)))
	for reveal, id := range map[bool]string{false: plan.Mask, true: "from-a-secret"} {
		v := must(s.Stacks.StateOf(t.Context(), w.key("net"), "", reveal))(t)
		if len(v.Resources) != 1 || v.Resources[0].Attributes["id"] != id || v.Masked != "" {
			t.Errorf("StateOf(reveal %v) = %+v, want the identifier %s", reveal, v, id)
		}
	}
}

func rollsBack(t *testing.T, w *World, s Subject) {
	old, now, later := stateOf(3, "a", "b"), stateOf(7, "b", "c"), stateOf(8, "d")
	w.stored(t, now, old, now)
	change := must(s.Stacks.PlanRollback(t.Context(), w.key("net"), "3", false))(t)
	if d := change.Diff; fmt.Sprint(d.Gone, d.Added) != "[t.c] [t.a]" || change.From.Serial != 7 || change.To.Serial != 8 || change.Key != w.key("net") {
		t.Errorf("PlanRollback() = %+v, want c to go and a to come back", change)
	}
	w.stored(t, later, old, now, later)
	want(t, "something else is stored by now", s.Stacks.WriteState(t.Context(), change), fault.Conflict, kube.StateConflict)

	change = must(s.Stacks.PlanRollback(t.Context(), w.key("net"), "3", false))(t)
	done(t, "WriteState()", s.Stacks.WriteState(t.Context(), change))
	got := must(s.Stacks.StateOf(t.Context(), w.key("net"), "", false))(t)
	if got.Serial != 9 || len(got.Resources) != 2 {
		t.Errorf("stored is %+v, want the two resources as serial 9", got)
	}
	if w.object(t, "net").Annotations[infra.RequestedAt] == "" {
		t.Error("nobody is asked to look at it")
	}
	want(t, "the same once more", s.Stacks.WriteState(t.Context(), change), fault.Conflict, kube.StateConflict)
	_, err := s.Stacks.PlanRollback(t.Context(), w.key("net"), "5", false)
	want(t, "a version that is not kept", err, fault.Missing, query.ReasonNoVersion)
}

func locks(t *testing.T, w *World, s Subject) {
	w.stored(t, stateOf(3, "a"))
	_, err := s.Stacks.UnlockState(t.Context(), w.key("net"), "")
	want(t, "nobody holds the lock", err, fault.Conflict, query.ReasonNoLock)
	lock := must(s.Stacks.LockState(t.Context(), w.key("net"), "moving things"))(t)
	if lock.ID == "" || lock.Person != w.User(Boss).Name || lock.Info != "moving things" {
		t.Errorf("LockState() = %+v, want it to be of the one who asked", lock)
	}
	if again := must(s.Stacks.LockState(t.Context(), w.key("net"), "again"))(t); again.ID != lock.ID {
		t.Errorf("to lock what one holds is another lock: %+v", again)
	}
	_, err = s.Stacks.UnlockState(t.Context(), w.key("net"), "other")
	want(t, "another lock", err, fault.Conflict, query.ReasonLockChanged)
	if freed := must(s.Stacks.UnlockState(t.Context(), w.key("net"), ""))(t); freed.ID != lock.ID {
		t.Errorf("freed is %+v, want %s", freed, lock.ID)
	}
}

func accepts(t *testing.T, w *World, s Subject) {
	w.stored(t, stateOf(3, "a"))
	known := must(s.Stacks.AcceptState(t.Context(), w.key("net"), "restored by hand"))(t)
	if known.Serial != 3 || known.Digest == "" || w.object(t, "net").Annotations[dialect.AcceptState] == "" {
		t.Errorf("AcceptState() = %+v, want what is stored to be accepted", known)
	}
}
