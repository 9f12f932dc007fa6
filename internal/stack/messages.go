package stack

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
)

// How decisions are put into words. Each is the same however often it is made.

// intervalPassed is why drift is checked.
const intervalPassed = "the check interval has passed"

// breakingGlass is upstream's message, which its command line waits for.
const breakingGlass = "Breaking the glass ..."

// doing is the message while a run of this kind goes on, in upstream's words.
func (k RunKind) doing() string {
	switch k {
	case ApplyRun:
		return "Applying"
	case ScriptRun:
		return "Running the script"
	case DestroyRun:
		return "Deletion in progress"
	case HealthRun:
		return "Running the health checks"
	case StepsRun:
		return "Running the steps after the apply"
	case BreakGlassRun:
		return breakingGlass
	default:
		return "Terraform Planning"
	}
}

// doing is the message while the run goes on, with what it waits for.
func (r Run) doing() string {
	if r.Awaits == "" {
		return r.Kind.doing()
	}
	return r.Kind.doing() + ": " + r.Awaits
}

// progress is the reason while a run of this kind goes on.
func (k RunKind) progress() Reason {
	switch k {
	case PlanRun:
		return Planning
	case CheckRun:
		return Checking
	case ApplyRun, ScriptRun:
		return Applying
	case PreviewRun:
		return Previewing
	case HealthRun:
		return CheckingHealth
	case StepsRun:
		return RunningSteps
	case BreakGlassRun:
		return BreakGlassSession
	default:
		return Destroying
	}
}

// suspended says how the last run ended as well: the conditions of a suspended stack
// stay as they were when it began.
func suspended(o Observation) Decision {
	m, msg := o.Status, o.Spec.Words.In("Suspended: {resume} to resume")
	switch {
	case m.Failures > 0:
		msg += fmt.Sprintf(". The last run, a %s, did not succeed: %s", m.FailedKind.noun(), m.FailedWith)
	case m.Pending != nil:
		msg += fmt.Sprintf(". The plan %s is pending: %s", m.Pending.Name, m.Pending.Changes)
	case m.LastRun != "" && m.LastRun == m.LastWrite && m.Applied != nil && (m.Applied.Name == "" || m.Unapplied):
		msg += ". The last run was the script, and succeeded"
	case m.LastRun != "" && m.LastRun == m.LastWrite && m.Applied != nil:
		msg += fmt.Sprintf(". The last run applied the plan %s: %s", m.Applied.Name, m.Applied.Changes)
	}
	return Decision{Action: Wait{}, Ready: Held, Reason: Suspended, Message: msg}
}

// noun is a run of this kind, for messages.
func (k RunKind) noun() string {
	switch k {
	case CheckRun:
		return "drift check"
	case HealthRun:
		return "health check"
	case BreakGlassRun:
		return "break-glass command"
	case StepsRun:
		return "run of the steps after an apply"
	case PlanRun, ApplyRun, DestroyRun, PreviewRun, ScriptRun:
		return string(k)
	default:
		return "run"
	}
}

func blocked(o Observation, b Blocked) Decision {
	d := Decision{Ready: Reconciling, Reason: b.Reason, Message: b.Message}
	after := b.After
	if after == 0 {
		after = o.Spec.RetryEvery
	}
	if b.Kind.Meaning().Stalled {
		d.Ready = Stalled
	}
	if b.Kind == fault.Invalid {
		after = 0 // it gets better when the object changes
	}
	d.Action = Wait{after}
	return d
}

// obstructed says what came in the way. It is tried again whatever it was: what a
// person has to change may be in another object than this one.
func obstructed(o Observation, b Blocked) Decision {
	d := Decision{Action: Wait{o.Spec.RetryEvery}, Ready: Reconciling, Reason: b.Reason, Message: b.Message}
	if b.Kind.Meaning().Stalled {
		d.Ready = Stalled
	}
	return d
}

// queued says what the run that d starts waits for. What is shown of a stack that
// is ready, or that failed, says more than that.
func queued(o Observation, d Decision) Decision {
	if o.Queued != "" && d.Ready != Ready && d.Reason != RetryLater {
		d.Reason, d.Message = Queued, o.Queued
	}
	return d
}

func asking(o Observation, a Action) Decision {
	return Decision{Action: a, Ready: Reconciling, Reason: Reviewing, Message: "Asking the " + ReviewedBy(o) + " about " + o.Status.Pending.Name}
}

func unlocking(o Observation, a Action) Decision {
	return Decision{Action: a, Ready: Reconciling, Reason: Unlocking, Message: "Breaking the state lock " + o.Status.Lock.ID}
}

func failed(o Observation, a Action, r Readiness, reason Reason) Decision {
	m := o.Status
	if m.Lock != nil && reason != RetryLimitReached {
		reason = LockedByOther
	}
	return Decision{Action: a, Ready: r, Reason: reason, Message: ended(m.FailedWith, duringRollback(o))}
}

// ended is a sentence with another end, if there is one.
func ended(sentence, end string) string {
	if end == "" {
		return sentence
	}
	return strings.TrimRight(sentence, ". \n") + end
}

// notDestroyed says how to go on with a deletion whose destroy failed. The flags that
// the engine's message may name cannot be set.
func notDestroyed(o Observation) Decision {
	d := failed(o, Wait{o.untilRetry()}, Reconciling, DestroyFailed)
	if d.Reason == DestroyFailed {
		d.Message += "\nThe object stays until its resources are destroyed. Correct the module, the variables or the spec: a destroy from what you change now begins at once. " +
			"To let the object go and keep the resources: annotate it with terrier.dev/deletion=retain. " +
			"To take a resource out of the state: terrier state pull, edit the file, terrier state push."
	}
	return d
}

// unhealthy says that what was applied does not work, whatever is done about it,
// and what else was found.
func unhealthy(o Observation, a Action) Decision {
	d := failed(o, a, Reconciling, RetryLater)
	if o.exhausted() {
		d = failed(o, a, Stalled, RetryLimitReached)
	}
	d.Message = ended(d.Message, noRollback(o))
	switch {
	case !o.pendingIsCurrent():
	case o.refused() != nil:
		d.Message += ". " + o.refused().Message
	case isRejected(o):
		d.Message += ". " + rejected(o).Message
	case o.Status.Drift != nil:
		d.Message += ". " + drifted(o).Message
	case o.Spec.Mode == Manual:
		d.Message += ". " + awaiting(o).Message
	}
	return d
}

// count is a number of things in words: 1 resource, 2 resources.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func awaiting(o Observation) Decision {
	p, approve := o.Status.Pending, approving(o)
	msg := fmt.Sprintf("Plan generated: %s to approve this plan.", approve)
	if o.Deleting {
		forgets := ""
		if p.Changes.Forget > 0 {
			forgets = fmt.Sprintf(", and forget %d, which stay where they are", p.Changes.Forget)
		}
		msg = fmt.Sprintf("Deletion in progress: the plan %s would destroy %s%s. To approve it, %s.", p.Name, count(p.Changes.Destroy, "resource"), forgets, approve)
	} else if o.repairing() {
		msg = fmt.Sprintf("Repair planned: %s. To review it: terrier plan %s. To apply it: terrier repair %[2]s --approve %[3]s.", p.Changes, o.Spec.Words.Argument, p.Name)
	}
	if u := o.untracked(); u != nil && !o.repairing() {
		msg += fmt.Sprintf(" Review it closely: run %s was interrupted, and %s may exist without being in the state.", u.Run, u.Objects[0].Address)
	}
	if r := o.held(); r != nil && len(r.Findings) == 0 {
		msg += " The " + ReviewedBy(o) + " hold it: " + r.Message
	} else if r != nil {
		msg = heldByPolicy(o, r, msg)
	}
	if a := cmp.Or(o.Spec.Approved, o.Spec.Confirmed()); a != "" && !o.named() {
		where := o.Spec.Words.Approved
		if o.Spec.Approved == "" {
			where = "The annotation terrier.dev/confirm"
		}
		if rest, ok := strings.CutPrefix(where, "the "); ok {
			where = "The " + rest
		}
		msg += fmt.Sprintf(" %s is %q, which is not this plan.", where, a)
	}
	msg += returning(o.Status)
	msg += alsoResets(o.Status.Pending)
	if o.Status.PlanNote != "" {
		msg += " (" + o.Status.PlanNote + ")"
	}
	d := Decision{Action: Wait{}, Ready: Held, Reason: AwaitingApproval, Message: msg}
	if r := o.held(); r != nil && r.failed() {
		d.Action = Wait{o.clock().left(r.At, o.Spec.askAgain(r))} // the policy is asked again
	}
	return d
}

// heldByPolicy says which policy holds the pending plan, and what would let it pass.
func heldByPolicy(o Observation, r *Verdict, otherwise string) string {
	p := o.Status.Pending
	msg := fmt.Sprintf("Plan generated: %s.", strings.TrimRight(r.Message, ". "))
	if o.Deleting {
		msg = fmt.Sprintf("Deletion in progress: the plan %s would destroy %s. It is %s.", p.Name, count(p.Changes.Destroy, "resource"), strings.TrimRight(r.Message, ". "))
	}
	if lacks := lacks(o); lacks != "" && lacks != "needs 1 approval" {
		msg += " It " + lacks + "."
	}
	if next := approvingNext(o); next != "" {
		return msg + next
	}
	switch {
	case o.named():
		return msg
	case o.repairing():
		return msg + fmt.Sprintf(" To approve it: terrier repair %s --approve %s.", o.Spec.Words.Argument, p.Name)
	case !o.Deleting && (o.Spec.Mode == PlanOnly || o.Spec.Mode == DriftOnly):
		return otherwise
	default:
		return msg + " To approve it, " + approving(o) + "."
	}
}

// refused says why a reviewer does not let the pending plan pass.
func refused(o Observation) Decision {
	r := o.refused()
	d := Decision{Action: Wait{o.clock().left(r.At, o.Spec.askAgain(r))}, Ready: Reconciling, Reason: ReviewRefused, Message: r.Message}
	if r.Refused {
		d.Ready = Stalled
	}
	if r.Refused && len(r.Findings) > 0 && !o.Deleting {
		d.Message = strings.TrimRight(d.Message, ". ") + ". The plan " + o.Status.Pending.Name + " cannot be approved. Change the module or its inputs, or the policy."
	}
	return d
}

// tooOld is why a plan is made again that could be applied otherwise.
func tooOld(o Observation) string {
	a := tooOldFor(o)
	return fmt.Sprintf("the plan %s is older than %s, the maxPlanAge of %s", o.Status.Pending.Name, a.Age, a.Policy)
}

// rejected says that a person does not want the pending plan, and how the stack goes
// on. Drift is checked at each interval, since the plan may be needed no more.
func rejected(o Observation) Decision {
	p := o.Status.Pending
	msg := fmt.Sprintf("The plan %s (%s) was rejected%s", p.Name, p.Changes, by(o.Spec.RejectedBy))
	if why := o.Spec.RejectedFor; why != "" {
		msg += ": " + strings.TrimRight(why, ". ")
	}
	msg += ". Terrier does not apply it."
	switch {
	case o.Deleting:
		msg += " The resources stay until a destroy is approved. To let the object go without a destroy: annotate it with terrier.dev/deletion=retain."
	case o.repairing():
		msg += fmt.Sprintf(" To apply it nevertheless: terrier repair %s --approve %s.", o.Spec.Words.Argument, p.Name)
	case o.Status.Drift != nil:
		msg += " The resources stay as they are: drifted. A change of the module or its inputs makes another plan."
	default:
		msg += " A change of the module or its inputs makes another plan."
	}
	if !o.repairing() {
		msg += " To apply this one nevertheless, " + approving(o) + "."
	}
	d := Decision{Action: Wait{}, Ready: Held, Reason: PlanRejected, Message: msg}
	if o.Status.Drift != nil && !o.Deleting {
		d.Action = waitOrCheck(o)
	}
	return d
}

func drifted(o Observation) Decision {
	d := Decision{Ready: Held, Reason: DriftFound, Message: "Drift detected: " + o.Status.Drift.Changes.String()}
	switch {
	case o.Spec.Mode == Manual:
		d.Message += ". To remediate it, " + approving(o) + "."
	case o.Spec.Script:
		d.Message += ". To remediate it, " + approving(o) + ", or run the script again without a plan: terrier replan."
	}
	if r := o.held(); r != nil && len(r.Findings) > 0 {
		d.Message = heldByPolicy(o, r, d.Message)
		d.Message = "Drift detected: " + o.Status.Drift.Changes.String() + ". " + strings.TrimPrefix(d.Message, "Plan generated: ")
	}
	if also := alsoResets(o.Status.Pending); also != "" {
		d.Message = strings.TrimRight(d.Message, ".") + "." + also
	}
	d.Action = waitOrCheck(o)
	return d
}

// waitOrCheck waits for the next drift check, which finds out whether what is shown
// is still so.
func waitOrCheck(o Observation) Action {
	if left := o.untilCheck(); left > 0 {
		return Wait{left}
	}
	return Start{Kind: CheckRun, Why: intervalPassed}
}

// incomplete lists the untracked resources, how to import them, and how to go on
// without.
func incomplete(o Observation) Decision {
	u := o.Status.Untracked
	var b strings.Builder
	if u.Lost {
		fmt.Fprintf(&b, "The machine of run %s was lost, with what the run had not sent yet. All that its plan creates may exist. ", u.Run)
	}
	if u.Apart {
		fmt.Fprintf(&b, "Run %s was interrupted. Its state is in a backend of your own, which Terrier does not read, so the state may or may not track what the run created:", u.Run)
	} else {
		fmt.Fprintf(&b, "Run %s was interrupted, and the state does not track what it created:", u.Run)
	}
	told := u.Shown().Objects
	told = told[:min(len(told), untrackedTold)]
	for _, r := range told {
		if r.Finished {
			fmt.Fprintf(&b, " %s with id %q;", r.Address, r.ID)
		} else {
			fmt.Fprintf(&b, " %s may exist;", r.Address)
		}
	}
	if more := u.Count() - len(told); more > 0 {
		fmt.Fprintf(&b, " and %d more;", more)
	}
	switch {
	case u.Rescued:
		fmt.Fprintf(&b, " The backend refused the newest state, which is kept. To write it to a file: terrier state pull --rescued %s %s. Push that file with the engine's own state push, and check which of these it tracks.", u.Run, o.Spec.Words.Argument)
	case u.Apart:
		b.WriteString(" Check which of these it tracks, with the engine's own state list.")
	}
	if u.Apart {
		fmt.Fprintf(&b, " If it tracks all that exist, annotate the stack with terrier.dev/ignore-untracked=%s. Otherwise", u.Run)
	}
	b.WriteString(" terrier repair imports them: it plans the imports, shows the plan, and applies it once you approve.")
	fmt.Fprintf(&b, " Or delete the resources that exist and annotate the stack with terrier.dev/ignore-untracked=%s, or add import blocks to the module:", u.Run)
	for _, r := range told {
		id := "\"…\"" // only the provider knows it
		if r.ID != "" {
			id = strconv.Quote(r.ID)
		}
		fmt.Fprintf(&b, "\nimport {\n  to = %s\n  id = %s\n}", r.Address, id)
	}
	return Decision{Action: Wait{}, Ready: Stalled, Reason: StateIncomplete, Message: b.String()}
}

// notConverging names what comes back. Drift is checked at each interval: changes
// that come back no longer let the stack go on.
func notConverging(o Observation) Decision {
	p := o.Status.Pending
	return Decision{Action: waitOrCheck(o), Ready: Stalled, Reason: NotConverging, Message: fmt.Sprintf(
		"Applied %d times from the same inputs, and the same changes come back: %s (%s). Fix the module so that a plan after an apply has no changes, for example with ignore_changes, or find what changes it back. To try once more: terrier replan. To apply this plan: %s",
		o.Status.Recurrence.Applies, p.Example, p.Changes, approving(o))}
}

// AppliedHow says how the last apply went, as the beginning of a message that ends with its
// revision.
func AppliedHow(m Status) string {
	if m.Unapplied {
		return "The script succeeded, and nothing changed in the state, so no part of the approved plan " + m.Applied.Name + " is known to be applied: "
	}
	return "Applied successfully: "
}

// settled is the same decision however often it is made: its message names
// what the status holds, never the time.
func settled(o Observation) Decision {
	m := o.Status
	d := Decision{Ready: Ready}
	switch {
	case m.Destroyed && m.Applied != nil:
		d.Reason, d.Message = Destroyed, "Destroy applied successfully: "
	case m.Destroyed:
		d.Reason, d.Message = NothingLeft, "No objects need to be destroyed: "
	case m.DriftFree:
		d.Reason, d.Message = NoDrift, "No drift: "
	case o.Spec.Outputs != "" && m.Published != "":
		d.Reason, d.Message = OutputsWritten, "Outputs written: "
	case m.Applied != nil && m.Applied.PlanInputs.same(o.PlanInputs):
		d.Reason, d.Message = Applied, AppliedHow(m)
	default:
		d.Reason, d.Message = Unchanged, "Plan no changes: "
	}
	d.Message += o.PlanInputs.Revision
	if t := m.Tolerated; t.Total() > 0 {
		d.Message += fmt.Sprintf(". Rules let %s drift, as %s of %s", t, t.Of[0].Attribute, t.Of[0].Address)
	}
	d.Action = Wait{o.untilCheck()}
	if m.Destroyed && o.Spec.Destroy {
		d.Action = Wait{}
	}
	return withRollback(o, withSteps(o, d))
}

// String is the counts in the engine's words.
func (c Changes) String() string {
	s := fmt.Sprintf("%d to add, %d to change, %d to destroy", c.Add, c.Change, c.Destroy)
	if c.Import > 0 {
		s = fmt.Sprintf("%d to import, %s", c.Import, s)
	}
	if c.Forget > 0 {
		s += fmt.Sprintf(", %d to forget", c.Forget)
	}
	if c.Move > 0 {
		s += fmt.Sprintf(", %d to move", c.Move)
	}
	if c.Outputs > 0 && c.Add+c.Change+c.Destroy+c.Import+c.Forget+c.Move == 0 {
		s = fmt.Sprintf("%d output values to change", c.Outputs)
	}
	return s
}
