package dialect

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Condition types and reasons that every kind has, as tofu-controller writes them, and
// three of ours: FieldsIgnored, ChecksFailed and RecordMissing. ConditionGlass, in
// breakglass.go, is ours as well.
const (
	ConditionReady       = "Ready"
	ConditionReconciling = "Reconciling"
	ConditionStalled     = "Stalled"
	ConditionPlan        = "Plan"
	ConditionApply       = "Apply"
	ConditionOutput      = "Output"
	ConditionStateLocked = "StateLocked"
	ConditionIgnored     = "FieldsIgnored"
	ConditionChecks      = "ChecksFailed"
	ConditionRecord      = "RecordMissing"

	ReasonProgressing = "Progressing"
	reasonChanges     = "TerraformPlannedWithChanges"
	reasonNoChanges   = "TerraformPlannedNoChanges"
	reasonApplied     = "TerraformAppliedSucceed"
	reasonApplyFailed = "TerraformAppliedFail"
	reasonOutputs     = "TerraformOutputsWritten"
	reasonAvailable   = "TerraformOutputsAvailable"
	reasonLockHeld    = "LockHeld"
	reasonUnlocked    = "ForceUnlock"
	reasonChecks      = "CheckBlocksFailed"
	reasonRecord      = "SnapshotMissing"

	ReasonUnhealthy = "HealthChecksFailed"
)

// Reasons of an object about which nothing else can be said: its status.terrier cannot be read,
// and passes over it end early.
const (
	StatusUnreadable = "StatusUnreadable"
	ReconcileFailed  = "ReconcileFailed"
)

// messageRunes is how long upstream lets messages be, in characters; Terrier counts
// bytes, which are not fewer.
const messageRunes = 20000

// ready is how the Ready condition shows a reason.
type ready struct {
	status metav1.ConditionStatus
	reason string
}

// readiness translates Terrier's reasons. A test demands a row for every reason.
var readiness = map[stack.Reason]ready{
	stack.Queued:             {metav1.ConditionUnknown, ReasonProgressing},
	stack.Planning:           {metav1.ConditionUnknown, ReasonProgressing},
	stack.Checking:           {metav1.ConditionUnknown, ReasonProgressing},
	stack.Applying:           {metav1.ConditionUnknown, ReasonProgressing},
	stack.Destroying:         {metav1.ConditionUnknown, ReasonProgressing},
	stack.Cancelling:         {metav1.ConditionUnknown, ReasonProgressing},
	stack.Deleting:           {metav1.ConditionUnknown, ReasonProgressing},
	stack.Unlocking:          {metav1.ConditionUnknown, ReasonProgressing},
	stack.Publishing:         {metav1.ConditionUnknown, ReasonProgressing},
	stack.Suspended:          {}, // see whileSuspended
	stack.DeletionBlocked:    {metav1.ConditionFalse, "DeletionBlockedByDependantsReason"},
	stack.SpecInvalid:        {metav1.ConditionFalse, "SpecInvalid"},
	stack.SourceNotReady:     {metav1.ConditionFalse, "ArtifactFailed"},
	stack.SourceFailed:       {metav1.ConditionFalse, "ArtifactFailed"},
	stack.SourceDenied:       {metav1.ConditionFalse, "AccessDenied"},
	stack.InputsFailed:       {metav1.ConditionFalse, "VarsGenerationFailed"},
	stack.ModuleInvalid:      {metav1.ConditionFalse, "TFExecInitFailed"},
	stack.EngineMissing:      {metav1.ConditionFalse, "TFExecNewFailed"},
	stack.StateFailed:        {metav1.ConditionFalse, "TFExecInitFailed"},
	stack.StartFailed:        {metav1.ConditionFalse, "TFExecNewFailed"},
	stack.OutputsFailed:      {metav1.ConditionFalse, "OutputsWritingFailed"},
	stack.DependencyNotReady: {metav1.ConditionFalse, "DependencyNotReady"},
	stack.LockedByOther:      {metav1.ConditionFalse, reasonLockHeld},
	stack.SourceDebounced:    {metav1.ConditionUnknown, ReasonProgressing},
	stack.NotConverging:      {metav1.ConditionFalse, "NotConverging"},
	stack.StateTampered:      {metav1.ConditionFalse, "StateTampered"},
	stack.StateRegressed:     {metav1.ConditionFalse, "StateRegressed"},
	stack.StateMissing:       {metav1.ConditionFalse, "StateMissing"},
	stack.StateShared:        {metav1.ConditionFalse, "StateShared"},
	stack.StateNotAdopted:    {metav1.ConditionFalse, "StateNotAdopted"},
	stack.Reviewing:          {metav1.ConditionUnknown, ReasonProgressing},
	stack.ReviewRefused:      {metav1.ConditionFalse, "PostPlanningWebhookFailed"},
	stack.ApplyWithheld:      {metav1.ConditionUnknown, string(stack.ApplyWithheld)},
	stack.Previewing:         {metav1.ConditionUnknown, ReasonProgressing},
	stack.CheckingHealth:     {metav1.ConditionUnknown, ReasonProgressing},
	stack.BreakGlassSession:  {metav1.ConditionUnknown, ReasonProgressing},
	stack.StatusUnreadable:   {metav1.ConditionFalse, StatusUnreadable},
	stack.NoDestroyScript:    {metav1.ConditionFalse, string(stack.NoDestroyScript)},
	stack.RetryLater:         {metav1.ConditionFalse, ""}, // by the step that failed
	stack.RetryLimitReached:  {metav1.ConditionFalse, ""},
	stack.DestroyFailed:      {metav1.ConditionFalse, ""},
	stack.RunCancelled:       {metav1.ConditionFalse, string(stack.RunCancelled)},
	stack.StateIncomplete:    {metav1.ConditionFalse, "StateIncomplete"},
	stack.AwaitingApproval:   {metav1.ConditionUnknown, reasonChanges},
	stack.PlanRejected:       {metav1.ConditionUnknown, string(stack.PlanRejected)},
	stack.PlanOnlyHeld:       {metav1.ConditionUnknown, reasonChanges},
	stack.DriftFound:         {metav1.ConditionFalse, "DriftDetected"},
	stack.Applied:            {metav1.ConditionTrue, reasonApplied},
	stack.Destroyed:          {metav1.ConditionTrue, reasonApplied},
	stack.Unchanged:          {metav1.ConditionTrue, reasonNoChanges},
	stack.NothingLeft:        {metav1.ConditionTrue, reasonNoChanges},
	stack.NoDrift:            {metav1.ConditionTrue, "NoDrift"},
	stack.OutputsWritten:     {metav1.ConditionTrue, reasonOutputs},

	stack.PrerequisiteMissing: {metav1.ConditionFalse, string(stack.PrerequisiteMissing)},
	stack.RunningSteps:        {metav1.ConditionUnknown, ReasonProgressing},
	stack.StepsFailed:         {metav1.ConditionFalse, string(stack.StepsFailed)},
	stack.RolledBack:          {metav1.ConditionFalse, string(stack.RolledBack)},
	stack.StepsHeld:           {metav1.ConditionUnknown, string(stack.StepsHeld)},
}

// SetConditions sets every condition that all kinds have.
func SetConditions(c Conditions, s Summary) {
	d := s.Decision
	r, known := readiness[d.Reason]
	if !known {
		r = ready{metav1.ConditionFalse, string(d.Reason)}
	}
	if r.status == metav1.ConditionFalse && (r.reason == "" || d.Reason == stack.ModuleInvalid && s.Status.Permanent) {
		r.reason = FailedReason(s.Status)
	}
	if d.Reason == stack.Suspended {
		whileSuspended(c, s)
	} else {
		c.Set(ConditionReady, r.status, r.reason, d.Message)
	}
	switch d.Ready {
	case stack.Reconciling:
		c.Set(ConditionReconciling, metav1.ConditionTrue, ReasonProgressing, "Fulfilling prerequisites")
		c.Drop(ConditionStalled)
	case stack.Stalled:
		c.Drop(ConditionReconciling)
		reason := r.reason
		if d.Reason == stack.RetryLimitReached {
			reason = string(stack.RetryLimitReached)
		}
		c.Set(ConditionStalled, metav1.ConditionTrue, reason, d.Message)
	default:
		c.Drop(ConditionReconciling)
		c.Drop(ConditionStalled)
	}
	planned(c, s)
	applied(c, s)
	locked(c, s)
	sessionCondition(c, s)
	switch m := s.Status; {
	case d.Reason == stack.Suspended: // this pass observed nothing, and upstream may have written it
	case m.Published != "":
		c.Set(ConditionOutput, metav1.ConditionTrue, reasonOutputs, "Outputs written")
	case len(m.Outputs) > 0:
		c.Set(ConditionOutput, metav1.ConditionTrue, reasonAvailable, "Outputs available")
	default:
		c.Drop(ConditionOutput)
	}
	if len(s.Ignored) > 0 {
		c.Set(ConditionIgnored, metav1.ConditionTrue, cmp.Or(c.IgnoredAs, "NotYet"), "Terrier ignores these fields, which have no effect: "+strings.Join(s.Ignored, ", "))
	} else {
		c.Drop(ConditionIgnored)
	}
	recorded(c, s.RecordLacks)
	prerequisites(c, s.Prerequisites)
	afterApply(c, s)
	if f := s.Status.FailingCheckBlocks; f != nil {
		c.Set(ConditionChecks, metav1.ConditionTrue, reasonChecks, f.String())
	} else {
		c.Drop(ConditionChecks)
	}
}

// recorded says what is wrong with the record of the last apply.
func recorded(c Conditions, lacks *string) {
	switch {
	case lacks == nil:
	case *lacks == "":
		c.Drop(ConditionRecord)
	default:
		c.Set(ConditionRecord, metav1.ConditionTrue, reasonRecord, "The record of the last apply "+*lacks+". A deletion destroys the resources from this record. "+
			"Terrier writes it again as soon as the source and the inputs that the object names can be read and are what was applied. "+
			"Make them readable, apply the pending plan, or restore the records from a backup")
	}
}

// Corrected reports whether the conditions of an object say that its spec is not valid,
// although it is.
func Corrected(c Conditions, s Summary) bool {
	was := meta.FindStatusCondition(*c.All, ConditionReady)
	return was != nil && was.Reason == readiness[stack.SpecInvalid].reason && !s.SpecInvalid
}

// whileSuspended leaves the Ready condition of a suspended stack as it is, as upstream
// does, unless the end of the run that went on belies it, or a user corrected what it names:
// then the condition says how the last run ended.
func whileSuspended(c Conditions, s Summary) {
	was := meta.FindStatusCondition(*c.All, ConditionReady)
	m := s.Status
	switch {
	case was != nil && !Corrected(c, s) && was.Reason != ReasonProgressing && !(was.Status == metav1.ConditionTrue && (m.Failures > 0 || m.Pending != nil)):
	case m.Failures > 0:
		c.Set(ConditionReady, metav1.ConditionFalse, FailedReason(m), m.FailedWith)
	case m.Pending != nil:
		c.Set(ConditionReady, metav1.ConditionUnknown, reasonChanges, "Plan generated: "+m.Pending.Changes.String())
	case m.Applied != nil:
		c.Set(ConditionReady, metav1.ConditionTrue, reasonApplied, stack.AppliedHow(m)+m.Applied.PlanInputs.Revision)
	default:
		c.Set(ConditionReady, metav1.ConditionUnknown, string(stack.Suspended), s.Decision.Message)
	}
}

// FailedReason names the step that failed, as upstream does. A failure that
// upstream has no name for, such as one of the supervisor, keeps its own.
func FailedReason(m stack.Status) string {
	if m.FailedWhy != "" {
		return m.FailedWhy
	}
	switch m.FailedStep {
	case "init", "unpack":
		return "TFExecInitFailed"
	case "workspace":
		return "SelectWorkspaceFailed"
	case "apply", "destroy":
		return "TFExecApplyFailed"
	case "output":
		return "TFExecOutputFailed"
	}
	switch m.FailedKind {
	case stack.CheckRun:
		return "DriftDetectionFailed"
	case stack.ApplyRun, stack.ScriptRun, stack.DestroyRun:
		return "TFExecApplyFailed"
	case stack.HealthRun:
		return ReasonUnhealthy
	case stack.StepsRun:
		return string(stack.StepsFailed)
	default:
		return "TFExecPlanFailed"
	}
}

func planned(c Conditions, s Summary) {
	switch m := s.Status; {
	case s.Decision.Reason == stack.ReviewRefused:
		c.Set(ConditionPlan, metav1.ConditionFalse, readiness[stack.ReviewRefused].reason, s.Decision.Message)
	case m.Pending != nil:
		c.Set(ConditionPlan, metav1.ConditionTrue, reasonChanges, "Plan generated: "+m.Pending.Changes.String())
	case m.Failures > 0 && m.FailedKind.Writes():
		c.Drop(ConditionPlan) // the plan was used up
	case m.Planned.Revision != "" && s.Decision.Reason.Settled():
		c.Set(ConditionPlan, metav1.ConditionFalse, reasonNoChanges, "Plan no changes")
	}
}

func applied(c Conditions, s Summary) {
	m := s.Status
	switch {
	case s.RunUnread:
	case s.Run != nil && !s.Run.Done && s.Run.Kind.Writes() && s.Run.Kind != stack.BreakGlassRun, s.Decision.Reason == stack.Applying:
		c.Set(ConditionApply, metav1.ConditionUnknown, ReasonProgressing, "Apply started")
	case m.Failures > 0 && m.FailedKind.Writes():
		c.Set(ConditionApply, metav1.ConditionFalse, reasonApplyFailed, m.FailedWith)
	case m.Applied != nil && m.Destroyed:
		c.Set(ConditionApply, metav1.ConditionTrue, reasonApplied, "Destroy applied successfully: "+m.Applied.PlanInputs.Revision)
	case m.Applied != nil:
		c.Set(ConditionApply, metav1.ConditionTrue, reasonApplied, stack.AppliedHow(m)+m.Applied.PlanInputs.Revision)
	}
}

func locked(c Conditions, s Summary) {
	switch m := s.Status; {
	case m.Lock != nil:
		c.Set(ConditionStateLocked, metav1.ConditionTrue, reasonLockHeld, m.FailedWith)
	case s.Decision.Reason == stack.Unlocking:
		c.Set(ConditionStateLocked, metav1.ConditionFalse, reasonUnlocked, s.Decision.Message)
	default:
		c.Drop(ConditionStateLocked)
	}
}

// Conditions are those of one object.
type Conditions struct {
	All        *[]metav1.Condition
	Generation int64  // of the object
	IgnoredAs  string // the reason of FieldsIgnored; NotYet if it is empty
}

// Set sets one condition.
func (c Conditions) Set(kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(c.All, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: cut(message), ObservedGeneration: c.Generation,
	})
}

// Drop removes one condition.
func (c Conditions) Drop(kind string) { meta.RemoveStatusCondition(c.All, kind) }

// Unreadable says that the status cannot be read, and what to do. An error that is Later is of a
// record beside the status: it says itself what to wait for.
func (c Conditions) Unreadable(why error) {
	if fault.Of(why) == fault.Later {
		c.Set(ConditionReady, metav1.ConditionFalse, StatusUnreadable, why.Error()+". Terrier does nothing with this stack until then, and tries again by itself")
		return
	}
	c.Set(ConditionReady, metav1.ConditionFalse, StatusUnreadable, why.Error()+
		". Terrier does nothing with this stack until the status is readable: restore it, or remove status.terrier to have the stack adopted again from the rest of its status")
}

// Failing says that passes over the object end early, and why.
func (c Conditions) Failing(why error) {
	c.Set(ConditionReady, metav1.ConditionFalse, ReconcileFailed, why.Error()+
		". Terrier retries by itself, and changes nothing until then; the rest of the status is as it was before")
}

// Ready reports whether others may rely on the object, whose status was written for
// the generation observed.
func (c Conditions) Ready(observed int64) (bool, string) {
	if observed != c.Generation {
		return false, "it has changed since Terrier reconciled it last"
	}
	ready := meta.FindStatusCondition(*c.All, ConditionReady)
	if ready == nil {
		return false, "Terrier has not reconciled it yet"
	}
	if ready.Status != metav1.ConditionTrue {
		return false, ready.Message
	}
	return true, ""
}

// BreakGlassDenied reports whether a session is asked for, and the platform allows none.
func (c Conditions) BreakGlassDenied() bool {
	session := meta.FindStatusCondition(*c.All, ConditionGlass)
	return session != nil && session.Reason == reasonNotAllowed
}

// EventReason is upstream's reason for the end of a run.
func EventReason(r stack.Run) string {
	if r.Outcome != stack.Succeeded {
		return FailedReason(stack.Status{Failure: stack.Failure{FailedStep: r.Step, FailedKind: r.Kind, FailedWhy: r.Why}})
	}
	switch {
	case r.Kind == stack.DestroyRun:
		return "TerraformDestroySucceed"
	case r.Kind == stack.StepsRun:
		return "StepsSucceeded"
	case r.Kind == stack.ApplyRun, r.Kind == stack.ScriptRun:
		return reasonApplied
	case r.Plan != nil && r.Plan.Drift:
		return "DriftDetected"
	default:
		return "TerraformPlanSucceed"
	}
}

// cut keeps a message within what upstream allows: its beginning, and its end, where
// the error is.
func cut(s string) string { return fault.Shorten(s, messageRunes) }
