package query

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/afterapply"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/prerequisite"
	"github.com/terrier-iac/terrier/internal/query/steps"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Situation says what a stack.Reason means to a user. Where it names a field, it does so in
// the words of the kind of the stack.
type Situation struct {
	Means string `json:"means,omitempty"`
	Do    string `json:"do,omitempty"` // the next step of a user; empty if there is none
}

// situations has an entry for every reason; a test checks that.
var situations = map[stack.Reason]Situation{
	stack.Queued:      {"A run is due and waits for a slot, for memory, for room in the ResourceQuota of its namespace or on a node, for the image of its pod, or for prerequisites that are asked once more when its turn has come; the message says which.", "Nothing, unless it takes too long: view the running runs, and raise --max-runs, --max-runs-per-tenant, --max-runs-per-class, --memory-for-runs or the quota. For an image, see that its registry answers; terrier replan then tries again at once."},
	stack.Planning:    {"Terrier is planning.", ""},
	stack.Checking:    {"Terrier is checking for drift.", ""},
	stack.Applying:    {"Terrier is applying a plan.", ""},
	stack.Destroying:  {"Terrier is destroying the resources of the stack.", ""},
	stack.Cancelling:  {"Terrier is cancelling a run: one that is not needed any more, or that a user cancelled. The message says how long its engine may take to end.", ""},
	stack.Deleting:    {"The object is being deleted. There are no resources to destroy, or they are to be retained. Resources that runs forgot (destroy = false) stay as well.", ""},
	stack.Unlocking:   {"Terrier is breaking a lock on the state, as the object allows.", ""},
	stack.Publishing:  {"Terrier is writing outputs to their Secret.", ""},
	stack.Suspended:   {"The stack is suspended: Terrier plans, applies and checks nothing.", "Resume it with terrier resume, or {resume}."},
	stack.SpecInvalid: {"The spec of the object is invalid; the message names the field.", "Edit the object. Terrier retries nothing before that."},
	stack.SourceNotReady: {
		"The source does not exist, or has no artifact yet.",
		"See the status of the source: {source}. Terrier continues when it has an artifact.",
	},
	stack.SourceDenied: {"A stack of this namespace may not refer to the source or the dependency.", "Have the owner of the other namespace create a ReferenceGrant there: see References to other namespaces in docs/rbac.md."},
	stack.SourceFailed: {
		"Terrier could not use the source: it could not write or fetch it, its digest does not match, or the image of its code could not be built, pushed or read back. The message says which.",
		"Correct the cause that the message names, such as an address, a Secret or a registry that does not answer. Terrier retries it.",
	},
	stack.InputsFailed: {"Terrier cannot read a variable: a Secret, a ConfigMap or one of its keys is missing, or its value does not fit.", "Create or correct the object that the message names. Terrier then continues."},
	stack.ModuleInvalid: {
		"The module cannot be used: its path does not exist, a file in it would override a setting of the platform, or the engine refuses its configuration or its variables.",
		"Correct the module, its inputs or path. Terrier retries nothing before that.",
	},
	stack.EngineMissing: {"No installed engine (tofu or terraform) matches the stack.", "Install one beside the terrier program or on PATH, or start the server with --engine."},
	stack.StateFailed:   {"Terrier cannot read or write the state.", "See the message. Only the state knows the resources, so Terrier does nothing without it."},
	stack.OutputsFailed: {"Terrier could not write the outputs to their Secret.", "See the message: an output does not exist, or the Secret has another owner."},
	stack.StartFailed:   {"Terrier could not start a run.", "This is an error of the platform: give the message to its operator. Terrier retries it."},
	stack.DependencyNotReady: {
		"A stack in dependsOn is not ready.",
		"Run terrier explain for the stack that the message names. Terrier continues when that stack is ready.",
	},
	stack.RunningSteps: {"The plan was applied, and Terrier is running the steps that follow it. Each has a condition of its own.", ""},
	stack.StepsFailed: {
		"The plan was applied, and a step after it failed. The message has its last lines. Drift checks go on.",
		"Correct the step, its files or its hosts; terrier logs shows the log. To run the steps again: terrier steps rerun STACK.",
	},
	stack.RolledBack: {
		"What the object asks for failed its health checks, or a user did not want it. An earlier apply was applied again and stays until something else is asked for. The message says which and why.",
		"Correct the module, its inputs or the spec: Terrier then plans again. To try what was rolled back once more: terrier rollback STACK --end.",
	},
	stack.StepsHeld: {
		"The steps after the apply, or files that they use, or the source that they can read, changed since the plan was made that was applied last. Terrier does not run what no user approved, and no policy has let pass.",
		"Review the annotation terrier.dev/after-apply and the files that it names. To run them: terrier steps rerun STACK. Where a policy says who approves, each of these users runs this command.",
	},
	stack.PrerequisiteMissing: {
		"A prerequisite of the stack is not there. The message says which; each has a condition of its own.",
		"Have what the message names created. Terrier checks again by itself. To go on without it, remove it from the annotation terrier.dev/prerequisites.",
	},
	stack.DeletionBlocked: {"The stack is being deleted, and other stacks depend on it.", "Delete the stacks that the message names first, or remove this stack from their dependsOn."},
	stack.SourceDebounced: {"The source keeps changing. Terrier plans it when it has settled.", ""},
	stack.NotConverging: {
		"The same changes return after each apply: the module never matches the resources, or another program changes them back.",
		"Correct the module so that a plan after an apply is empty, or find the other program. Then run terrier replan.",
	},
	stack.StateTampered: {
		"The stored state is not the one that Terrier wrote last: it was changed manually, damaged or removed. Terrier starts no run on it.",
		"Compare with terrier state versions and terrier state pull. Roll back to the last good version with terrier state rollback, or accept the stored state with terrier state accept.",
	},
	stack.StateRegressed: {
		"The stored state is older than a version that Terrier has seen, or has another lineage: a backup was restored over it, or a backend returns old data.",
		"Roll back to the newest version with terrier state rollback, or accept the stored state with terrier state accept.",
	},
	stack.StateMissing: {
		"The place of the state does not have the last known state of the stack: its place was changed, or the place was emptied. A run would create every resource again, so Terrier starts no run that writes.",
		"Move or restore the state with the commands of the message, then run terrier replan. To continue with what is there on purpose, run terrier state accept with a reason.",
	},
	stack.StateShared: {
		"Another stack stores its state in the same place. Two stacks with one state destroy each other's resources.",
		"Give one of the two another {statePlace}.",
	},
	stack.StateNotAdopted: {
		"A deleted stack of this name left a state with resources. Terrier does not adopt it without an annotation.",
		"To adopt it, annotate the stack with terrier.dev/adopt-state=true. To begin without it, give the stack another {stateName}.",
	},
	stack.Reviewing:     {"The policies or webhooks of the stack are asked about the plan.", ""},
	stack.ReviewRefused: {"A policy denies the plan, or a webhook refused it or did not answer.", "View the plan with terrier plan; the message names the policy, or has the answer of the webhook. Correct the module, or have the policy or the webhook corrected."},
	stack.ApplyWithheld: {
		"An apply or a destroy is due, and a policy lets it begin later: at a window, after a freeze, once the source is old enough, or once less was destroyed in the last hour. The message names the policy and the time.",
		"Wait. If it cannot wait, and the message says that users may have the plan applied now: terrier approve STACK PLAN --override-window. Otherwise have the owner of the policy change it.",
	},
	stack.Previewing:     {"Terrier is planning a destroy, only to show it.", ""},
	stack.CheckingHealth: {"Terrier is checking the health of the applied resources.", ""},
	stack.BreakGlassSession: {
		"A break-glass session is open: until it ends, Terrier plans, applies and checks nothing.",
		"Run commands with terrier break-glass STACK, and end the session with terrier break-glass STACK --end. It also ends after its maximum duration.",
	},
	stack.StatusUnreadable: {
		"The controller cannot read status.terrier of the object. It does nothing before it can.",
		"Restore status.terrier from a backup. Or remove it: the controller then adopts the stack again from the rest of its status.",
	},
	stack.LockedByOther: {
		"Another program holds the lock on the state, or ended without freeing it.",
		"If the program is running, wait: Terrier retries. If it has ended, break the lock with terrier force-unlock.",
	},
	stack.RetryLater: {"The last attempt failed; the message says how.", "Correct the cause; terrier logs shows the log. Terrier retries after a pause, or at once with terrier replan."},
	stack.DestroyFailed: {
		"The object is being deleted, and the destroy of its resources failed; the message says how. The object stays until they are destroyed.",
		"Correct the module, the variables or the spec: Terrier then destroys from what you changed, at once. To keep the resources, annotate the stack with terrier.dev/deletion=retain. To take a resource out of the state, use terrier state pull and terrier state push. To try once more, run terrier replan.",
	},
	stack.NoDestroyScript: {
		"The object is being deleted, and the stack has no script that destroys its resources. The object stays until they are destroyed.",
		"Set spec.scripts.destroy: Terrier runs it at once. To keep the resources, annotate the stack with terrier.dev/deletion=retain.",
	},
	stack.RunCancelled: {
		"A user cancelled the last run. What an apply or a destroy had done by then is done, and is in the state.",
		"Read the log with terrier logs. To go on, run terrier replan. Terrier also goes on when the module or an input changes.",
	},
	stack.RetryLimitReached: {"As many attempts failed as the stack allows.", "Correct the cause. Then retry with terrier replan, or change the object or its source. The limit of retries is {retries}."},
	stack.StateIncomplete: {
		"An apply was interrupted, and resources that it created, or may have created, are not in the state.",
		"Import the resources with terrier repair. Or delete them manually, and annotate the stack with terrier.dev/ignore-untracked and the name of the run.",
	},
	stack.AwaitingApproval: {
		"A plan has changes, and needs an approval. If a policy holds it, the message names the policy and who approves.",
		"View it with terrier plan; then run terrier approve or terrier reject. If an input of the plan changes, a new plan replaces it and the approval is void.",
	},
	stack.PlanRejected: {
		"A user rejected the pending plan, so that Terrier does not apply it. The message says who, and why.",
		"Change the module or its inputs: Terrier then makes another plan. To apply the rejected plan nevertheless, run terrier approve.",
	},
	stack.PlanOnlyHeld: {"A plan has changes; with planOnly, Terrier does not apply it.", "View it with terrier plan. To allow an approval, set planOnly to false."},
	stack.DriftFound: {
		"Resources differ from what was applied. The stack does not remediate drift by itself, or a user accepted the drift until the time in the message.",
		"View the drift with terrier drift show. Approve the plan to remediate it, or change the configuration to match the resources with terrier drift accept.",
	},
	stack.Applied:        {"The plan was applied.", ""},
	stack.Unchanged:      {"A plan has no changes.", ""},
	stack.NoDrift:        {"The last drift check found no drift.", ""},
	stack.OutputsWritten: {"The plan was applied, and its outputs are in their Secret.", ""},
	stack.Destroyed:      {"The resources of the stack are destroyed, as destroy says.", "Delete the object, or set destroy to false to create them again."},
	stack.NothingLeft:    {"There are no resources to destroy.", "Delete the object, or set destroy to false."},
}

// unseen is the situation of an object without a reason.
var unseen = Situation{
	"Terrier has not reconciled the stack yet.",
	"Wait a moment. If this does not change, check that terrier up, or the controller of the cluster, runs and reconciles this namespace.",
}

// Explained returns what r means, in the words of a kind of stack; the zero Situation of an
// unknown reason.
func Explained(r stack.Reason, w stack.Words) Situation {
	s := situations[r]
	if r == "" {
		s = unseen
	}
	return Situation{w.In(s.Means), w.In(s.Do)}
}

// explained is Explained for one stack: it advises no approval that would be refused.
func (o *Object) explained(r stack.Reason) Situation {
	s := Explained(r, o.Spec.Words)
	if r == stack.Suspended && o.Spec.DestroyLast {
		s.Means += " A deletion of the object still " + o.destroys() + "."
		s.Do += " To keep the resources when the object is deleted, annotate it with terrier.dev/deletion=retain."
	}
	if o.Spec.Script {
		s.Means = o.ofScript(r, s.Means)
	}
	if why := o.undecidable(); why != "" && r == stack.DriftFound {
		s.Do = "View the drift with terrier drift show. Change the configuration to match the resources with terrier drift accept. The plan cannot be approved: " + why + "."
	}
	return s
}

// destroys is what a deletion of the object does, for a sentence.
func (o *Object) destroys() string {
	does := "destroys its resources"
	if o.Spec.Script {
		does = "runs its destroy script"
	}
	if o.Spec.ApproveDestroy {
		does += " once a user approved the plan of it"
	}
	return does
}

// ofScript is what r means to a stack that a script applies; otherwise the text that
// holds for every stack.
func (o *Object) ofScript(r stack.Reason, otherwise string) string {
	m := o.Status
	switch {
	case r == stack.Applying && m.Pending == nil:
		return "Terrier is running the script of the stack."
	case r == stack.Applying:
		return "Terrier is running the script of the stack for a plan."
	case r == stack.Applied && m.Applied != nil && m.Applied.Name != "" && !m.Unapplied:
		return "The script has ended with exit code 0, and applied the plan."
	case r == stack.Applied:
		return "The script has ended with exit code 0."
	case r == stack.Destroying:
		return "Terrier is running the destroy script of the stack."
	case r == stack.InputsFailed:
		return "Terrier cannot read a script or a variable: a ConfigMap, a Secret or one of its keys is missing, or its value does not fit."
	default:
		return otherwise
	}
}

// undecidable says why the plans of a stack can be neither approved nor rejected; empty if
// the pending plan, or the next one, can be.
func (o *Object) undecidable() string {
	switch mode := o.Spec.Mode; {
	case o.denied() != "":
		return o.denied()
	case o.Deleting() && (o.Spec.ApproveDestroy || o.held() != nil):
		return ""
	case o.Deleting():
		return "it is being deleted"
	case mode == stack.PlanOnly:
		return "planOnly is set, so that no plan is applied"
	case mode == stack.DriftOnly:
		return "approvePlan is disable, so that Terrier only checks for drift"
	case !o.Spec.AwaitsApproval(o.Status):
		return o.Spec.Words.Automatic + ", so that every plan is applied without an approval"
	default:
		return ""
	}
}

// denied says that a policy or a reviewer denies the pending plan, and what to do; empty if none
// does.
func (o *Object) denied() string {
	r, p := o.Status.Review, o.Status.Pending
	if r == nil || p == nil || !r.Refused || r.Plan != p.Digest {
		return ""
	}
	if len(r.Findings) == 0 {
		return "a reviewer refused the plan " + p.Name + ": " + strings.TrimRight(r.Message, ". ")
	}
	return "the plan " + p.Name + " is " + strings.TrimRight(r.Message, ". ") + "; change the module or its inputs, or the policy"
}

// Denied is why the pending plan cannot be approved whatever a user does; empty if it can.
func Denied(o *Object) string { return o.denied() }

// held is the verdict that holds the pending plan, nil if there is none.
func (o *Object) held() *stack.Verdict {
	if r, p := o.Status.Review, o.Status.Pending; r != nil && p != nil && r.Held && r.Plan == p.Digest {
		return r
	}
	return nil
}

// Explanation says why a stack has its status.
type Explanation struct {
	Stack    Stack         `json:"stack"`
	Means    Situation     `json:"means"`
	Failures int           `json:"failures,omitempty"`
	Facts    []string      `json:"facts,omitempty"` // what else is known
	Rules    []RuleOutcome `json:"rules"`
	Story    []Step        `json:"story,omitempty"` // the next steps, of a manifest

	Prerequisites []steps.Prerequisite `json:"prerequisites,omitempty"` // what its plans wait for
	Steps         *steps.Steps         `json:"steps,omitempty"`         // after its applies; nil without any

	// Assumed says that the explanation is of a manifest, and nothing of it was read
	// in a cluster.
	Assumed bool `json:"assumed,omitempty"`
}

// What begins the facts about prerequisites and steps, which Explanation has as values, too.
const (
	FactOfPrerequisite = "the prerequisite "
	FactOfStep         = "the step "
)

// RuleOutcome is what became of one rule.
type RuleOutcome struct {
	Rule  string `json:"rule"`
	Does  string `json:"does"`
	Fires bool   `json:"fires,omitempty"`
	Tried bool   `json:"tried,omitempty"` // it did not apply
	Why   string `json:"why,omitempty"`   // of the rule that fires: why it is there
}

// Explain says why a stack has its status.
func (s *Stacks) Explain(ctx context.Context, key Key) (Explanation, error) {
	o, err := s.Read(ctx, key)
	if err != nil {
		return Explanation{}, err
	}
	st := View(o)
	e := Explanation{Stack: st, Means: o.explained(stack.Reason(st.Phase)), Facts: facts(st, o.Status), Rules: ruleOutcomes(st.Rule, o.Spec.Words)}
	e.Prerequisites, e.Steps = steps.Gates(o.Configuration.Prerequisites, o.View.Conditions), stepsOf(o)
	if why := uncompared(o.Configuration); why != "" {
		e.Facts = append(e.Facts, why)
	}
	for _, c := range o.View.Conditions {
		if name, ok := strings.CutPrefix(c.Type, prerequisite.ConditionPrefix); ok {
			e.Facts = append(e.Facts, FactOfPrerequisite+name+": "+c.Message)
		}
		if name, ok := strings.CutPrefix(c.Type, afterapply.ConditionPrefix); ok {
			e.Facts = append(e.Facts, strings.TrimSuffix(FactOfStep+name+" after the apply: "+c.Reason+": "+c.Message, ": "))
		}
	}
	if fact := s.nextCheckFact(ctx, o); fact != "" {
		e.Facts = append(e.Facts, fact)
	}
	if fact := inGitFact(o); fact != "" {
		e.Facts = append(e.Facts, fact)
	}
	return e, nil
}

// nextCheckFact says when drift is checked next, and why then, if that is not the interval of the
// stack. Without an answer of the records the rest of the explanation is as true, so that the
// fact is why there is none.
func (s *Stacks) nextCheckFact(ctx context.Context, o *Object) string {
	c, err := s.nextCheck(ctx, o)
	switch {
	case fault.Of(err) == fault.Missing:
		return ""
	case err != nil:
		return "it is not known when drift is checked next: " + err.Error()
	case c.Why == "" || c.Next.IsZero():
		return ""
	}
	return fmt.Sprintf("drift is checked next at %s: %s", c.Next.UTC().Format(time.RFC3339), c.Why)
}

// inGitFact says where a state in git is, and whether it is too large for that; empty for one
// that is elsewhere.
func inGitFact(o *Object) string {
	b := o.Configuration.Backend
	if b.Git == nil {
		return ""
	}
	fact := "the state is in " + kube.RefOf(o.Configuration, o.GetNamespace()).InWords()
	if n := o.Status.LastState.Resources; n > b.Git.Bound() {
		fact += fmt.Sprintf(". It has %d resources, and git is for states of at most %d: each apply adds the whole state to the repository. Move it to a Secret or a bucket, or raise warnAbove in the settings of the backend", n, b.Git.Bound())
	}
	return fact
}

// ruleOutcomes lists the rules in their order, with what became of each.
func ruleOutcomes(fired string, w stack.Words) []RuleOutcome {
	var out []RuleOutcome
	reached := false
	for _, r := range rules {
		v := RuleOutcome{Rule: r.Rule, Does: r.Does, Fires: r.Rule == fired}
		if v.Fires {
			reached, v.Why = true, w.In(r.Why)
		}
		v.Tried = fired != "" && !reached
		out = append(out, v)
	}
	return out
}

// ApprovedBy says that p was approved, by whom, and whether that is verified; nothing if the
// object approves another plan, or if no approval was needed.
func (s Stack) ApprovedBy(p PlanInfo) string {
	if p.Name == "" || !p.Is(s.Approved) {
		return ""
	}
	return "approved" + by(s.Decider())
}

// approvedBy is ApprovedBy, behind a comma.
func (s Stack) approvedBy(p PlanInfo) string {
	if text := s.ApprovedBy(p); text != "" {
		return ", " + text
	}
	return ""
}

// AppliedText says of the plan that was applied last when that was, and who approved
// it; nothing if none was applied.
func (s Stack) AppliedText() string {
	p := s.Applied
	if p == nil {
		return ""
	}
	text := "the plan " + p.Name + " was applied"
	if p.Name == "" {
		text = "the script, which needs no plan, succeeded"
	}
	if approved := s.ApprovedBy(*p); approved != "" {
		text = "the plan " + p.Name + " was " + approved + ", and was applied"
	}
	if s.AppliedAt.IsZero() {
		return text
	}
	return text + " at " + s.AppliedAt.UTC().Format(time.RFC3339)
}

func by(who string) string {
	if who == "" {
		return ""
	}
	return " by " + who
}

// facts are what a user would ask next.
func facts(s Stack, m stack.Status) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if p := s.Plan; p != nil {
		does := "is pending"
		switch {
		case s.Run != nil && stack.RunKind(s.Run.Kind).Applies():
			does = "is being applied by the run " + s.Run.ID
		case s.Rejection != nil:
			does = "was " + s.Rejection.String()
		case p.Is(s.Approved) && s.Approvals != nil && len(s.Approvals.By) > 0:
			does = "is approved by " + s.Approvals.Users()
		case p.Is(s.Approved):
			does = "is " + s.ApprovedBy(*p)
		}
		add("the plan %s %s: %s", p.Name, does, p.Changes)
		if a := s.Approvals; a != nil && a.Left != "" {
			add("approvals of it: %s", strings.TrimRight(a.Text(), "."))
		}
		if v := s.Override; v != nil {
			add("the windows of policies: %s", v.Text())
		}
	}
	if m.PlanNote != "" {
		add("%s", m.PlanNote)
	}
	if p := s.Applied; p != nil {
		at := m.AppliedAt.UTC().Format(time.RFC3339)
		switch {
		case p.Name == "":
			add("the script succeeded last at %s", at)
		case m.Unapplied:
			add("the script ran for the plan %s%s at %s, and nothing changed in the state", p.Name, s.approvedBy(*p), at)
		default:
			add("applied last: %s at %s%s", p.Name, at, s.approvedBy(*p))
		}
	}
	for _, i := range s.Identities {
		add("its runs sign in to %s", i)
	}
	if s.Drift != nil {
		add("drift since %s: %s", s.Drift.At.UTC().Format(time.RFC3339), s.Drift.Changes)
	}
	out = append(out, toleratedFacts(s)...)
	out = append(out, troubles(s, m)...)
	if g := m.BreakGlass; g != nil && s.Phase == string(stack.BreakGlassSession) {
		add("the session ends at %s at the latest", g.Until.UTC().Format(time.RFC3339))
	}
	if h := m.LastCommand; h != nil {
		add("last command of a session: %s (%s), by %s at %s", h.Command, h.Outcome, cmp.Or(h.By, "an unknown user"), h.At.UTC().Format(time.RFC3339))
	}
	if s.Suspended {
		add("the stack is suspended")
	}
	if s.Deleting {
		add("the object is being deleted")
	}
	var applied stack.PlanInputs
	if m.Applied != nil {
		applied = m.Applied.PlanInputs
	}
	if s.Deleting && m.Failures > 0 && m.Corrects(m.FailedFor, applied) {
		add("the last destroy was made from %s, with the inputs %.19s: they changed after the deletion began", m.FailedFor.Revision, m.FailedFor.Inputs)
	}
	return out
}

// toleratedFacts are what rules let drift, each attribute with its rule.
func toleratedFacts(s Stack) []string {
	var out []string
	list := func(t *stack.ToleratedDrift, what string) {
		if t.Total() > 0 {
			out = append(out, what+": "+t.String())
			for _, a := range t.Of {
				out = append(out, "may drift: "+a.String())
			}
			if more := t.Attributes - len(t.Of); more > 0 {
				out = append(out, fmt.Sprintf("may drift: %d more attributes", more))
			}
		}
	}
	list(s.Tolerated, "rules let drift")
	if p := s.Plan; p != nil && p.Tolerated != nil {
		list(p.Tolerated, "the plan also resets what rules let drift")
		for _, a := range p.Tolerated.Ended {
			out = append(out, "a rule has ended, so that this is drift: "+a.String())
		}
	}
	return out
}

// troubles are the facts that need a user.
func troubles(s Stack, m stack.Status) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if m.Failures > 0 {
		add("%s failed, the last time at %s in the step %s", Count(m.Failures, "attempt"), m.FailedAt.UTC().Format(time.RFC3339), cmp.Or(m.FailedStep, string(m.FailedKind), "start"))
	}
	if g := m.Untracked; g != nil {
		add("the run %s was interrupted, and %s that it created may be untracked", g.Run, Count(len(g.Objects), "resource"))
	}
	if f := s.FailingCheckBlocks; f != nil {
		add("since %s, %s", f.Since.UTC().Format(time.RFC3339), f)
	}
	if l := s.Lock; l != nil {
		add("the state is locked by %q since %q, lock %s", l.Who, l.Since, l.ID)
	}
	if c := m.Recurrence; c != nil && c.Applies > 1 {
		add("the same changes were applied %s in a row, among them %s", Count(c.Applies, "time"), c.Example)
	}
	if r := m.Review; r != nil && r.Held && len(r.Findings) == 0 {
		add("the plan is held until it is approved, since %s: %s", r.At.UTC().Format(time.RFC3339), r.Message)
	} else if r != nil && !r.Passed && !r.Held && len(r.Findings) == 0 {
		what := "the policies or webhooks could not be asked about the plan"
		if r.Refused {
			what = "a webhook refused the plan"
		}
		add("%s at %s", what, r.At.UTC().Format(time.RFC3339))
	}
	return out
}
