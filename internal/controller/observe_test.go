package controller

import (
	"testing"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/afterapply"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// The reason of a failure that is neither the engine's nor a user's is kept until
// the status has it, and ends with the failure.
func TestWhyARunFailedIsRemembered(t *testing.T) {
	for reason, want := range map[string]string{
		runner.OutOfMemory: "OutOfMemory",
		runner.NoSpace:     "NoSpace",
		runner.Stuck:       "Stuck",
		"PathInvalid":      "", // the step says as much
	} {
		report := &runner.Report{ID: "apply-1", Kind: stack.ApplyRun, Phase: runner.Done, Outcome: stack.Failed, Reason: reason, Message: "it ended"}
		m := stack.Status{}.Record(runOf(report, note{}))
		if m.FailedWhy != want {
			t.Errorf("after %s: FailedWhy = %q, want %q", reason, m.FailedWhy, want)
		}
		well := &runner.Report{ID: "apply-2", Kind: stack.ApplyRun, Phase: runner.Done, Outcome: stack.Succeeded}
		if m = m.Record(runOf(well, note{})); m.FailedWhy != "" {
			t.Errorf("after a success: FailedWhy = %q", m.FailedWhy)
		}
	}
}

// A run that ended before it could change anything leaves nothing to destroy, and no state
// that a backend must have. An earlier release does not say whether it could, and a run that
// was lost does not know.
func TestARunThatNeverBeganCreatesNothing(t *testing.T) {
	for _, kind := range []stack.RunKind{stack.ApplyRun, stack.ScriptRun} {
		for name, tt := range map[string]struct {
			untouched, lost, created bool
		}{
			"never began":                {true, false, false},
			"an earlier release, or did": {false, false, true},
			"lost":                       {true, true, true},
		} {
			report := &runner.Report{ID: "r", Kind: kind, Phase: runner.Done, Outcome: stack.Failed, Untouched: tt.untouched, Lost: tt.lost}
			m := stack.Status{}.Record(runOf(report, note{Cause: stack.Cause{Snapshot: "k"}}))
			if m.Created != tt.created || (m.Snapshot == "k") != tt.created || m.Failures != 1 {
				t.Errorf("%s, %s: created %v, from %q, %d failures", kind, name, m.Created, m.Snapshot, m.Failures)
			}
		}
	}
}

// A destroy is corrected only where the state stays: with another backend it would find
// nothing, and succeed.
func TestACorrectionKeepsTheState(t *testing.T) {
	ours := &kube.StateRef{Suffix: "s"}
	for name, tt := range map[string]struct {
		kind      stack.BackendKind
		was, then note
		want      bool
	}{
		"a state that we keep":     {stack.Managed, note{State: ours, Backend: "b"}, note{State: ours, Backend: "b"}, true},
		"another state":            {stack.Managed, note{State: ours, Backend: "b"}, note{State: &kube.StateRef{Suffix: "other"}, Backend: "b"}, false},
		"a backend in the spec":    {stack.Custom, note{Backend: "b"}, note{Backend: "b"}, true},
		"another backend":          {stack.Custom, note{Backend: "b"}, note{Backend: "c"}, false},
		"a backend in the module":  {stack.Declared, note{Backend: "b"}, note{Backend: "b"}, false},
		"one that we keep no more": {stack.Custom, note{State: ours, Backend: "b"}, note{Backend: "b"}, false},
	} {
		p := &pass{st: dialect.Stack{Configuration: stack.Configuration{Backend: stack.Backend{Kind: tt.kind}}}, note: tt.then}
		if got := p.keepsState(tt.was); got != tt.want {
			t.Errorf("%s: keepsState() = %v, want %v", name, got, tt.want)
		}
	}
}

// Outputs whose record is lost or damaged count as those that were known last, so that no step
// runs again by that. Those of a new record count.
func TestStepsWhoseOutputsAreLost(t *testing.T) {
	blobs := openRecords(t)
	c := takeApart(&Stacks{Blobs: blobs, Runner: noFiles{}})
	p := &pass{dialect: infra.Dialect{}, obj: &v1alpha2.Terraform{}, id: "uid", entry: &entry{id: "uid"}}
	p.st.Configuration.AfterApply = []afterapply.Step{{Name: "say", Command: []string{"true"}}}
	seen := func(state string) string {
		t.Helper()
		p.o.Status.State, p.entry = state, &entry{id: "uid"} // as another controller sees it
		if err := c.observeSteps(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		return p.o.Steps.Outputs
	}
	none := seen("s1")
	if err := c.records.Put(t.Context(), record.Outputs("uid"), []byte(`{"a":{"value":1}}`)); err != nil {
		t.Fatal(err)
	}
	known := seen("s1")
	if known == none {
		t.Error("outputs are the same as none")
	}
	if err := blobs.Delete(t.Context(), record.Outputs("uid")); err != nil {
		t.Fatal(err)
	}
	for _, state := range []string{"s1", "s2"} {
		if got := seen(state); got != known {
			t.Errorf("in the state %s, without the record, the outputs are %s, want those of before, %s", state, got, known)
		}
	}
	if err := c.records.Put(t.Context(), record.Outputs("uid"), []byte(`{"a":{"value":2}}`)); err != nil {
		t.Fatal(err)
	}
	if got := seen("s2"); got == known || got == none {
		t.Errorf("other outputs are %s, as before", got)
	}
}
