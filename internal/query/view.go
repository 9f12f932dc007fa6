package query

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/internal/query/steps"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Underway reports whether the newest requested command has not ended yet.
func Underway(asked stack.Spec, m stack.Status) bool {
	c := asked.Command
	return c != nil && c.Session == asked.BreakGlass && (m.LastCommand == nil || m.LastCommand.ID != c.ID)
}

// Stack is the status of one stack.
type Stack struct {
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	Kind      string            `json:"kind,omitempty"` // as terraform.alustan.io; empty for the first kind
	UID       string            `json:"uid"`
	Labels    map[string]string `json:"labels,omitempty"`
	Created   time.Time         `json:"created"`

	Mode      stack.Mode `json:"mode"`
	Suspended bool       `json:"suspended,omitempty"`
	Deleting  bool       `json:"deleting,omitempty"`
	Destroy   bool       `json:"destroy,omitempty"`
	Approved  string     `json:"approved,omitempty"` // as the object has it; of a stack that is automatic, the plan that a user approved
	Source    string     `json:"source"`             // Kind/name, or inline
	Path      string     `json:"path,omitempty"`

	Ready   string `json:"ready"` // True, False or Unknown
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	Stalled bool   `json:"stalled,omitempty"` // a user has to act

	Phase       string        `json:"phase,omitempty"` // a stack.Reason
	Since       time.Time     `json:"since,omitzero"`
	Rule        string        `json:"rule,omitempty"`
	WaitingFor  string        `json:"waitingFor,omitempty"`
	NextAttempt time.Time     `json:"nextAttempt,omitzero"`
	Every       time.Duration `json:"recheckEvery,omitempty"` // nanoseconds; the check interval while nothing changes
	Run         *Running      `json:"run,omitempty"`
	Reconciling bool          `json:"reconciling,omitempty"`    // the controller goes on by itself
	Handled     string        `json:"handledRequest,omitempty"` // the newest request that the controller has answered

	Pending        string                `json:"pending,omitempty"`     // the name of the pending plan
	Plan           *PlanInfo             `json:"plan,omitempty"`        // and what is known of it
	Verdict        *Verdict              `json:"verdict,omitempty"`     // what policies find in it; nil if nothing
	Approvals      *Approvals            `json:"approvals,omitempty"`   // of a plan that a policy holds, once a user has approved it
	Override       *Override             `json:"override,omitempty"`    // of windows and freezes that withhold the pending plan
	Rejection      *Rejection            `json:"rejection,omitempty"`   // of the pending plan, if a user rejected it
	Cancelled      *stack.Cancellation   `json:"cancelled,omitempty"`   // of the run that goes on, or of the last one
	Undecidable    string                `json:"undecidable,omitempty"` // why its plans can be neither approved nor rejected
	DecidedBy      string                `json:"decidedBy,omitempty"`   // the user who approved or rejected a plan last, as the object says
	Applied        *PlanInfo             `json:"applied,omitempty"`
	AppliedAt      time.Time             `json:"appliedAt,omitzero"`
	Revision       string                `json:"revision,omitempty"` // applied last, else planned last
	Drift          *DriftInfo            `json:"drift,omitempty"`
	Tolerated      *stack.ToleratedDrift `json:"toleratedDrift,omitempty"` // attributes that drifted, and that a rule lets drift
	Failures       int                   `json:"failures,omitempty"`
	FailsSince     time.Time             `json:"failsSince,omitzero"`      // the first failure after the last success
	FailedRevision string                `json:"failedRevision,omitempty"` // the revision that fails
	FailedWith     string                `json:"failedWith,omitempty"`     // what the last attempt failed with, also while the next one goes on
	FailedKind     stack.RunKind         `json:"failedKind,omitempty"`     // the kind of the run of that attempt
	RolledBack     *Rollback             `json:"rolledBack,omitempty"`     // the rollback that lasts
	CanRollBack    *Rollback             `json:"canRollBack,omitempty"`    // the one that a user may request
	Lock           *stack.Lock           `json:"lock,omitempty"`
	Untracked      *stack.Untracked      `json:"untracked,omitempty"` // resources that may exist

	// The API server is known to have recorded the user of DecidedBy. Without that, users may
	// have written any name.
	DecidedByVerified bool `json:"decidedByVerified,omitempty"`

	AfterApply *steps.Summary `json:"afterApply,omitempty"` // how far the steps after the apply are; nil without any

	FailingCheckBlocks *stack.FailingCheckBlocks `json:"failingCheckBlocks,omitempty"` // of the module

	BreakGlass     *stack.BreakGlass    `json:"breakGlass,omitempty"`     // the newest session; it is over once its end has passed
	PendingCommand *stack.Command       `json:"pendingCommand,omitempty"` // in the session
	LastCommand    *stack.CommandResult `json:"lastCommand,omitempty"`    // that ran in a session

	FormerNames

	Identities  []RunIdentity `json:"identities,omitempty"` // by which its runs sign in elsewhere
	Isolation   string        `json:"isolation,omitempty"`
	Environment []string      `json:"environment,omitempty"`
	Outputs     []string      `json:"outputs,omitempty"`
	OutputsIn   string        `json:"outputsIn,omitempty"`  // the Secret they are published to
	OutputsHow  string        `json:"outputsHow,omitempty"` // how they are published, while they are not
}

// Rollback is a rollback of a stack to an earlier apply.
type Rollback struct {
	Leaves    string    `json:"leaves,omitempty"`    // names what the stack is rolled back from, for a request
	From      string    `json:"from"`                // the revision of that
	To        string    `json:"to"`                  // the revision that it is rolled back to
	Plan      string    `json:"plan"`                // by which that was applied
	At        time.Time `json:"at,omitzero"`         // when it began
	Why       string    `json:"why,omitempty"`       // what the health checks found, or the reason of the user
	Requested bool      `json:"requested,omitempty"` // by a user
}

// RollbackOf is the rollback that a user may request of a stack, or why there is none: the end of
// a sentence.
func RollbackOf(o *Object) (*Rollback, string) {
	m := o.Status
	from := m.Planned
	if m.Failures > 0 && m.FailedFor != (stack.PlanInputs{}) {
		from = m.FailedFor // a plan that failed is of what the object asks for, and a failed apply has used its plan up
	}
	if o.Deleting() {
		return nil, "it is being deleted"
	}
	if why := stack.NeverRollsBack(o.Spec, m); why != "" {
		if m.Rollback != nil {
			why += ". Revert further commits, or end the rollback with --end"
		}
		return nil, why
	}
	if from == (stack.PlanInputs{}) {
		return nil, "it is not known what it asks for until the next plan was made"
	}
	to, why := stack.ReturnsTo(m, from, false)
	if why != "" {
		return nil, why + ". Revert the commit"
	}
	return &Rollback{Leaves: from.Token(), From: from.Revision, To: to.PlanInputs.Revision, Plan: to.Plan}, ""
}

// FormerNames are fields of a Stack under the names of the release before.
type FormerNames struct {
	Gap       *stack.Untracked     `json:"gap,omitempty"`       // Untracked
	Glass     *stack.BreakGlass    `json:"glass,omitempty"`     // BreakGlass
	Commanded *stack.Command       `json:"commanded,omitempty"` // PendingCommand
	ByHand    *stack.CommandResult `json:"byHand,omitempty"`    // LastCommand
}

// Running is a run that goes on.
type Running struct {
	ID      string    `json:"id"`
	Kind    string    `json:"kind"`
	Phase   string    `json:"phase,omitempty"`
	Started time.Time `json:"started,omitzero"`
	Until   time.Time `json:"until,omitzero"` // when it is interrupted at the latest
}

// PlanInfo is what is known of a plan without looking into it.
type PlanInfo struct {
	Name   string `json:"name"`
	Digest string `json:"digest,omitempty"`

	// What an approval may name in the place of the digest, if policies found something in
	// the plan: the digest together with their verdict.
	Approvable string `json:"approvable,omitempty"`

	Run      string        `json:"run,omitempty"`
	Revision string        `json:"revision,omitempty"`
	Changes  stack.Changes `json:"changes"`
	Destroy  bool          `json:"destroy,omitempty"`
	Drift    bool          `json:"drift,omitempty"`

	// Attributes that a rule lets drift, and that the plan resets with its other changes.
	Tolerated *stack.ToleratedDrift `json:"tolerated,omitempty"`

	At time.Time `json:"at,omitzero"`
}

// Decider is the user who approved or rejected a plan last, and whether that is verified; empty
// if the object names no user.
func (s Stack) Decider() string { return claimed(s.DecidedBy, s.DecidedByVerified) }

// claimed is the name of a user, and whether it was verified.
func claimed(who string, verified bool) string {
	switch {
	case who == "":
		return ""
	case verified:
		return who + " (verified)"
	default:
		return who + " (said by the object, not verified)"
	}
}

// Rejection is the decision of a user that a plan is not to be applied.
type Rejection struct {
	By       string `json:"by,omitempty"`       // as the object says
	Verified bool   `json:"verified,omitempty"` // the API server is known to have recorded this user
	Comment  string `json:"comment,omitempty"`
}

// String is the rejection, for lists and messages.
func (r Rejection) String() string {
	out := "rejected"
	out += by(claimed(r.By, r.Verified))
	if r.Comment != "" {
		out += ": " + strings.TrimRight(r.Comment, ". ")
	}
	return out
}

// DriftInfo is a difference between resources and what was applied.
type DriftInfo struct {
	At      time.Time     `json:"at"`
	Changes stack.Changes `json:"changes"`
}

// Condition is one condition of the object.
type Condition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"`
	Reason  string    `json:"reason"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since"`
}

// Key names s.
func (s Stack) Key() Key { return Key{Namespace: s.Namespace, Name: s.Name, Kind: s.Kind} }

// ID is how the records know s.
func (s Stack) ID() StackID { return StackID{Key: s.Key(), UID: s.UID} }

// View translates the object of a stack.
func View(o *Object) Stack {
	v := o.View
	s := Stack{
		Namespace: o.GetNamespace(), Name: o.GetName(), Kind: o.Kind, UID: string(o.GetUID()), Labels: o.GetLabels(), Created: o.GetCreationTimestamp().Time,
		Mode: o.Spec.Mode, Suspended: v.Suspended, Deleting: o.Deleting(), Destroy: o.Spec.Destroy,
		Approved: v.Approved, Source: v.Source, Path: v.Path,
		Ready: string(metav1.ConditionUnknown), Stalled: meta.IsStatusConditionTrue(v.Conditions, "Stalled"),
		Reconciling: meta.IsStatusConditionTrue(v.Conditions, "Reconciling"),
		Phase:       v.Phase, Rule: v.Rule, WaitingFor: v.WaitingFor, Since: v.Since, NextAttempt: v.Next, Every: v.Every,
		Pending: v.Pending, Revision: v.Revision, Failures: v.Failures, Handled: v.Handled,
		Isolation: v.Isolation, Environment: v.Environment, Outputs: v.Outputs, OutputsIn: v.OutputsIn,
	}
	if c := meta.FindStatusCondition(v.Conditions, "Ready"); c != nil {
		s.Ready, s.Reason, s.Message = string(c.Status), c.Reason, c.Message
	}
	if v.Run != nil {
		s.Run = new(Running(*v.Run))
	}
	if s.OutputsIn == "" && len(s.Outputs) > 0 {
		s.OutputsHow = o.Spec.Words.Outputs
	}
	s.Identities = identitiesOf(o)
	s.AfterApply = stepsOf(o).Summary()
	s.remember(o.Status)
	s.DecidedBy, s.Cancelled, s.Undecidable = v.DecidedBy, o.Status.Cancelled, o.undecidable()
	s.DecidedByVerified = v.DecidedBy != "" && stack.Verified(o.Status, o.Spec, v.DecidedBy)
	if named := o.Spec.Confirmed(); o.Spec.Mode == stack.Auto && (o.Status.Pending.Is(named) || o.Status.Applied.Is(named)) {
		s.Approved = named // by an annotation, beside a field that says auto
	}
	if s.Plan != nil {
		s.Approvals = approvalsOf(o)
		s.Override = overrideOf(o)
	}
	if r := o.Spec.Rejected; r != "" && r == s.Pending && r != s.Approved {
		s.Rejection = &Rejection{By: s.DecidedBy, Verified: s.DecidedByVerified, Comment: v.Comment}
	}
	if g := o.Status.BreakGlass; g != nil && g.Session == o.Spec.BreakGlass {
		s.BreakGlass = g
		if Underway(o.Spec, o.Status) {
			s.PendingCommand = o.Spec.Command
		}
	}
	s.CanRollBack, _ = RollbackOf(o)
	if b := o.Status.Rollback; b != nil {
		s.RolledBack = &Rollback{From: b.From.Revision, To: b.To.PlanInputs.Revision, Plan: b.To.Plan, At: b.At, Why: b.Why, Requested: b.Request != ""}
	}
	s.FormerNames = FormerNames{s.Untracked, s.BreakGlass, s.PendingCommand, s.LastCommand}
	return s
}

// stepsOf are the steps after the applies of a stack.
func stepsOf(o *Object) *steps.Steps {
	return steps.Of(o.Configuration.AfterApply, o.View.Conditions, o.Status, o.View.Phase == string(stack.StepsHeld))
}

// remember takes over what earlier reconciles wrote down.
func (s *Stack) remember(m stack.Status) {
	s.Plan, s.Applied, s.Lock, s.Untracked, s.LastCommand = PlanInfoOf(m.Pending), PlanInfoOf(m.Applied), m.Lock, m.Untracked, m.LastCommand
	s.FailingCheckBlocks = m.FailingCheckBlocks
	if m.Applied != nil {
		s.AppliedAt = m.AppliedAt
	}
	if m.Drift != nil {
		s.Drift = &DriftInfo{At: m.Drift.At, Changes: m.Drift.Changes}
	}
	s.Tolerated = m.Tolerated
	if m.Failures > 0 {
		s.FailedRevision, s.FailedWith, s.FailedKind, s.FailsSince = m.FailedFor.Revision, m.FailedWith, m.FailedKind, m.FailsSince
		if s.FailsSince.IsZero() {
			s.FailsSince = m.FailedAt
		}
	}
	s.Verdict = verdictOf(m)
	if s.Plan != nil && s.Plan.Name != s.Pending {
		s.Plan, s.Verdict = nil, nil // the object is being written: what is public counts
	}
}

func PlanInfoOf(p *stack.Plan) *PlanInfo {
	if p == nil {
		return nil
	}
	info := &PlanInfo{Name: p.Name, Digest: p.Digest, Run: p.Run, Revision: p.PlanInputs.Revision, Changes: p.Changes, Destroy: p.Destroy, Drift: p.Drift, Tolerated: p.Tolerated, At: p.At}
	if p.Verdict != "" {
		info.Approvable = p.Approvable()
	}
	return info
}

func conditions(list []metav1.Condition) []Condition {
	var out []Condition
	for _, c := range list {
		out = append(out, Condition{Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime.Time})
	}
	return out
}
