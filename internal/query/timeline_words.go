package query

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// runNouns name the kinds of run at the beginning of a sentence.
var runNouns = map[stack.RunKind]string{
	stack.PlanRun: "Plan", stack.CheckRun: "Drift check", stack.ApplyRun: "Apply", stack.ScriptRun: "Script", stack.DestroyRun: "Destroy",
	stack.PreviewRun: "Preview of a destroy", stack.HealthRun: "Health check", stack.BreakGlassRun: "Break-glass command", stack.StepsRun: "Steps after the apply",
}

// runTitle says in a few words how a run went.
func runTitle(r Report) string {
	noun := cmp.Or(runNouns[r.Kind], words(string(r.Kind)))
	if r.Phase != runner.Done {
		return noun + " is running"
	}
	switch r.Outcome {
	case stack.Succeeded:
		return noun + ": " + runResult(r)
	case stack.Failed:
		if r.Step != "" && r.Step != string(r.Kind) {
			return fmt.Sprintf("%s failed in the step %s", noun, r.Step)
		}
		return noun + " failed"
	case stack.Stale:
		return noun + ": not applied, the state changed after the plan"
	case stack.Locked:
		return noun + ": another program holds the lock on the state"
	case stack.TimedOut:
		return noun + " exceeded its timeout and was cancelled"
	case stack.Interrupted:
		return noun + " was cancelled"
	case stack.Killed:
		return noun + " was killed"
	default:
		return noun + " ended: " + words(string(r.Outcome))
	}
}

// runResult is what a run that succeeded found or did.
func runResult(r Report) string {
	switch {
	case r.Kind == stack.HealthRun:
		return "healthy"
	case r.Kind == stack.BreakGlassRun, r.Kind == stack.StepsRun, r.Kind.Applies() && r.Changes.None(), r.Kind == stack.DestroyRun:
		return "done"
	case r.Kind == stack.CheckRun && r.Changes.None():
		return "no drift"
	case r.Changes.None():
		return "no changes"
	case r.Kind.Applies():
		return applied(r.Changes)
	default:
		return r.Changes.String()
	}
}

// applied is what was changed, without what was not.
func applied(c stack.Changes) string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{
		{c.Add, "added"}, {c.Change, "changed"}, {c.Destroy, "destroyed"}, {c.Import, "imported"}, {c.Forget, "forgotten"}, {c.Move, "moved"},
	} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	if len(parts) == 0 {
		return Count(c.Outputs, "output value") + " changed"
	}
	return strings.Join(parts, ", ")
}
