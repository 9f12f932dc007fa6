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
