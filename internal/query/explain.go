package query

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/terrier-iac/terrier/internal/stack"
)

// Situation says what a stack.Reason means to whoever meets it.
type Situation struct {
	Means string `json:"means,omitempty"`
	Do    string `json:"do,omitempty"` // what a person can do; empty if nobody is needed
}

// situations has an entry for every reason that there is; a test sees to it.
var situations = map[stack.Reason]Situation{
	stack.Queued:      {"A run is due and waits for its turn, or for memory; the message says for which.", "Nothing, unless it takes too long: see who is at work and raise --max-runs, --max-runs-per-tenant or --memory-for-runs."},
	stack.Planning:    {"A plan is being made.", ""},
	stack.Checking:    {"The world is compared with what was applied.", ""},
	stack.Applying:    {"A plan is being applied.", ""},
	stack.Destroying:  {"Everything that the stack built is being taken down.", ""},
	stack.Cancelling:  {"A plan that nobody needs any more is being stopped.", ""},
	stack.Deleting:    {"The object goes away. Nothing is left to take down, or nobody asked for it to be.", ""},
	stack.Unlocking:   {"A lock on the state is being broken, as the object allows.", ""},
	stack.Publishing:  {"Outputs are being written to their Secret.", ""},
	stack.Suspended:   {"The stack is left alone: nothing is planned, applied or looked at.", "Resume it with terrier resume, or set suspend to false."},
	stack.SpecInvalid: {"The object asks for something that cannot be done; the message names the field.", "Edit the object. Nothing is tried again before that."},
	stack.SourceNotReady: {
		"The source does not exist, or has fetched nothing yet.",
		"See what the source says of itself: kubectl describe the object that sourceRef names. As soon as it has an artifact, the stack goes on by itself.",
	},
	stack.SourceDenied: {"The source may not be used from this namespace.", "Move the source into the namespace of the stack, or ask the operator of the platform to allow references to others."},
	stack.SourceFailed: {"The artifact of the source could not be fetched, or is not what its digest says.", "See the message. It is tried again by itself."},
	stack.InputsFailed: {"A variable cannot be read: a Secret, a ConfigMap or a key of it is missing, or its value does not fit.", "Create or correct what the message names. The stack goes on by itself when it is there."},
	stack.ModuleInvalid: {
		"The module cannot be made into a directory to run in: its path does not exist, or a file in it would take over what the platform decides.",
		"Correct the module, or path.",
	},
	stack.EngineMissing: {"No engine (tofu or terraform) fits what the stack asks for.", "Install one beside the terrier program or on PATH, or name it with --engine where the server is started."},
	stack.StateFailed:   {"The state, or where it is kept, cannot be read or written.", "See the message. What was built is known nowhere else, so that nothing is guessed."},
	stack.OutputsFailed: {"The outputs could not be written to their Secret.", "See the message: an output that does not exist, or a Secret that belongs to somebody else."},
	stack.StartFailed:   {"A run could not be started.", "See the message; this is the platform's to mend. It is tried again by itself."},
	stack.DependencyNotReady: {
		"A stack in dependsOn is not ready.",
		"See why with terrier explain for the stack that the message names. This one goes on by itself when that is ready.",
	},
	stack.DeletionBlocked: {"The stack is being deleted while others still depend on it.", "Delete those that the message names first, or take this one out of their dependsOn."},
	stack.SourceDebounced: {"The source changes faster than it can be planned.", ""},
	stack.NotConverging: {
		"The same changes come back after each apply: the module never agrees with the world, or somebody else changes it back.",
		"Correct the module so that a plan after an apply is empty, or find the other writer; then terrier replan.",
	},
	stack.StateTampered: {
		"The stored state is not what was written last: it was changed by hand, damaged or removed. Nothing is run on it.",
		"Compare with terrier state versions and terrier state pull. Take the last good one with terrier state rollback, or agree to what is there with terrier state accept.",
	},
	stack.StateRegressed: {
		"The stored state is older than one that was seen before, or another one altogether: a backup was restored over it, or a backend answers with old data.",
		"Take the newest with terrier state rollback, or agree to what is there with terrier state accept.",
	},
	stack.StateShared: {
		"Another stack keeps its state in the same place. Two stacks on one state destroy each other's things by turns.",
		"Give one of the two another backendConfig.secretSuffix, workspace or backend key.",
	},
	stack.StateNotAdopted: {
		"A former stack of this name left a state that holds resources. It is not taken over by accident.",
		"To continue it, annotate the stack with terrier.dev/adopt-state=true. To begin anew, give the stack another backendConfig.secretSuffix.",
	},
	stack.Reviewing:      {"The webhooks of the stack are asked about the plan.", ""},
	stack.ReviewRefused:  {"A webhook did not let the plan pass, or could not be asked.", "See the plan with terrier plan, and the message for what the webhook said. Correct the module, or the webhook."},
	stack.Previewing:     {"What a destroy would take down is being planned.", ""},
	stack.CheckingHealth: {"What was applied is asked whether it works.", ""},
	stack.BreakGlassSession: {
		"A person works on the stack by hand: nothing is planned, applied or looked at by itself until the session ends.",
		"Run commands with terrier break-glass, and end the session with terrier break-glass --end. It ends by itself, too.",
	},
	stack.StatusUnreadable: {
		"The controller cannot read what it keeps in status.terrier of the object. It does nothing before it can.",
		"Restore status.terrier from a backup. Or remove it: the controller then takes the stack over again from the rest of its status.",
	},
	stack.LockedByOther: {
		"Somebody else holds the lock on the state: another program, or one that died with it.",
		"If its holder is alive, wait: it is tried again by itself. If it is dead, break the lock with terrier force-unlock.",
	},
	stack.RetryLater:        {"The last attempt failed; the message says how.", "Correct the cause; terrier logs has the whole story. It is tried again by itself, or at once with terrier replan."},
	stack.RetryLimitReached: {"As many attempts failed as remediation.retries allows.", "Correct the cause, then ask for another attempt with terrier replan, or change the object or its source."},
	stack.StateIncomplete: {
		"An apply was cut short, and something that it built, or may have built, is not in the state.",
		"Bring it in with terrier repair. Or remove it by hand, and annotate the stack with terrier.dev/ignore-untracked and the name of the run.",
	},
	stack.AwaitingApproval: {
		"A plan would change something, and somebody has to agree to exactly that plan.",
		"See it with terrier plan; then terrier approve or terrier reject. Should anything change that the plan was made from, a new one takes its place and this approval is void.",
	},
	stack.PlanOnlyHeld:   {"A plan would change something; planOnly says that it is never applied.", "See it with terrier plan. Set planOnly to false to let it be approved."},
	stack.DriftFound:     {"The world is not what was applied, and nobody asked for it to be mended.", "See the difference with terrier plan. Approve the plan to mend it, or change the module to agree with the world."},
	stack.Applied:        {"The plan was applied; there is nothing to do.", ""},
	stack.Unchanged:      {"A plan found nothing to change.", ""},
	stack.NoDrift:        {"A look at the world found it as it was applied.", ""},
	stack.OutputsWritten: {"The plan was applied and its outputs are in their Secret; there is nothing to do.", ""},
	stack.Destroyed:      {"Everything that the stack built was taken down, as destroy says.", "Delete the object, or set destroy to false to build it again."},
	stack.NothingLeft:    {"There is nothing to take down.", "Delete the object, or set destroy to false."},
}

// unseen is the situation of an object that has no reason yet.
var unseen = Situation{
	"Terrier has not looked at the stack yet.",
	"Wait a moment. If it stays like this, see that terrier up, or the controller of the cluster, runs and looks after this namespace.",
}

// Explained returns what r means; the zero Situation if it is no reason of ours.
func Explained(r stack.Reason) Situation {
	if r == "" {
		return unseen
	}
	return situations[r]
}

// Explanation is why a stack stands as it does.
type Explanation struct {
	Stack    Stack         `json:"stack"`
	Means    Situation     `json:"means"`
	Failures int           `json:"failures,omitempty"`
	Facts    []string      `json:"facts,omitempty"` // what else was looked at
	Rules    []RuleVerdict `json:"rules"`
	Story    []Step        `json:"story,omitempty"` // what would come next, for a manifest
}

// RuleVerdict is what became of one rule.
type RuleVerdict struct {
	Rule  string `json:"rule"`
	Does  string `json:"does"`
	Fires bool   `json:"fires,omitempty"`
	Tried bool   `json:"tried,omitempty"` // it was looked at, and did not apply
}

// Explain says why a stack stands as it does.
func (s *Stacks) Explain(ctx context.Context, key Key) (Explanation, error) {
	o, err := s.Read(ctx, key)
	if err != nil {
		return Explanation{}, err
	}
	st := View(o)
	return Explanation{Stack: st, Means: Explained(stack.Reason(st.Phase)), Facts: facts(st, Decode(o).Status), Rules: verdicts(st.Rule)}, nil
}

// verdicts lists the rules in their order, with what became of each.
func verdicts(fired string) []RuleVerdict {
	var out []RuleVerdict
	reached := false
	for _, r := range rules {
		v := RuleVerdict{Rule: r.Rule, Does: r.Does, Fires: r.Rule == fired}
		reached = reached || v.Fires
		v.Tried = fired != "" && !reached
		out = append(out, v)
	}
	return out
}

// facts are what a person would ask next.
func facts(s Stack, m stack.Status) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if p := s.Plan; p != nil {
		does := "waits"
		if s.Phase == string(stack.Applying) {
			does = "is applied"
		}
		add("the plan %s %s: %s", p.Name, does, p.Changes)
	}
	if m.Note != "" {
		add("%s", m.Note)
	}
	if p := s.Applied; p != nil {
		add("applied last: %s at %s", p.Name, m.AppliedAt.UTC().Format(time.RFC3339))
	}
	if s.Drift != nil {
		add("drift since %s: %s", s.Drift.At.UTC().Format(time.RFC3339), s.Drift.Changes)
	}
	if m.Failures > 0 {
		add("%s failed, the last time at %s in the step %s", Count(m.Failures, "attempt"), m.FailedAt.UTC().Format(time.RFC3339), cmp.Or(m.FailedStep, string(m.FailedKind), "start"))
	}
	if g := m.Untracked; g != nil {
		add("the run %s was cut short, and %d objects that it built may be in no state", g.Run, len(g.Objects))
	}
	if l := s.Lock; l != nil {
		add("the state is locked by %q since %q, lock %s", l.Who, l.Since, l.ID)
	}
	if c := m.Circle; c != nil && c.Applies > 1 {
		add("the same changes were applied %s in a row, among them %s", Count(c.Applies, "time"), c.Example)
	}
	if r := m.Review; r != nil && r.Held {
		add("a reviewer holds the plan until it is approved, since %s: %s", r.At.UTC().Format(time.RFC3339), r.Message)
	} else if r != nil && !r.Passed {
		add("the webhooks did not let the plan pass at %s", r.At.UTC().Format(time.RFC3339))
	}
	if g := m.BreakGlass; g != nil && s.Phase == string(stack.BreakGlassSession) {
		add("the session ends by itself at %s", g.Until.UTC().Format(time.RFC3339))
	}
	if h := m.LastCommand; h != nil {
		add("run last by hand: %s (%s), by %s at %s", h.Command, h.Outcome, cmp.Or(h.By, "somebody"), h.At.UTC().Format(time.RFC3339))
	}
	if s.Suspended {
		add("suspend is true")
	}
	if s.Deleting {
		add("the object is being deleted")
	}
	return out
}
