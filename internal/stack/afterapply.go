package stack

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/policy"
)

// AfterApply is what is known of the steps that follow the applies of a stack.
type AfterApply struct {
	Wanted   string       `json:"wanted,omitempty"`   // digest of the steps of now: see Steps
	Source   string       `json:"source,omitempty"`   // what they could read of the source of now
	Outputs  string       `json:"outputs,omitempty"`  // digest of the outputs of now
	Done     string       `json:"done,omitempty"`     // what they were carried out for last, successfully: see StepsKey
	Failed   string       `json:"failed,omitempty"`   // what they failed for; empty after a success
	For      string       `json:"for,omitempty"`      // what Results are of
	Write    string       `json:"write,omitempty"`    // the last apply that changed resources
	Approved string       `json:"approved,omitempty"` // the steps when the plan was made that was applied last: see Steps.Approvable
	Rerun    string       `json:"rerun,omitempty"`    // the last request that was answered
	Killed   int          `json:"killed,omitempty"`   // runs in a row that died in the middle of a step
	Run      string       `json:"run,omitempty"`      // the last run of them
	At       time.Time    `json:"at,omitzero"`        // when that ended
	Message  string       `json:"message,omitempty"`  // how it failed
	Results  []StepResult `json:"results,omitempty"`
}

// StepState is how far a step is.
type StepState string

// The states of a step.
const (
	StepPending     StepState = "Pending"
	StepRunning     StepState = "Running"
	StepSucceeded   StepState = "Succeeded"
	StepFailed      StepState = "Failed"
	StepInterrupted StepState = "Interrupted" // its run died; it is run again
)

// StepResult is how one step went.
type StepResult struct {
	Name     string    `json:"name"`
	State    StepState `json:"state"`
	Attempts int       `json:"attempts,omitempty"` // in the run that it is of
	Again    int       `json:"again,omitempty"`    // times that its run died in the middle of it
	Message  string    `json:"message,omitempty"`  // the last lines of what it said, redacted
	At       time.Time `json:"at,omitzero"`        // when it began or ended
}

// Steps are the steps that follow an apply, as far as a decision depends on them.
type Steps struct {
	Digest  string // of their text and of the files that they use
	Outputs string // of the outputs that they are given
	Source  string // of all of the source, which their programs can read; empty if they run none
}

// Approvable is what an approval of the steps is of: their text, and every file of the source,
// since a playbook has roles, and a program runs others.
func (s Steps) Approvable() string {
	if s.Source == "" {
		return s.Digest
	}
	return Digest([]string{"terrier.steps/1", s.Digest, s.Source})
}

// StepsCause is what a run knows of the steps.
type StepsCause struct {
	Digest string `json:"digest,omitempty"` // when the run began: see Steps.Approvable
	Key    string `json:"key,omitempty"`    // of a run of the steps: what it is for
	Rerun  string `json:"rerun,omitempty"`  // the request that it answers
}

// diesAtMost is how often a run of the steps may die before they have failed.
const diesAtMost = 3

// afterApply is what is known of the steps; nothing if there never were any.
func afterApply(m Status) AfterApply {
	if m.AfterApply == nil {
		return AfterApply{}
	}
	return *m.AfterApply
}

// StepsKey names what the steps would be carried out for now: other steps, other outputs and
// an apply that changed resources are something new.
func StepsKey(s Steps, m Status) string {
	return Digest([]string{s.Digest, s.Outputs, afterApply(m).Write})
}

// asksForSteps reports whether a user asks for the steps once more.
func asksForSteps(o Observation) bool {
	return o.Spec.Rerun != "" && o.Spec.Rerun != afterApply(o.Status).Rerun
}

// stepsDue reports whether steps are to be carried out: the stack was applied, and they
// neither succeeded nor failed for what they would be for now, or a user asks for them. Where
// the status was lost, and the records do not say that steps ever ran, only a user asks.
func stepsDue(o Observation) bool {
	m, a := o.Status, afterApply(o.Status)
	if o.Steps == nil || o.Spec.Destroy || o.Spec.Mode == PlanOnly || o.Spec.Mode == DriftOnly || !HasStepsToFollow(m) {
		return false
	}
	key := StepsKey(*o.Steps, m)
	return asksForSteps(o) || a.Done != key && a.Failed != key && (m.Applied != nil || a.ran())
}

// HasStepsToFollow reports whether a stack was applied, so that steps can follow: a plan was,
// or there are resources whose plan was forgotten with the status.
func HasStepsToFollow(m Status) bool {
	return !m.Destroyed && (m.Applied != nil || m.Created || afterApply(m).ran())
}

// ran reports whether it is known what steps were for: they ended, or an apply came before them.
func (a AfterApply) ran() bool { return a.Done != "" || a.Failed != "" || a.Write != "" }

// kept is what must survive the status: without it steps would run for what they ran for, or
// never again. What the steps are now is found out anyway, except for the outputs, whose record
// may be lost as well. It is nil if there is nothing to keep.
func (a *AfterApply) kept() *AfterApply {
	if a == nil || !a.ran() && a.Approved == "" && a.Rerun == "" && a.Run == "" {
		return nil
	}
	k := *a
	k.Wanted, k.Source = "", ""
	return &k
}

// same reports whether a and b, as they are kept, are of the same runs and approvals.
func (a *AfterApply) same(b *AfterApply) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Done == b.Done && a.Failed == b.Failed && a.Write == b.Write && a.Approved == b.Approved && a.Rerun == b.Rerun && a.Killed == b.Killed && a.Run == b.Run
}

// stepsAllowed reports whether these very steps may be carried out. Where plans need an
// approval, and where policies or webhooks may hold or refuse them, a plan was applied that was
// made with the steps, or a user asked for exactly these. Where a policy says who approves, such
// a request does not count, since it would be an approval by any user: the users whom the policy
// wants have to approve these steps as they would a plan.
func stepsAllowed(o Observation) bool {
	free := o.Spec.Mode != Manual && o.Spec.Reviews == "" && o.Spec.Policies == ""
	is := o.Steps.Approvable()
	switch {
	case free || afterApply(o.Status).Approved == is:
		return true
	case o.Spec.Approvers:
		return stepsLack(o) == ""
	default:
		return confirmsSteps(o) || asksForSteps(o) && namesSteps(o.Spec.Rerun, is)
	}
}

// confirmsSteps reports whether a user approves these very steps, by their word.
func confirmsSteps(o Observation) bool {
	word := ShortSteps(o.Steps.Approvable())
	return word != "" && o.Spec.Confirmed() == word
}

// ConfirmsSteps reports whether a user approves steps for which a policy says who may, so that it
// matters who that was.
func ConfirmsSteps(o Observation) bool {
	return o.Steps != nil && o.Spec.Approvers && stepsDue(o) && afterApply(o.Status).Approved != o.Steps.Approvable() && confirmsSteps(o)
}

// stepsLack says which approvals of the steps a policy asks for; empty if it asks for no more.
func stepsLack(o Observation) string {
	word := ShortSteps(o.Steps.Approvable())
	var given []policy.Given
	if confirmsSteps(o) && o.Status.Unverified == "" {
		for _, g := range o.Status.Approvals {
			if g.Plan == word {
				given = append(given, g)
			}
		}
		if len(given) == 0 {
			given = []policy.Given{{Plan: word}}
		}
	}
	rules := o.Spec.ApprovalRules
	if len(rules) == 0 {
		rules = []policy.Approval{{Count: 1}}
	}
	var findings []policy.Finding
	for i := range rules {
		findings = append(findings, policy.Finding{Effect: policy.Hold, Approval: &rules[i]})
	}
	by := o.Status.Requesters
	by.Unknown = cmp.Or(by.Unknown, "steps and their files may be changed without a plan")
	return policy.Missing(findings, given, by, o.Now)
}

// approvingSteps is how users approve steps for which a policy says who may.
func approvingSteps(o Observation) string {
	word := ShortSteps(o.Steps.Approvable())
	how := "annotates the stack with terrier.dev/confirm=" + word
	if of := o.Spec.Words.Argument; of != "" {
		how = "runs: terrier steps rerun " + of + " --steps " + word
	}
	text := "A policy says who approves: running them " + stepsLack(o) + ". "
	if o.Status.Unverified != "" && confirmsSteps(o) {
		text += "No approval can be verified: " + strings.TrimRight(o.Status.Unverified, ". ") + ". "
	}
	return text + "A user who approves " + how
}

// stepsWithheld reports whether policies let no plan be applied now, and so no steps run.
func stepsWithheld(o Observation) bool { return !withheldBefore(o).None() }

// stepsWait reports whether the next thing to do are steps, at a time at which they are not to be
// run. Drift checks go on.
func stepsWait(o Observation) bool {
	if !stepsWithheld(o) || o.untilCheck() == 0 {
		return false
	}
	a, starts := unwithheld(o).Action.(Start)
	return starts && a.Kind == StepsRun
}

// waitForSteps waits until policies let steps run, and no longer than until the next check.
func waitForSteps(o Observation) Decision {
	d := waitForTime(o)
	d.Message = "The steps after the apply wait. " + d.Message
	until := o.untilCheck()
	if w, waits := d.Action.(Wait); waits && w.For > 0 {
		until = min(until, w.For)
	}
	d.Action = Wait{until}
	return d
}

// namesSteps reports whether a request names the steps with a digest: it begins with that, or
// with a part of it that ShortSteps makes.
func namesSteps(request, digest string) bool {
	named, _, _ := strings.Cut(request, "@")
	return named != "" && (named == digest || named == ShortSteps(digest))
}

// wordOfSteps is how many digits of a digest are the word of steps: an author knows all that the
// digest is of, and must not find two lists of steps that have one word.
const wordOfSteps = 40

// ShortSteps is a digest of steps as users write it: the word by which steps are approved.
func ShortSteps(digest string) string {
	_, hash, _ := strings.Cut(digest, ":")
	return hash[:min(len(hash), wordOfSteps)]
}

// rerunToken is a request for the steps of now that was not made before.
func rerunToken(o Observation) string {
	return ShortSteps(o.Steps.Approvable()) + "@" + afterApply(o.Status).Run
}

// stepsFailed reports whether the steps failed for what they would be for now.
func stepsFailed(o Observation) bool {
	a := afterApply(o.Status)
	return o.Steps != nil && a.Failed != "" && a.Failed == StepsKey(*o.Steps, o.Status)
}

// withSteps is how d shows a stack that is settled but for its steps.
func withSteps(o Observation, d Decision) Decision {
	switch {
	case stepsDue(o) && !stepsAllowed(o):
		d.Ready, d.Reason = Held, StepsHeld
		how := "Review them. To run them, set the annotation terrier.dev/rerun-steps=" + ShortSteps(o.Steps.Approvable())
		if o.Spec.Approvers {
			how = approvingSteps(o)
		}
		d.Message = fmt.Sprintf("%s. The steps after the apply, or files that they can use, changed since the plan was made that was applied last, and were not approved. %s", strings.TrimRight(d.Message, ". "), how)
	case stepsFailed(o):
		d.Ready, d.Reason = Stalled, StepsFailed
		d.Message = fmt.Sprintf("%s. After the apply, %s. To run the steps again, set the annotation terrier.dev/rerun-steps=%s", strings.TrimRight(d.Message, ". "), strings.TrimRight(afterApply(o.Status).Message, ". "), rerunToken(o))
	}
	return d
}

// stepped folds a run of the steps. It is no attempt at anything else, so that no failure
// begins or ends with it.
func stepped(m Status, r Run) Status {
	a := afterApply(m)
	c := r.Cause.Steps
	if c == nil {
		return m
	}
	again := map[string]int{}
	for _, s := range a.Results {
		if a.For == c.Key {
			again[s.Name] = s.Again
		}
	}
	a.For, a.Run, a.At, a.Results, a.Message = c.Key, r.ID, r.At, nil, ""
	for _, s := range r.Steps {
		s.Again = again[s.Name]
		if s.State == StepRunning {
			if s.State = StepFailed; r.Outcome == Killed {
				s.State = StepInterrupted
				s.Again++
			}
		}
		a.Results = append(a.Results, s)
	}
	if r.Outcome != Succeeded {
		a.Done = "" // a step may have changed what those before had done
	}
	switch {
	case r.Outcome == Succeeded:
		a.Done, a.Failed, a.Rerun, a.Killed = c.Key, "", c.Rerun, 0
	case r.Outcome == Killed && a.Killed+1 < diesAtMost:
		a.Killed++ // the same is tried again, from the step that was running
	default:
		a.Failed, a.Rerun, a.Killed, a.Message = c.Key, c.Rerun, 0, r.Message
	}
	if a.Rerun == "" {
		a.Rerun = afterApply(m).Rerun
	}
	m.AfterApply = &a
	return m
}

// appliedSteps notes what an apply has to do with the steps.
func appliedSteps(m Status, r Run) *AfterApply {
	a := afterApply(m)
	known := ""
	if c := r.Cause.Steps; c != nil {
		known = c.Digest
	}
	changes := r.Moved
	if p := r.Cause.Plan; p != nil {
		if p.Name != "" {
			known = p.Steps // the approval was given with those in view
		}
		of := p.Changes
		of.Outputs = 0
		changes = changes && r.Kind == ScriptRun || !of.None()
	}
	if m.AfterApply == nil && known == "" {
		return nil
	}
	if a.Approved = known; changes {
		a.Write = r.ID
	}
	return &a
}

// WithSteps is the status with the steps of now, and without any once there are none.
func WithSteps(m Status, s *Steps) Status {
	switch {
	case s == nil:
		m.AfterApply = nil
	case afterApply(m).Wanted != s.Digest || afterApply(m).Outputs != s.Outputs || afterApply(m).Source != s.Source:
		a := afterApply(m)
		a.Wanted, a.Outputs, a.Source = s.Digest, s.Outputs, s.Source
		m.AfterApply = &a
	}
	return m
}

// KnownSteps are the steps as they were seen last, nil if there were none. While a run goes on
// they are not found out again.
func KnownSteps(m Status) *Steps {
	a := afterApply(m)
	if a.Wanted == "" {
		return nil
	}
	return &Steps{Digest: a.Wanted, Outputs: a.Outputs, Source: a.Source}
}

// Resumes are the results of a run of the steps that died, nil if the next run for the same
// begins at the first step.
func Resumes(m Status, key string) []StepResult {
	if a := afterApply(m); a.Killed > 0 && a.For == key {
		return a.Results
	}
	return nil
}
