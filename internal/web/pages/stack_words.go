package pages

import (
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// inBrowser is a situation with what can be done said for those who have the
// page before them, and not a command line.
func inBrowser(r stack.Reason, s query.Situation) query.Situation {
	if do, ok := doHere[r]; ok {
		s.Do = do
	}
	return s
}

// doHere has an entry for each reason whose advice names a command; a test sees
// to it.
var doHere = map[stack.Reason]string{
	stack.Suspended:          "Resume it, or set suspend to false.",
	stack.SourceNotReady:     "See under Sources why it cannot be fetched; the link is beside this. As soon as it has an artifact, the stack goes on by itself.",
	stack.DependencyNotReady: "See why on the page of the stack that the message names. This one goes on by itself when that is ready.",
	stack.NotConverging:      "Correct the module so that a plan after an apply is empty, or find the other writer; then plan it.",
	stack.StateTampered:      "Compare the versions under States and take the last good one. To agree to what is there: terrier state accept.",
	stack.StateWentBack:      "Take the newest version under States. To agree to what is there: terrier state accept.",
	stack.GlassBroken:        "Run commands and end the session under Work by hand. It ends by itself, too.",
	stack.LockedByOther:      "If its holder is alive, wait: it is tried again by itself. If it is dead, unlock it.",
	stack.RetryLater:         "Correct the cause; the log of the run has the whole story. It is tried again by itself, or at once with Plan now.",
	stack.RetryLimitReached:  "Correct the cause, then plan it now, or change the object or its source.",
	stack.StateIncomplete:    "Bring it in with Repair. Or remove it by hand, and annotate the stack with terrier.dev/ignore-untracked and the name of the run.",
	stack.AwaitingApproval:   "Look at the plan, then approve or reject it. Should anything change that it was made from, a new one takes its place and this approval is void.",
	stack.PlanOnlyHeld:       "Look at the plan. Set planOnly to false to let it be approved.",
	stack.DriftFound:         "Look at what differs. Approve the plan to mend it, or change the module to agree with the world.",
	stack.ReviewRefused:      "Look at the plan, and at the message for what the webhook said. Correct the module, or the webhook.",
	stack.EngineMissing:      "Have an engine installed beside the terrier program or on PATH, or named with --engine where the server is started.",
}
