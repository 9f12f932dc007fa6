package steps

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/internal/afterapply"
	"github.com/terrier-iac/terrier/internal/prerequisite"
	"github.com/terrier-iac/terrier/internal/stack"
)

// The conditions say how far a run is that goes on, and the status how the last one went.
func TestOf(t *testing.T) {
	wanted := []afterapply.Step{{Name: "up", WaitFor: &afterapply.WaitFor{}}, {Name: "play", Ansible: &afterapply.Ansible{}}, {Name: "say", Command: []string{"say"}}}
	at, later := time.Unix(1000, 0), time.Unix(2000, 0)
	read := stack.Steps{Digest: "sha256:0123456789abcdef", Source: "s"}
	word := stack.ShortSteps(read.Approvable())
	m := stack.Status{AfterApply: &stack.AfterApply{Wanted: read.Digest, Source: read.Source, Run: "steps-1", At: at, Failed: "k", Message: "the step play failed", Results: []stack.StepResult{
		{Name: "up", State: stack.StepSucceeded, Attempts: 1, At: at}, {Name: "play", State: stack.StepFailed, Attempts: 2, At: at, Message: "no route"}, {Name: "say", State: stack.StepPending},
	}}}
	says := func(states ...stack.StepState) (all []metav1.Condition) {
		for i, s := range states {
			all = append(all, metav1.Condition{Type: afterapply.ConditionPrefix + wanted[i].Name, Reason: string(s), LastTransitionTime: metav1.NewTime(later)})
		}
		return all
	}
	for name, tt := range map[string]struct {
		conditions []metav1.Condition
		status     stack.Status
		held       bool
		want       Steps
		done       int
		now        string
	}{
		"before the first apply": {want: Steps{State: stack.StepPending, BeforeApply: true, Steps: []Progress{{Name: "up", Does: "waitFor", State: "Pending"}, {Name: "play", Does: "ansible", State: "Pending"}, {Name: "say", Does: "command", State: "Pending"}}}},
		"after a failure": {status: m, done: 1, now: "play", want: Steps{State: stack.StepFailed, Digest: word, Run: "steps-1", At: at, Message: "the step play failed", Steps: []Progress{
			{Name: "up", Does: "waitFor", State: "Succeeded", Attempts: 1, At: at}, {Name: "play", Does: "ansible", State: "Failed", Attempts: 2, At: at, Message: "no route"}, {Name: "say", Does: "command", State: "Pending"},
		}}},
		"while they run again": {status: m, conditions: says(stack.StepSucceeded, stack.StepRunning, stack.StepPending), done: 1, now: "play", want: Steps{State: stack.StepRunning, Digest: word, Run: "steps-1", At: at, Message: "the step play failed", Steps: []Progress{
			{Name: "up", Does: "waitFor", State: "Succeeded", Attempts: 1, At: at}, {Name: "play", Does: "ansible", State: "Running", At: later}, {Name: "say", Does: "command", State: "Pending"},
		}}},
		"of which others were approved": {conditions: says(stack.StepSucceeded, stack.StepSucceeded, stack.StepSucceeded), held: true, done: 3, want: Steps{State: Held, BeforeApply: true, Steps: []Progress{
			{Name: "up", Does: "waitFor", State: "Succeeded", At: later}, {Name: "play", Does: "ansible", State: "Succeeded", At: later}, {Name: "say", Does: "command", State: "Succeeded", At: later},
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Of(wanted, tt.conditions, tt.status, tt.held)
			if diff := cmp.Diff(&tt.want, got); diff != "" {
				t.Errorf("Of() (-want +got):\n%s", diff)
			}
			if got.Done() != tt.done || got.Now() != tt.now {
				t.Errorf("Done() = %d, Now() = %q, want %d and %q", got.Done(), got.Now(), tt.done, tt.now)
			}
		})
	}
	if got := Of(nil, nil, m, false); got != nil {
		t.Errorf("Of() without steps = %+v", got)
	}
}

// Each prerequisite is there with what its condition says, and one that was not looked for without.
func TestGates(t *testing.T) {
	at := time.Unix(1000, 0)
	got := Gates([]prerequisite.Prerequisite{{Name: "vlan"}, {Name: "dhcp"}, {Name: "new"}}, []metav1.Condition{
		{Type: prerequisite.ConditionPrefix + "vlan", Status: metav1.ConditionTrue, Reason: "Met", LastTransitionTime: metav1.NewTime(at)},
		{Type: prerequisite.ConditionPrefix + "dhcp", Status: metav1.ConditionFalse, Reason: "NotFound", Message: "it is not there", LastTransitionTime: metav1.NewTime(at)},
	})
	want := []Prerequisite{{Name: "vlan", Met: true, Reason: "Met", Since: at}, {Name: "dhcp", Reason: "NotFound", Since: at, Message: "it is not there"}, {Name: "new"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Gates() (-want +got):\n%s", diff)
	}
}
