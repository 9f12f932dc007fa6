package query

import (
	"context"
	"slices"

	"github.com/terrier-iac/terrier/internal/audit"
)

// deeds are what people did to a stack, as its timeline calls it. What its runs
// did is told by the runs.
var deeds = map[AuditWhat]string{
	audit.Approved: "Approved", audit.ApprovedStale: "Approved, but not the plan that waits", audit.Rejected: "Rejected",
	audit.Suspended: "Suspended", audit.Resumed: "Resumed", audit.ReplanAsked: "Asked for a plan", audit.DeletionAsked: "Deleted",
	audit.RepairAsked: "Asked for a repair", audit.UntrackedIgnored: "Gave up what an apply left", audit.LockBroken: "Broke the lock of somebody else",
	audit.StateRolledBack: "Rolled the state back", audit.StateAccepted: "Accepted the state", audit.StatePushed: "Put a state of their own there",
	audit.StateLocked: "Locked the state", audit.StateUnlocked: "Unlocked the state",
	audit.BreakGlassBegun: "Began to work by hand", audit.BreakGlassCommand: "Ran a command by hand", audit.BreakGlassEnded: "Work by hand ended",
}

// ToldTimeline is the timeline of a stack, and in it what people did, if sight has
// its namespace. What happened is there even if the journal cannot be read, which
// is then the error. There may be no journal.
func ToldTimeline(ctx context.Context, d StackDetails, j Journal, sight AuditSight, key Key) ([]Moment, error) {
	moments, err := d.Timeline(ctx, key)
	if err != nil || j == nil || len(moments) == 0 || !sight.Has(key.Namespace) {
		return moments, err
	}
	q := AuditQuery{Namespace: key.Namespace, Stack: key.Name, Limit: momentsShown, Since: moments[len(moments)-1].At} // before is another stack of the name
	for what := range deeds {
		q.What = append(q.What, what)
	}
	slices.Sort(q.What)
	page, err := j.Entries(ctx, sight, q)
	if err != nil {
		return moments, err
	}
	for _, e := range page.Items {
		if title, ok := deeds[e.What]; ok && e.Object.Kind == "Terraform" {
			moments = append(moments, momentOfDeed(e, title))
		}
	}
	inOrder(moments)
	return moments[:min(len(moments), momentsShown)], nil
}

func momentOfDeed(e AuditEntry, title string) Moment {
	m := Moment{At: e.At, Kind: MomentDeed, Title: title, Text: AuditAbout(e), Run: e.Run}
	if e.Who != "" || e.Via == audit.ViaController {
		m.Who = AuditWho(e)
	}
	return m
}
