package query

import (
	"context"
	"slices"

	"github.com/terrier-iac/terrier/internal/audit"
)

// deeds are what users did to a stack, as the timeline calls it.
var deeds = map[AuditWhat]string{
	audit.Approved: "Approved", audit.ApprovedStale: "Approved a plan that is not pending", audit.Rejected: "Rejected", audit.RejectedLate: "Rejected too late", audit.WindowOverridden: "Overrode the windows of policies", audit.CancelAsked: "Cancelled a run",
	audit.Suspended: "Suspended", audit.Resumed: "Resumed", audit.ReplanAsked: "Requested a reconcile", audit.DeletionAsked: "Deleted",
	audit.RepairAsked: "Requested a repair plan", audit.UntrackedIgnored: "Ignored untracked resources", audit.LockBroken: "Broke a foreign lock",
	audit.DriftAccepted:   "Accepted the drift",
	audit.StepsRerunAsked: "Requested the steps after the apply again",
	audit.RollbackAsked:   "Requested a rollback", audit.RollbackEndAsked: "Ended the rollback",
	audit.StateRolledBack: "Rolled the state back", audit.StateAccepted: "Accepted the state", audit.StatePushed: "Uploaded a state",
	audit.StateLocked: "Locked the state", audit.StateUnlocked: "Unlocked the state",
	audit.BreakGlassBegun: "Opened a break-glass session", audit.BreakGlassCommand: "Ran a break-glass command", audit.BreakGlassEnded: "Break-glass session ended",
}

// ToldTimeline is the timeline of a stack with what users did, if sight has its
// namespace. If the audit log cannot be read, it returns the rest and the error.
// There may be no audit log.
func ToldTimeline(ctx context.Context, d StackDetails, j AuditLog, sight AuditSight, key Key) ([]Moment, error) {
	moments, err := d.Timeline(ctx, key)
	if err != nil || j == nil || len(moments) == 0 || !sight.Has(key.Namespace) {
		return moments, err
	}
	q := AuditQuery{Namespace: key.Namespace, Stack: key.Name, Kind: &key.Kind, Limit: momentsShown, Since: moments[len(moments)-1].At} // earlier entries belong to another stack of the name
	for what := range deeds {
		q.What = append(q.What, what)
	}
	slices.Sort(q.What)
	page, err := j.Entries(ctx, sight, q)
	if err != nil {
		return moments, err
	}
	for _, e := range page.Items {
		title, told := deeds[e.What]
		if of, isStack := AuditedStack(e.Object); told && isStack && of == key {
			moments = append(moments, momentOfDeed(e, title))
		}
	}
	inOrder(moments)
	return moments[:min(len(moments), momentsShown)], nil
}

func momentOfDeed(e AuditEntry, title string) Moment {
	m := Moment{At: e.At, Kind: MomentDeed, Title: title, Text: AuditAbout(e), Run: e.Run}
	if e.Who != "" || e.Claimed != "" || e.Via == audit.ViaController {
		m.Who = AuditWho(e)
	}
	return m
}
