package controller

import (
	"testing"

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
