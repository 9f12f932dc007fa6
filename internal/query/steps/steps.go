// Package steps says how far the steps are that follow the applies of a stack, and which of its
// prerequisites are met. It reads what the status of the object has, and nothing else.
//
// Start reading at Of.
package steps

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/internal/afterapply"
	"github.com/terrier-iac/terrier/internal/prerequisite"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Held is the state of steps that were not approved.
const Held stack.StepState = "Held"

// Steps are the steps after the applies of a stack.
type Steps struct {
	State   stack.StepState `json:"state"`             // of all of them, or Held
	Digest  string          `json:"digest,omitempty"`  // names these steps and the files that they can use; empty before Terrier has read them
	Run     string          `json:"run,omitempty"`     // that carried them out last
	At      time.Time       `json:"at,omitzero"`       // when it ended
	Message string          `json:"message,omitempty"` // how they failed
	Steps   []Progress      `json:"steps"`

	BeforeApply bool `json:"beforeApply,omitempty"` // the stack was not applied yet, and nothing runs them before
}

// Progress is how far one of them is.
type Progress struct {
	Name     string          `json:"name"`
	Does     string          `json:"does"` // the field by which it says what it does, as waitFor
	State    stack.StepState `json:"state"`
	Attempts int             `json:"attempts,omitempty"` // of its last run
	At       time.Time       `json:"at,omitzero"`        // when it began or ended
	Message  string          `json:"message,omitempty"`
}

// Prerequisite is one thing that plans of the stack wait for.
type Prerequisite struct {
	Name    string    `json:"name"`
	Met     bool      `json:"met"`
	Reason  string    `json:"reason,omitempty"` // as Met or NotFound; empty before Terrier looked for it
	Since   time.Time `json:"since,omitzero"`
	Message string    `json:"message,omitempty"`
}

// Of are the steps of a stack, nil if it has none. The conditions have the run that goes on.
func Of(wanted []afterapply.Step, conditions []metav1.Condition, m stack.Status, held bool) *Steps {
	if len(wanted) == 0 {
		return nil
	}
	var a stack.AfterApply
	if m.AfterApply != nil {
		a = *m.AfterApply
	}
	out := &Steps{Run: a.Run, At: a.At, Steps: []Progress{}, BeforeApply: !stack.HasStepsToFollow(m)}
	if known := stack.KnownSteps(m); known != nil {
		out.Digest = stack.ShortSteps(known.Approvable())
	}
	if a.Failed != "" {
		out.Message = a.Message
	}
	for _, w := range wanted {
		s := Progress{Name: w.Name, Does: w.Does(), State: stack.StepPending}
		if i := slices.IndexFunc(a.Results, func(r stack.StepResult) bool { return r.Name == w.Name }); i >= 0 {
			r := a.Results[i]
			s.State, s.Attempts, s.At, s.Message = r.State, r.Attempts, r.At, r.Message
		}
		if c := find(conditions, afterapply.ConditionPrefix+w.Name); c != nil {
			if s.State != stack.StepState(c.Reason) {
				s.Attempts, s.At = 0, c.LastTransitionTime.Time // of the run that goes on
			}
			s.State, s.Message = stack.StepState(c.Reason), c.Message
		}
		out.Steps = append(out.Steps, s)
	}
	out.State = out.whole(held)
	return out
}

// whole is the state of all steps together.
func (s *Steps) whole(held bool) stack.StepState {
	all := stack.StepSucceeded
	for _, one := range s.Steps {
		switch one.State {
		case stack.StepRunning, stack.StepFailed, stack.StepInterrupted:
			return one.State
		case stack.StepPending:
			all = stack.StepPending
		case stack.StepSucceeded, Held:
		}
	}
	if held {
		return Held
	}
	return all
}

// Done is how many have succeeded.
func (s *Steps) Done() (n int) {
	for _, one := range s.Steps {
		if one.State == stack.StepSucceeded {
			n++
		}
	}
	return n
}

// Now is the step that is running, or that failed; empty if there is none.
func (s *Steps) Now() string {
	for _, one := range s.Steps {
		if one.State != stack.StepSucceeded && one.State != stack.StepPending {
			return one.Name
		}
	}
	return ""
}

// Gates are the prerequisites of a stack, in the order in which it names them.
func Gates(wanted []prerequisite.Prerequisite, conditions []metav1.Condition) []Prerequisite {
	var out []Prerequisite
	for _, w := range wanted {
		p := Prerequisite{Name: w.Name}
		if c := find(conditions, prerequisite.ConditionPrefix+w.Name); c != nil {
			p.Met, p.Reason, p.Since, p.Message = c.Status == metav1.ConditionTrue, c.Reason, c.LastTransitionTime.Time, strings.TrimSpace(c.Message)
		}
		out = append(out, p)
	}
	return out
}

func find(conditions []metav1.Condition, kind string) *metav1.Condition {
	if i := slices.IndexFunc(conditions, func(c metav1.Condition) bool { return c.Type == kind }); i >= 0 {
		return &conditions[i]
	}
	return nil
}

// Summary is how far all steps of a stack are, in a list.
type Summary struct {
	State stack.StepState `json:"state"`
	Done  int             `json:"done"` // steps that succeeded
	Of    int             `json:"of"`
	Step  string          `json:"step,omitempty"` // that is running, or that failed
	At    time.Time       `json:"at,omitzero"`    // when they ended last
}

// Summary is how far they are; nil of no steps.
func (s *Steps) Summary() *Summary {
	if s == nil {
		return nil
	}
	return &Summary{s.State, s.Done(), len(s.Steps), s.Now(), s.At}
}
