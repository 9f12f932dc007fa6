package runner

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/afterapply"
	"github.com/terrier-iac/terrier/internal/stack"
)

// What a report says of steps is taken only as far as a step can be so: a condition is made of it.
func TestStepResults(t *testing.T) {
	r := Report{AfterSteps: []stack.StepResult{
		{Name: "a", State: stack.StepSucceeded, Message: "done", Again: 7}, {Name: "No name", State: stack.StepSucceeded}, {Name: "a", State: stack.StepFailed},
		{Name: "b", State: "Odd", Message: strings.Repeat("x", 1<<20)},
	}}
	for range 100 {
		r.AfterSteps = append(r.AfterSteps, stack.StepResult{Name: "c" + strings.Repeat("c", len(r.AfterSteps)%40), State: stack.StepPending})
	}
	got := r.StepResults()
	if len(got) != afterapply.MaxSteps || len(got[1].Message) > stepTail {
		t.Errorf("StepResults() are %d with a message of %d bytes, want at most %d and %d", len(got), len(got[1].Message), afterapply.MaxSteps, stepTail)
	}
	got[1].Message = ""
	if diff := cmp.Diff([]stack.StepResult{{Name: "a", State: stack.StepSucceeded, Message: "done"}, {Name: "b", State: stack.StepFailed}}, got[:2]); diff != "" {
		t.Errorf("StepResults() (-want +got):\n%s", diff)
	}
}
