package query

import (
	"slices"
	"time"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// meanwhile is what is decided as long as a run of one of the kinds goes on. A plan
// that destroys is applied as any other.
var meanwhile = map[stack.Reason][]stack.RunKind{
	stack.Planning: {stack.PlanRun}, stack.Checking: {stack.CheckRun}, stack.Applying: {stack.ApplyRun, stack.ScriptRun}, stack.Destroying: {stack.DestroyRun, stack.ApplyRun},
	stack.Previewing: {stack.PreviewRun}, stack.CheckingHealth: {stack.HealthRun}, stack.RunningSteps: {stack.StepsRun},
}

// withoutRuns leaves out the decisions that say no more than a run that is in the list:
// that it goes on, or that it failed and is tried again. Of each run it tells the
// rule that began it.
func withoutRuns(decided []Decided, runs []Report) (left []Decided, began map[string]string) {
	began = map[string]string{}
	var until time.Time // when the next one was made; zero if d still stands
	for _, d := range decided {
		said := false
		for _, r := range runs {
			switch {
			case slices.Contains(meanwhile[stack.Reason(d.Phase)], r.Kind) && overlap(d.At, until, r):
				said = true
				if _, known := began[r.ID]; !known && !d.At.After(r.Started) {
					began[r.ID] = d.Rule
				}
			case (d.Phase == string(stack.RetryLater) || d.Phase == string(stack.DestroyFailed)) && failedBefore(r, d.At):
				said = true
			}
		}
		until = d.At
		if !said {
			left = append(left, d)
		}
	}
	return left, began
}

// overlap reports whether a run went on at some time between from and until. What
// is decided is of the moment before the run begins.
func overlap(from, until time.Time, r Report) bool {
	ended := r.Phase == runner.Done && r.Finished.Before(from)
	return !ended && (until.IsZero() || r.Started.Before(until))
}

// failedBefore reports whether a run failed just before at.
func failedBefore(r Report, at time.Time) bool {
	return bad(r) && !r.Finished.After(at) && r.Finished.After(at.Add(-tells))
}

// bad reports whether a run ended as it should not.
func bad(r Report) bool {
	return r.Phase == runner.Done && r.Outcome != stack.Succeeded && r.Outcome != stack.Interrupted && r.Outcome != stack.Stale
}

// streaks makes one moment, the last, of runs that failed alike with nothing
// between them, and of drift checks that found the same. The newest come first.
func streaks(moments []Moment, runs []Report) []Moment {
	of := map[string]Report{}
	for _, r := range runs {
		of[r.ID] = r
	}
	var out []Moment
	for _, m := range moments {
		if n := before(out); m.Kind == MomentRun && n >= 0 && alike(of[m.Run], of[out[n].Run]) {
			last := &out[n]
			last.Count, last.First = max(last.Count, 1)+1, m.At
			out = out[:n+1]
			continue
		}
		out = append(out, m)
	}
	return out
}

// before is the place of the run that the next moment may be folded into; -1 if
// there is none. What only says that a drift check is due, or what it found, is no
// moment between two of them.
func before(out []Moment) int {
	for i := len(out) - 1; i >= 0; i-- {
		switch m := out[i]; {
		case m.Kind == MomentRun:
			return i
		case m.Kind != MomentDecision || !slices.Contains(aboutChecks, m.Title):
			return -1
		}
	}
	return -1
}

// aboutChecks are the titles of decisions that a drift check causes.
var aboutChecks = []string{
	words(string(stack.Checking)), words(string(stack.Queued)), words(string(stack.NoDrift)), words(string(stack.DriftFound)),
}

// alike reports whether two runs failed in the same way, or are drift checks that
// found the same.
func alike(a, b Report) bool {
	same := a.Kind == b.Kind && a.Outcome == b.Outcome && a.Phase == b.Phase
	if a.Kind == stack.CheckRun && a.Outcome == stack.Succeeded {
		return same && a.Changes == b.Changes && a.ChangesHash == b.ChangesHash
	}
	return same && bad(a) && bad(b) && a.Step == b.Step && a.Reason == b.Reason && a.Message == b.Message
}
