package pages

import (
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// statusPills has every status; a test checks that.
var statusPills = map[query.Status]ui.Pill{
	query.StatusFailed:    ui.NewPill(ui.ToneBad, "cross", "Failed"),
	query.StatusLocked:    ui.NewPill(ui.ToneWarn, "lock", "Locked"),
	query.StatusPending:   ui.NewPill(ui.ToneWarn, "ask", "Needs approval"),
	query.StatusRejected:  ui.NewPill(ui.ToneWarn, "cross", "Plan rejected"),
	query.StatusDrifted:   ui.NewPill(ui.ToneDrift, "differs", "Drifted"),
	query.StatusRunning:   ui.NewPill(ui.ToneBusy, "turn", "Running"),
	query.StatusWaiting:   ui.NewPill(ui.ToneIdle, "clock", "Waiting"),
	query.StatusDeleting:  ui.NewPill(ui.ToneWarn, "minus", "Deleting"),
	query.StatusSuspended: ui.NewPill(ui.ToneIdle, "pause", "Suspended"),
	query.StatusReady:     ui.NewPill(ui.ToneOK, "check", "Ready"),
}

// statusPill is the pill of a status; one that is not known is shown as it is.
func statusPill(s query.Status) ui.Pill {
	if p, ok := statusPills[s]; ok {
		return p
	}
	return ui.NewPill(ui.ToneIdle, "dot", string(s))
}

var outcomePills = map[stack.Outcome]ui.Pill{
	stack.Succeeded:   ui.NewPill(ui.ToneOK, "check", "Succeeded"),
	stack.Failed:      ui.NewPill(ui.ToneBad, "cross", "Failed"),
	stack.Stale:       ui.NewPill(ui.ToneWarn, "clock", "Stale"),
	stack.Locked:      ui.NewPill(ui.ToneWarn, "lock", "Locked"),
	stack.TimedOut:    ui.NewPill(ui.ToneBad, "clock", "Timed out"),
	stack.Interrupted: ui.NewPill(ui.ToneIdle, "pause", "Interrupted"),
}

// outcomePill is the pill of a run; without an outcome it goes on.
func outcomePill(o stack.Outcome) ui.Pill {
	if o == "" {
		return ui.NewPill(ui.ToneBusy, "turn", "Running")
	}
	if p, ok := outcomePills[o]; ok {
		return p
	}
	return ui.NewPill(ui.ToneBad, "cross", string(o))
}

// runPill says what a run found or did: a plan that needs an approval has not
// succeeded yet. st is the stack of the run.
func runPill(r query.Report, st query.Stack) ui.Pill {
	if r.Outcome != stack.Succeeded {
		return outcomePill(r.Outcome)
	}
	pending := st.Plan != nil && st.Plan.Run == r.ID
	switch {
	case pending && st.Phase == string(stack.Applying):
		return ui.NewPill(ui.ToneBusy, "turn", "Being applied")
	case pending:
		return ui.NewPill(ui.ToneWarn, "ask", "Pending plan")
	case r.Kind == stack.HealthRun:
		return ui.PillOf(ui.ToneOK, "Healthy")
	case r.Kind == stack.BreakGlassRun, r.Kind == stack.StepsRun:
		return ui.PillOf(ui.ToneOK, "Done")
	case r.Kind == stack.DestroyRun:
		return ui.NewPill(ui.ToneWarn, "minus", "Destroyed")
	case r.Kind.Applies():
		return ui.PillOf(ui.ToneOK, "Applied")
	case r.Kind == stack.CheckRun && r.Changes.None():
		return ui.PillOf(ui.ToneOK, "No drift")
	case r.Kind == stack.CheckRun:
		return ui.PillOf(ui.ToneDrift, "Drifted")
	case r.Changes.None():
		return ui.PillOf(ui.ToneOK, "No changes")
	default:
		return ui.NewPill(ui.ToneIdle, "play", "Planned")
	}
}
