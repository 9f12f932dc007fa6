package history

import (
	"fmt"
	"slices"
	"time"

	"github.com/terrier-iac/terrier/internal/stack"
)

// writersAreAlone: no two runs that may write one state run at once. The oracle
// checks that no two processes write to one world file, since it knows that of each
// stack.
func writersAreAlone(h History) (found []string) {
	var writers []Run
	for _, r := range h.Runs { // reports alone say to the moment when a run began and ended
		if r.Kind.Writes() {
			writers = append(writers, r)
		}
	}
	keys, groups := byKey(writers, func(r Run) string {
		if r.State != "" {
			return r.State
		}
		return r.Stack
	})
	for _, k := range keys {
		runs := groups[k]
		slices.SortFunc(runs, func(a, b Run) int { return a.Started.Compare(b.Started) })
		for i := 1; i < len(runs); i++ {
			if a, b := runs[i-1], runs[i]; !a.Done || b.Started.Before(a.Finished) {
				found = append(found, fmt.Sprintf("%s began at %s while %s ran until %s", b, clock(b.Started), a, clock(a.Finished)))
			}
		}
	}
	return found
}

// locksAreGivenBack: between two holders a lock was free.
func locksAreGivenBack(h History) (found []string) {
	keys, groups := byKey(h.Locks, func(l Lock) string { return l.Name })
	for _, k := range keys {
		for i := 1; i < len(groups[k]); i++ {
			a, b := groups[k][i-1], groups[k][i]
			if a.Holder != "" && b.Holder != "" && a.Holder != b.Holder && h.whole(a.At, b.At) {
				found = append(found, fmt.Sprintf("the lock of %s went from %s to %s at %s", k, a.Holder, b.Holder, clock(b.At)))
			}
		}
	}
	return found
}

// serialsGrow: each version that Terrier writes follows the one before. A version
// that another program wrote in between counts as the one before.
func serialsGrow(h History) (found []string) {
	keys, groups := byKey(h.States, func(s State) string { return s.Name })
	for _, k := range keys {
		for i := 1; i < len(groups[k]); i++ {
			a, b := groups[k][i-1], groups[k][i]
			switch {
			case !b.Ours || a.Gone || b.Gone || a.Lineage == "":
			case a.Lineage != b.Lineage:
				found = append(found, fmt.Sprintf("%s changed its lineage from %s to %s at %s", k, a.Lineage, b.Lineage, clock(b.At)))
			case b.Serial < a.Serial:
				found = append(found, fmt.Sprintf("%s went from serial %d back to %d at %s", k, a.Serial, b.Serial, clock(b.At)))
			}
		}
	}
	return found
}

// appliesWerePending: the plan of every apply stood in the status before, as far
// as the status was watched all the time.
func appliesWerePending(h History) (found []string) {
	_, versions := h.versions()
	for _, r := range h.Runs {
		if !r.Kind.Applies() || r.Cause.Plan == nil || len(versions[r.Stack]) == 0 {
			continue
		}
		shown := slices.ContainsFunc(versions[r.Stack], func(s Stack) bool {
			return s.Status.Pending != nil && s.Status.Pending.Digest == r.Cause.Plan.Digest
		})
		if !shown && h.whole(time.Time{}, r.Finished) {
			found = append(found, fmt.Sprintf("%s applied %s, which was never pending", r, r.Cause.Plan.Digest))
		}
	}
	return found
}

// auto is the value of spec.approvePlan of a stack that needs no approval.
const auto = "auto"

// appliesWereApproved: where a plan needs an approval, it was approved by its name
// or its digest before it was applied.
func appliesWereApproved(h History) (found []string) {
	_, versions := h.versions()
	for _, r := range h.Runs {
		if r.Kind != stack.ApplyRun || r.Cause.Plan == nil || len(versions[r.Stack]) == 0 {
			continue
		}
		approved := slices.ContainsFunc(versions[r.Stack], func(s Stack) bool {
			v := s.Status.Review
			return s.Forced || s.Approve == auto || r.Cause.Plan.Is(s.Approve) || v != nil && v.Allowed && v.Plan == r.Cause.Plan.Digest
		})
		if !approved && h.whole(time.Time{}, r.Finished) {
			found = append(found, fmt.Sprintf("%s applied %s, which was not approved", r, r.Cause.Plan.Name))
		}
	}
	return found
}

// writersHaveCauses: an apply is of a plan, a destroy is of a deletion, and both
// say why.
func writersHaveCauses(h History) (found []string) {
	for _, r := range h.Runs {
		switch {
		case !r.Kind.Writes():
		case r.Cause.Why == "":
			found = append(found, fmt.Sprintf("%s does not say why", r))
		case r.Kind == stack.ApplyRun && (r.Cause.Plan == nil || r.Cause.Plan.Digest == ""):
			found = append(found, fmt.Sprintf("%s applied no plan", r))
		case r.Kind == stack.DestroyRun && !r.Cause.Destroy:
			found = append(found, fmt.Sprintf("%s destroyed and was not to", r))
		}
	}
	return found
}

// runsEnd: no run is without an outcome once everything has settled.
func runsEnd(h History) (found []string) {
	if !h.Rest {
		return nil
	}
	for _, r := range h.Runs {
		if !r.Done || r.Outcome == "" {
			found = append(found, fmt.Sprintf("%s, begun at %s, has no outcome", r, clock(r.Started)))
		}
	}
	_, versions := h.versions()
	for _, of := range versions {
		if s := of[len(of)-1]; !s.Gone && s.Run != nil {
			found = append(found, fmt.Sprintf("the stack %s still shows the run %s", s.Name, s.Run.ID))
		}
	}
	return found
}

// margin is how far the clock of a status, which counts seconds, may be off.
const margin = 2 * time.Second

// deletesHaveCauses: what was deleted was deleted during a run that was to
// delete something.
func deletesHaveCauses(h History) (found []string) {
	runs := h.runs()
	for _, c := range h.World {
		if c.Call != "delete" {
			continue
		}
		caused := slices.ContainsFunc(runs, func(r Run) bool {
			return r.removes() && !c.Begun.Before(r.Started.Add(-margin)) && (!r.Done && r.Finished.IsZero() || !c.Begun.After(r.Finished.Add(margin)))
		})
		if !caused {
			found = append(found, fmt.Sprintf("%s was deleted at %s, and no run was to delete anything", c.Name, clock(c.Begun)))
		}
	}
	return found
}

// removes reports whether a run was to destroy something. A change may replace.
func (r Run) removes() bool {
	if !r.Kind.Writes() {
		return false
	}
	if r.Kind == stack.ScriptRun && r.Cause.Plan == nil {
		return true // what it may delete is in the script
	}
	return r.Kind == stack.DestroyRun || r.Cause.Destroy || r.Cause.Plan != nil && (r.Cause.Plan.Destroy || r.Cause.Plan.Changes.Destroy > 0)
}

// awaited are the situations that end by an event or a person, not by a check at a
// time: the message of each names what is missing.
var awaited = []stack.Reason{
	stack.AwaitingApproval, stack.PlanRejected, stack.RunCancelled, stack.PlanOnlyHeld, stack.DriftFound, stack.StateIncomplete, stack.RetryLimitReached, stack.SpecInvalid,
	stack.SourceNotReady, stack.SourceDenied, stack.ModuleInvalid, stack.InputsFailed, stack.DependencyNotReady, stack.PrerequisiteMissing, stack.StepsFailed, stack.StepsHeld, stack.RolledBack, stack.DeletionBlocked,
	stack.Suspended, stack.NotConverging, stack.StateTampered, stack.StateRegressed, stack.StateMissing, stack.StateShared, stack.StateNotAdopted,
	stack.ReviewRefused, stack.ApplyWithheld, stack.LockedByOther, stack.StartFailed,
}

// patience is how long a situation that passes by itself may last without a run.
const patience = time.Minute

// waitsAreBounded: a stack that is not settled has a run, a next check, or names
// what it waits for.
func waitsAreBounded(h History) (found []string) {
	keys, versions := h.versions()
	for _, k := range keys {
		of := versions[k]
		for i, s := range of {
			until := h.End
			last := i == len(of)-1
			if !last {
				until = of[i+1].At
			}
			if s.Gone || s.Ready || s.Run != nil || s.Phase == "" || until.Sub(s.At) < patience && !(last && h.Rest) {
				continue
			}
			if s.Phase == stack.Queued && h.busy(until) {
				continue // its turn comes when a run of another ends
			}
			if text := s.unbounded(h.End); text != "" {
				found = append(found, fmt.Sprintf("the stack %s, %s since %s, %s", s.Name, s.Phase, clock(s.Since), text))
			}
		}
	}
	return found
}

// busy reports whether a run was running at a moment, or had only just ended.
func (h History) busy(at time.Time) bool {
	return slices.ContainsFunc(h.Runs, func(r Run) bool {
		return r.Started.Before(at) && (!r.Done || r.Finished.After(at.Add(-patience)))
	})
}

// unbounded says why nothing would ever end the situation of a stack.
func (s Stack) unbounded(end time.Time) string {
	session := s.Status.BreakGlass
	switch {
	case s.Phase == stack.BreakGlassSession && session != nil: // the controller ends it at the time that the status names
		if session.Until.Before(end.Add(-patience)) {
			return "has a break-glass session that was to end at " + clock(session.Until)
		}
		return ""
	case !s.Next.IsZero() && s.Next.Before(end.Add(-patience)):
		return "was to be looked at again at " + clock(s.Next)
	case !s.Next.IsZero() || s.Every > 0 || s.Phase.Settled():
		return ""
	case !slices.Contains(awaited, s.Phase):
		return "has no run and no next look"
	case s.Waiting == "":
		return "waits and does not say for what"
	default:
		return ""
	}
}

// goodbyesAreClean: when the finalizer was removed from a stack that destroys its
// resources, its state was empty.
func goodbyesAreClean(h History) (found []string) {
	keys, versions := h.versions()
	for _, k := range keys {
		of := versions[k]
		s := of[len(of)-1]
		if !s.Gone || !s.Destroys || len(of) < 2 || !of[len(of)-2].Deleting {
			continue
		}
		name := "tfstate-default-" + s.Name
		if i := lastBefore(h.States, name, s); i >= 0 && !h.States[i].Gone && h.States[i].Resources > 0 {
			found = append(found, fmt.Sprintf("the stack %s went at %s, and its state held %d resources", s.Name, clock(s.At), h.States[i].Resources))
		}
	}
	return found
}

// lastBefore is the index of the last version of a state before a stack went, -1 if
// there is none. Where a stack's end was missed, it is not known when that was: then it is
// the last version, unless that was seen later than the end.
func lastBefore(states []State, name string, gone Stack) int {
	found := -1
	for i, s := range states {
		if s.Name == name && (gone.Version == 0 || s.Version < gone.Version) {
			found = i
		}
	}
	if found >= 0 && gone.Version == 0 && states[found].At.After(gone.At) {
		return -1
	}
	return found
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }
