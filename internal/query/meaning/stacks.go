// Package meaning has the words for what Terrier shows as a name: what each reason of a stack, a
// tenant, a row or a registry means to a user, and what to do; and what each rule that decides
// about a stack does, and why. It knows no object, only texts.
//
// Start reading at Of, Rules and OfTenant.
package meaning

import "github.com/terrier-iac/terrier/internal/stack"

// Situation says what a stack.Reason means to a user. Where it names a field, it does so in
// the words of the kind of the stack.
type Situation struct {
	Means string `json:"means,omitempty"`
	Do    string `json:"do,omitempty"` // the next step of a user; empty if there is none
}

// situations has an entry for every reason; a test checks that.
var situations = map[stack.Reason]Situation{
	stack.Queued:      {"A run is due and waits for a slot, for memory, for room in the ResourceQuota of its namespace or on a node, for the image of its pod, or for prerequisites that are asked once more when its turn has come; the message says which.", "Nothing, unless it takes too long: view the running runs, and raise --max-runs, --max-runs-per-tenant, --max-runs-per-class, --memory-for-runs or the quota. For an image, see that its registry answers; terrier replan then tries again at once."},
	stack.Planning:    {"Terrier is planning.", ""},
	stack.Checking:    {"Terrier is checking for drift.", ""},
	stack.Applying:    {"Terrier is applying a plan.", ""},
	stack.Destroying:  {"Terrier is destroying the resources of the stack.", ""},
	stack.Cancelling:  {"Terrier is cancelling a run: one that is not needed any more, or that a user cancelled. The message says how long its engine may take to end.", ""},
	stack.Deleting:    {"The object is being deleted. There are no resources to destroy, or they are to be retained. Resources that runs forgot (destroy = false) stay as well.", ""},
	stack.Unlocking:   {"Terrier is breaking a lock on the state, as the object allows.", ""},
	stack.Publishing:  {"Terrier is writing outputs to their Secret.", ""},
	stack.Suspended:   {"The stack is suspended: Terrier plans, applies and checks nothing.", "Resume it with terrier resume, or {resume}."},
	stack.SpecInvalid: {"The spec of the object is invalid; the message names the field.", "Edit the object. Terrier retries nothing before that."},
	stack.SourceNotReady: {
		"The source does not exist, or has no artifact yet.",
		"See the status of the source: {source}. Terrier continues when it has an artifact.",
	},
	stack.SourceDenied: {"A stack of this namespace may not refer to the source or the dependency.", "Have the owner of the other namespace create a ReferenceGrant there: see References to other namespaces in docs/rbac.md."},
	stack.SourceFailed: {
		"Terrier could not use the source: it could not write or fetch it, its digest does not match, or the image of its code could not be built, pushed or read back. The message says which.",
		"Correct the cause that the message names, such as an address, a Secret or a registry that does not answer. Terrier retries it.",
	},
	stack.InputsFailed: {"Terrier cannot read a variable: a Secret, a ConfigMap or one of its keys is missing, or its value does not fit.", "Create or correct the object that the message names. Terrier then continues."},
	stack.ModuleInvalid: {
		"The module cannot be used: its path does not exist, a file in it would override a setting of the platform, or the engine refuses its configuration or its variables.",
		"Correct the module, its inputs or path. Terrier retries nothing before that.",
	},
	stack.EngineMissing: {"No installed engine (tofu or terraform) matches the stack.", "Install one beside the terrier program or on PATH, or start the server with --engine."},
	stack.StateFailed:   {"Terrier cannot read or write the state, or cannot read the run of the stack.", "See the message. Only the state and the run know the resources, so Terrier does nothing without them."},
	stack.OutputsFailed: {"Terrier could not write the outputs to their Secret.", "See the message: an output does not exist, or the Secret has another owner."},
	stack.StartFailed:   {"Terrier could not start a run.", "This is an error of the platform: give the message to its operator. Terrier retries it."},
	stack.DependencyNotReady: {
		"A stack in dependsOn is not ready.",
		"Run terrier explain for the stack that the message names. Terrier continues when that stack is ready.",
	},
	stack.RunningSteps: {"The plan was applied, and Terrier is running the steps that follow it. Each has a condition of its own.", ""},
	stack.StepsFailed: {
		"The plan was applied, and a step after it failed. The message has its last lines. Drift checks go on.",
		"Correct the step, its files or its hosts; terrier logs shows the log. To run the steps again: terrier steps rerun STACK.",
	},
	stack.RolledBack: {
		"What the object asks for failed its health checks, or a user did not want it. An earlier apply was applied again and stays until something else is asked for. The message says which and why.",
		"Correct the module, its inputs or the spec: Terrier then plans again. To try what was rolled back once more: terrier rollback STACK --end.",
	},
	stack.StepsHeld: {
		"The steps after the apply, or files that they use, or the source that they can read, changed since the plan was made that was applied last. Terrier does not run what no user approved, and no policy has let pass.",
		"Review the annotation terrier.dev/after-apply and the files that it names. To run them: terrier steps rerun STACK. Where a policy says who approves, each of these users runs this command.",
	},
	stack.PrerequisiteMissing: {
		"A prerequisite of the stack is not there. The message says which; each has a condition of its own.",
		"Have what the message names created. Terrier checks again by itself. To go on without it, remove it from the annotation terrier.dev/prerequisites.",
	},
	stack.DeletionBlocked: {"The stack is being deleted, and other stacks depend on it.", "Delete the stacks that the message names first, or remove this stack from their dependsOn."},
	stack.SourceDebounced: {"The source keeps changing. Terrier plans it when it has settled.", ""},
	stack.NotConverging: {
		"The same changes return after each apply: the module never matches the resources, or another program changes them back.",
		"Correct the module so that a plan after an apply is empty, or find the other program. Then run terrier replan.",
	},
	stack.StateTampered: {
		"The stored state is not the one that Terrier wrote last: it was changed manually, damaged or removed. Terrier starts no run on it.",
		"Compare with terrier state versions and terrier state pull. Roll back to the last good version with terrier state rollback, or accept the stored state with terrier state accept.",
	},
	stack.StateRegressed: {
		"The stored state is older than a version that Terrier has seen, or has another lineage: a backup was restored over it, or a backend returns old data.",
		"Roll back to the newest version with terrier state rollback, or accept the stored state with terrier state accept.",
	},
	stack.StateMissing: {
		"The place of the state does not have the last known state of the stack: its place was changed, or the place was emptied. A run would create every resource again, so Terrier starts no run that writes.",
		"Move or restore the state with the commands of the message, then run terrier replan. To continue with what is there on purpose, run terrier state accept with a reason.",
	},
	stack.StateShared: {
		"Another stack stores its state in the same place. Two stacks with one state destroy each other's resources.",
		"Give one of the two another {statePlace}.",
	},
	stack.StateNotAdopted: {
		"A deleted stack of this name left a state with resources. Terrier does not adopt it without an annotation. Or the stack was deleted before anything ran for it, and its state names no stack: Terrier destroys nothing.",
		"To adopt it, annotate the stack with terrier.dev/adopt-state=true. To begin without it, give the stack another {stateName}. Of a stack that is deleted: destroy the resources with terrier state accept STACK, or retain them with the annotation terrier.dev/deletion=retain.",
	},
	stack.Reviewing:     {"The policies or webhooks of the stack are asked about the plan.", ""},
	stack.ReviewRefused: {"A policy denies the plan, or a webhook refused it or did not answer.", "View the plan with terrier plan; the message names the policy, or has the answer of the webhook. Correct the module, or have the policy or the webhook corrected."},
	stack.ApplyWithheld: {
		"An apply or a destroy is due, and a policy lets it begin later: at a window, after a freeze, once the source is old enough, or once less was destroyed in the last hour. The message names the policy and the time.",
		"Wait. If it cannot wait, and the message says that users may have the plan applied now: terrier approve STACK PLAN --override-window. Otherwise have the owner of the policy change it.",
	},
	stack.Previewing:     {"Terrier is planning a destroy, only to show it.", ""},
	stack.CheckingHealth: {"Terrier is checking the health of the applied resources.", ""},
	stack.BreakGlassSession: {
		"A break-glass session is open: until it ends, Terrier plans, applies and checks nothing.",
		"Run commands with terrier break-glass STACK, and end the session with terrier break-glass STACK --end. It also ends after its maximum duration.",
	},
	stack.StatusUnreadable: {
		"The controller cannot read status.terrier of the object. It does nothing before it can.",
		"Restore status.terrier from a backup. Or remove it: the controller then adopts the stack again from the rest of its status. If the message names a record or a key, restore that, and keep status.terrier.",
	},
	stack.LockedByOther: {
		"Another program holds the lock on the state, or ended without freeing it.",
		"If the program is running, wait: Terrier retries. If it has ended, break the lock with terrier force-unlock STACK --lock-id ID. To show the ID, run terrier describe STACK.",
	},
	stack.RetryLater: {"The last attempt failed; the message says how.", "Correct the cause; terrier logs shows the log. Terrier retries after a pause, or at once with terrier replan."},
	stack.DestroyFailed: {
		"The object is being deleted, and the destroy of its resources failed; the message says how. The object stays until they are destroyed.",
		"Correct the module, the variables or the spec: Terrier then destroys from what you changed, at once. To keep the resources, annotate the stack with terrier.dev/deletion=retain. To take a resource out of the state, use terrier state pull and terrier state push. To try once more, run terrier replan.",
	},
	stack.NoDestroyScript: {
		"The object is being deleted, and the stack has no script that destroys its resources. The object stays until they are destroyed.",
		"Set spec.scripts.destroy: Terrier runs it at once. To keep the resources, annotate the stack with terrier.dev/deletion=retain.",
	},
	stack.RunCancelled: {
		"A user cancelled the last run. What an apply or a destroy had done by then is done, and is in the state.",
		"Read the log with terrier logs. To go on, run terrier replan. Terrier also goes on when the module or an input changes.",
	},
	stack.RetryLimitReached: {"As many attempts failed as the stack allows.", "Correct the cause. Then retry with terrier replan, or change the object or its source. The limit of retries is {retries}."},
	stack.StateIncomplete: {
		"An apply was interrupted, and resources that it created, or may have created, are not in the state.",
		"Import the resources with terrier repair. Or delete them manually, and annotate the stack with terrier.dev/ignore-untracked and the name of the run.",
	},
	stack.AwaitingApproval: {
		"A plan has changes, and needs an approval. If a policy holds it, the message names the policy and who approves.",
		"View it with terrier plan; then run terrier approve or terrier reject. If an input of the plan changes, a new plan replaces it and the approval is void.",
	},
	stack.PlanRejected: {
		"A user rejected the pending plan, so that Terrier does not apply it. The message says who, and why.",
		"Change the module or its inputs: Terrier then makes another plan. To apply the rejected plan nevertheless, run terrier approve.",
	},
	stack.PlanOnlyHeld: {"A plan has changes; with planOnly, Terrier does not apply it.", "View it with terrier plan. To allow an approval, set planOnly to false."},
	stack.DriftFound: {
		"Resources differ from what was applied. The stack does not remediate drift by itself, or a user accepted the drift until the time in the message.",
		"View the drift with terrier drift show. Approve the plan to remediate it, or change the configuration to match the resources with terrier drift accept.",
	},
	stack.Applied:        {"The plan was applied.", ""},
	stack.Unchanged:      {"A plan has no changes.", ""},
	stack.NoDrift:        {"The last drift check found no drift.", ""},
	stack.OutputsWritten: {"The plan was applied, and its outputs are in their Secret.", ""},
	stack.Destroyed:      {"The resources of the stack are destroyed, as destroy says.", "Delete the object, or set destroy to false to create them again."},
	stack.NothingLeft:    {"There are no resources to destroy.", "Delete the object, or set destroy to false."},
}

// unseen is the situation of an object without a reason.
var unseen = Situation{
	"Terrier has not reconciled the stack yet.",
	"Wait a moment. If this does not change, check that terrier up, or the controller of the cluster, runs and reconciles this namespace.",
}

// Of returns what a reason of a stack means, in the words of its kind; the zero Situation of an
// unknown one.
func Of(r stack.Reason, w stack.Words) Situation {
	s := situations[r]
	if r == "" {
		s = unseen
	}
	return Situation{w.In(s.Means), w.In(s.Do)}
}
