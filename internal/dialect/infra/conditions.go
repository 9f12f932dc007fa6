package infra

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Condition types and reasons of the API, as tofu-controller writes them, and three
// of ours: FieldsIgnored, ModuleRepaired and ChecksFailed. ConditionGlass, in
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
	ConditionRepaired    = "ModuleRepaired"
	ConditionChecks      = "ChecksFailed"

	reasonProgressing = "Progressing"
	reasonChanges     = "TerraformPlannedWithChanges"
	reasonNoChanges   = "TerraformPlannedNoChanges"
	reasonApplied     = "TerraformAppliedSucceed"
	reasonApplyFailed = "TerraformAppliedFail"
	reasonOutputs     = "TerraformOutputsWritten"
	reasonAvailable   = "TerraformOutputsAvailable"
	reasonLockHeld    = "LockHeld"
	reasonUnlocked    = "ForceUnlock"
	reasonChecks      = "CheckBlocksFailed"
)

// StatusUnreadable is the reason of an object whose status.terrier cannot be read.
const StatusUnreadable = "StatusUnreadable"

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
	stack.Queued:             {metav1.ConditionUnknown, reasonProgressing},
	stack.Planning:           {metav1.ConditionUnknown, reasonProgressing},
	stack.Checking:           {metav1.ConditionUnknown, reasonProgressing},
	stack.Applying:           {metav1.ConditionUnknown, reasonProgressing},
	stack.Destroying:         {metav1.ConditionUnknown, reasonProgressing},
	stack.Cancelling:         {metav1.ConditionUnknown, reasonProgressing},
	stack.Deleting:           {metav1.ConditionUnknown, reasonProgressing},
	stack.Unlocking:          {metav1.ConditionUnknown, reasonProgressing},
	stack.Publishing:         {metav1.ConditionUnknown, reasonProgressing},
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
	stack.SourceDebounced:    {metav1.ConditionUnknown, reasonProgressing},
	stack.NotConverging:      {metav1.ConditionFalse, "NotConverging"},
	stack.StateTampered:      {metav1.ConditionFalse, "StateTampered"},
	stack.StateRegressed:     {metav1.ConditionFalse, "StateRegressed"},
	stack.StateShared:        {metav1.ConditionFalse, "StateShared"},
	stack.StateNotAdopted:    {metav1.ConditionFalse, "StateNotAdopted"},
	stack.Reviewing:          {metav1.ConditionUnknown, reasonProgressing},
	stack.ReviewRefused:      {metav1.ConditionFalse, "PostPlanningWebhookFailed"},
	stack.Previewing:         {metav1.ConditionUnknown, reasonProgressing},
	stack.CheckingHealth:     {metav1.ConditionUnknown, reasonProgressing},
	stack.BreakGlassSession:  {metav1.ConditionUnknown, reasonProgressing},
	stack.StatusUnreadable:   {metav1.ConditionFalse, StatusUnreadable},
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
}

// conditions sets every condition that Terrier owns.
func conditions(obj *v1alpha2.Terraform, s dialect.Summary) {
	c := setter{obj}
	d := s.Decision
	r, known := readiness[d.Reason]
	if !known {
		r = ready{metav1.ConditionFalse, string(d.Reason)}
	}
	if r.status == metav1.ConditionFalse && (r.reason == "" || d.Reason == stack.ModuleInvalid && s.Status.Permanent) {
		r.reason = failedReason(s.Status)
	}
	if d.Reason == stack.Suspended {
		whileSuspended(c, s)
	} else {
		c.set(ConditionReady, r.status, r.reason, d.Message)
	}
	switch d.Ready {
	case stack.Reconciling:
		c.set(ConditionReconciling, metav1.ConditionTrue, reasonProgressing, "Fulfilling prerequisites")
		c.drop(ConditionStalled)
	case stack.Stalled:
		c.drop(ConditionReconciling)
		reason := r.reason
		if d.Reason == stack.RetryLimitReached {
			reason = string(stack.RetryLimitReached)
		}
		c.set(ConditionStalled, metav1.ConditionTrue, reason, d.Message)
	default:
		c.drop(ConditionReconciling)
		c.drop(ConditionStalled)
	}
	planned(c, s)
	applied(c, s)
	locked(c, s)
	sessionCondition(c, s)
	health(c, s)
	switch m := s.Status; {
	case d.Reason == stack.Suspended: // this pass observed nothing, and upstream may have written it
	case m.Published != "":
		c.set(ConditionOutput, metav1.ConditionTrue, reasonOutputs, "Outputs written")
	case len(m.Outputs) > 0:
		c.set(ConditionOutput, metav1.ConditionTrue, reasonAvailable, "Outputs available")
	default:
		c.drop(ConditionOutput)
	}
	if len(s.Ignored) > 0 {
		c.set(ConditionIgnored, metav1.ConditionTrue, "NotYet", "Terrier ignores these fields, since they do not work yet: "+strings.Join(s.Ignored, ", "))
	} else {
		c.drop(ConditionIgnored)
	}
	if f := s.Status.FailingCheckBlocks; f != nil {
		c.set(ConditionChecks, metav1.ConditionTrue, reasonChecks, f.String())
	} else {
		c.drop(ConditionChecks)
	}
	repaired(c)
}

// whileSuspended leaves the Ready condition of a suspended stack as it is, as upstream
// does, unless the end of the run that went on belies it: then the condition says how
// that run ended.
func whileSuspended(c setter, s dialect.Summary) {
	was := meta.FindStatusCondition(c.obj.Status.Conditions, ConditionReady)
	m := s.Status
	switch {
	case was != nil && was.Reason != reasonProgressing && !(was.Status == metav1.ConditionTrue && (m.Failures > 0 || m.Pending != nil)):
	case m.Failures > 0:
		c.set(ConditionReady, metav1.ConditionFalse, failedReason(m), m.FailedWith)
	case m.Pending != nil:
		c.set(ConditionReady, metav1.ConditionUnknown, reasonChanges, "Plan generated: "+m.Pending.Changes.String())
	case m.Applied != nil:
		c.set(ConditionReady, metav1.ConditionTrue, reasonApplied, "Applied successfully: "+m.Applied.PlanInputs.Revision)
	default:
		c.set(ConditionReady, metav1.ConditionUnknown, string(stack.Suspended), s.Decision.Message)
	}
}

// repaired warns that the engine was given a text with more lines than the spec
// has.
func repaired(c setter) {
	found := brokenLines(&c.obj.Spec)
	if len(found) == 0 {
		c.drop(ConditionRepaired)
		return
	}
	var where []string
	for _, o := range found {
		where = append(where, o.String())
	}
	c.set(ConditionRepaired, metav1.ConditionTrue, "LinesBroken", "spec.values.hcl has blocks with several arguments on one line, which HCL refuses: "+
		strings.Join(where, ", ")+". Terrier put their arguments on lines of their own, so line numbers in the engine's messages are higher")
}

// failedReason names the step that failed, as upstream does. A failure that
// upstream has no name for, such as one of the supervisor, keeps its own.
func failedReason(m stack.Status) string {
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
	case stack.ApplyRun, stack.DestroyRun:
		return "TFExecApplyFailed"
	case stack.HealthRun:
		return reasonUnhealthy
	default:
		return "TFExecPlanFailed"
	}
}

func planned(c setter, s dialect.Summary) {
	switch m := s.Status; {
	case s.Decision.Reason == stack.ReviewRefused:
		c.set(ConditionPlan, metav1.ConditionFalse, readiness[stack.ReviewRefused].reason, s.Decision.Message)
	case m.Pending != nil:
		c.set(ConditionPlan, metav1.ConditionTrue, reasonChanges, "Plan generated: "+m.Pending.Changes.String())
	case m.Failures > 0 && m.FailedKind.Writes():
		c.drop(ConditionPlan) // the plan was used up
	case m.Planned.Revision != "" && s.Decision.Reason.Settled():
		c.set(ConditionPlan, metav1.ConditionFalse, reasonNoChanges, "Plan no changes")
	}
}

func applied(c setter, s dialect.Summary) {
	m := s.Status
	switch {
	case s.Run != nil && !s.Run.Done && s.Run.Kind.Writes() && s.Run.Kind != stack.BreakGlassRun, s.Decision.Reason == stack.Applying:
		c.set(ConditionApply, metav1.ConditionUnknown, reasonProgressing, "Apply started")
	case m.Failures > 0 && m.FailedKind.Writes():
		c.set(ConditionApply, metav1.ConditionFalse, reasonApplyFailed, m.FailedWith)
	case m.Applied != nil && m.Destroyed:
		c.set(ConditionApply, metav1.ConditionTrue, reasonApplied, "Destroy applied successfully: "+m.Applied.PlanInputs.Revision)
	case m.Applied != nil:
		c.set(ConditionApply, metav1.ConditionTrue, reasonApplied, "Applied successfully: "+m.Applied.PlanInputs.Revision)
	}
}

func locked(c setter, s dialect.Summary) {
	switch m := s.Status; {
	case m.Lock != nil:
		c.set(ConditionStateLocked, metav1.ConditionTrue, reasonLockHeld, m.FailedWith)
	case s.Decision.Reason == stack.Unlocking:
		c.set(ConditionStateLocked, metav1.ConditionFalse, reasonUnlocked, s.Decision.Message)
	default:
		c.drop(ConditionStateLocked)
	}
}

// setter sets conditions of one object.
type setter struct{ obj *v1alpha2.Terraform }

func (c setter) set(kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&c.obj.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: cut(message), ObservedGeneration: c.obj.Generation,
	})
}

func (c setter) drop(kind string) { meta.RemoveStatusCondition(&c.obj.Status.Conditions, kind) }

// cut keeps a message within what upstream allows: its beginning, and its end, where
// the error is.
func cut(s string) string { return fault.Shorten(s, messageRunes) }
