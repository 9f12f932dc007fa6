package tenant

import (
	"fmt"
	"strings"

	"github.com/terrier-iac/terrier/internal/plural"
)

// ConditionType is a condition of a tenant.
type ConditionType string

const (
	ReadyCondition       ConditionType = "Ready"
	ProgressingCondition ConditionType = "Progressing"
	ConflictedCondition  ConditionType = "Conflicted"
	DegradedCondition    ConditionType = "Degraded"
)

// Condition is one of the four, which are always all there.
type Condition struct {
	Type    ConditionType
	True    bool
	Reason  string
	Message string
}

// Event is an event of Kubernetes.
type Event struct {
	Warning bool
	Reason  string
	Message string
}

// conditions is the status of the whole tenant.
func (p *planning) conditions() []Condition {
	if p.Deleting {
		return p.ending()
	}
	ready := p.out.Ready == p.out.Desired && p.Broken == nil && len(p.Errors) == 0
	summary := fmt.Sprintf("%d of %d resources are ready", p.out.Ready, p.out.Desired)
	failed, conflicted := p.out.Failed-p.out.Conflicted > 0, p.out.Conflicted > 0

	r := Condition{ReadyCondition, ready, "Reconciled", summary}
	d := Condition{DegradedCondition, failed || conflicted || p.Broken != nil, "Healthy", "nothing has failed"}
	switch {
	case p.Broken != nil:
		r.Reason, r.Message = p.Broken.Reason, p.Broken.Message
		d.Reason, d.Message = p.Broken.Reason, p.Broken.Message
		if p.Broken.Reason == DependencyError {
			d.Reason = "DependencyCycle"
		}
	case failed && conflicted:
		r.Reason, d.Reason = "ResourcesFailedAndConflicted", "ResourceFailuresAndConflicts"
	case conflicted:
		r.Reason, d.Reason = "ResourcesConflicted", "ResourceConflicts"
	case failed:
		r.Reason, d.Reason = "ResourcesFailed", "ResourceFailures"
	case !ready:
		r.Reason, d.Reason = "NotAllResourcesReady", "ResourcesNotReady"
		d.Message = "nothing has failed; " + summary
	}
	if p.Broken == nil && d.True {
		r.Message = summary + "; " + p.worst()
		d.Message = p.worst()
	}
	return []Condition{r, p.progress(), p.conflict(), d}
}

// progress reports whether the tenant is still changing.
func (p *planning) progress() Condition {
	var open []string
	for _, v := range p.out.Verdicts {
		switch v.State {
		case Pending, Progressing, Deleting:
			open = append(open, v.ID)
		case Ready, Failed, Conflicted, Skipped, Kept:
		}
	}
	if len(open) == 0 {
		return Condition{ProgressingCondition, false, "ReconcileComplete", "nothing is left to do"}
	}
	return Condition{ProgressingCondition, true, "Reconciling", "waits for " + Few(open, 5)}
}

func (p *planning) conflict() Condition {
	if p.out.Conflicted == 0 {
		return Condition{ConflictedCondition, false, "NoConflict", "no object has another owner"}
	}
	return Condition{ConflictedCondition, true, ResourceConflict, p.first(Conflicted)}
}

// worst is the most important message: a failure rather than a conflict.
func (p *planning) worst() string {
	if m := p.first(Failed); m != "" {
		return m
	}
	return p.first(Conflicted)
}

// first is the first message of a state, and how many more there are.
func (p *planning) first(s State) string {
	message, more := "", -1
	for _, v := range p.out.Verdicts {
		if v.State != s {
			continue
		}
		if more++; more == 0 {
			message = v.ID + ": " + v.Message
		}
	}
	if more > 0 {
		message += fmt.Sprintf(" (and %d more)", more)
	}
	return message
}

// ending is the conditions of a tenant that is being deleted.
func (p *planning) ending() []Condition {
	r := Condition{ReadyCondition, false, "Deleting", "the tenant is being deleted"}
	g := Condition{ProgressingCondition, true, "Reconciling", plural.Count(len(p.out.Inventory), "object") + " left to delete"}
	d := Condition{DegradedCondition, false, "Healthy", "nothing has failed"}
	for _, v := range p.out.Verdicts {
		if v.Reason == WaitsForFinalizers {
			g.Message += "; " + v.Message
			break
		}
	}
	if p.Protected {
		r.Message = "the tenant is being deleted, and deletion protection keeps it; remove the annotation terrier.dev/deletion-protection to delete it"
		r.Reason, g.True, g.Reason, g.Message = DeletionProtected, false, "ReconcileComplete", r.Message
	}
	for _, v := range p.out.Verdicts {
		if v.Reason == CleanupFailed || v.State == Kept && v.Reason != TenantDeleted && v.Reason != DeletionProtected {
			d = Condition{DegradedCondition, true, "ResourceFailures", v.ID + ": " + v.Message}
			break
		}
	}
	return []Condition{r, g, p.conflict(), d}
}

// events are the changes since the stored verdicts.
func (p *planning) events() []Event {
	var all []Event
	for _, v := range p.out.Verdicts {
		if before, ok := p.before[past{v.ID, v.State.leaving()}]; ok && before.same(v) {
			continue
		}
		switch {
		case v.State == Skipped || v.State == Conflicted || v.State == Failed || v.Reason == CleanupFailed || v.Reason == KindUnknown:
			all = append(all, Event{true, v.Reason, v.ID + ": " + v.Message})
		default:
		}
	}
	return all
}

// Few joins the first names for a message, and counts the others.
func Few(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
