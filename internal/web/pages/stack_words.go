package pages

import (
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// inBrowser is a situation with a next step for a browser instead of the command
// line.
func inBrowser(r stack.Reason, s query.Situation) query.Situation {
	if do, ok := doHere[r]; ok {
		s.Do = do
	}
	return s
}

// doHere has an entry for each reason whose next step names a command; a test
// checks that.
var doHere = map[stack.Reason]string{
	stack.Suspended:          "Choose Resume, or set suspend to false.",
	stack.SourceNotReady:     "The link to the source shows why it cannot be fetched. The stack is reconciled as soon as the source has an artifact.",
	stack.DependencyNotReady: "Check the stack that the message names. This stack is reconciled as soon as that one is ready.",
	stack.NotConverging:      "Correct the module so that a plan after an apply is empty, or find the other writer. Then choose Plan now.",
	stack.StateTampered:      "Compare the versions under States and roll back to the last good one. To accept the stored state, choose Accept the stored state.",
	stack.StateRegressed:     "Roll back to the newest version under States. To accept the stored state, choose Accept the stored state.",
	stack.BreakGlassSession:  "Run commands and end the session under Break-glass session. The session also ends at its timeout.",
	stack.LockedByOther:      "If the holder of the lock still runs, wait: Terrier retries automatically. If it does not, choose Unlock.",
	stack.RetryLater:         "Correct the cause; see the log of the run. Terrier retries automatically. To retry now, choose Plan now.",
	stack.RetryLimitReached:  "Correct the cause. Then choose Plan now, or change the object or its source.",
	stack.StateIncomplete:    "To import the resources, choose Repair. If you removed them yourself, annotate the stack with terrier.dev/ignore-untracked and the name of the run.",
	stack.AwaitingApproval:   "Review the plan, then approve or reject it. If an input of the plan changes, a new plan replaces it and the approval becomes void.",
	stack.PlanOnlyHeld:       "Review the plan. To allow approvals, set planOnly to false.",
	stack.DriftFound:         "Review the drifted resources. Approve the plan to fix them, or change the module to match.",
	stack.ReviewRefused:      "Review the plan and the message of the webhook. Correct the module or the webhook.",
	stack.StatusUnreadable:   "Restore status.terrier from a backup, or remove it. If you remove it, the controller takes over the stack from the rest of its status.",
	stack.EngineMissing:      "Install an engine beside the terrier program or on PATH, or start the server with --engine.",
}
