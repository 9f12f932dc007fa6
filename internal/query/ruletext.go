package query

import (
	"github.com/terrier-iac/terrier/internal/stack"
)

// RuleText says of one rule what it does and why it is there.
type RuleText struct {
	Rule    string
	Does    string         // what follows from it, as actionText says it
	Reasons []stack.Reason // under which it shows itself; nil is that of before
	Why     string
}

// Rules are the texts of all rules, in the order in which they are tried. A
// test compares them with what the rules do.
func Rules() []RuleText { return rules }

var rules = []RuleText{
	{
		"nothing is decided while the status cannot be read", "wait", []stack.Reason{stack.StatusUnreadable},
		"A status that is taken for empty would let go of what exists.",
	},
	{
		"a run that ended is taken over before anything else", "wait", []stack.Reason{stack.StateFailed, stack.StartFailed},
		"Its state is stored, its lock is freed and its records are kept first. Until then the run stays where it is.",
	},
	{
		"an action that was not possible is tried again after a pause", "wait", blockedBy,
		"The condition says what came in the way.",
	},
	{
		"a plan is cancelled when its stack is deleted", "stop the run", []stack.Reason{stack.Cancelling},
		"A plan or a look for drift changes nothing, so that nothing is lost when it is stopped. A run that writes is never stopped.",
	},
	{
		"a running drift check does not change the status", "wait", nil,
		"What is shown stays as it was: a quiet look writes nothing and wakes nobody.",
	},
	{
		"a running run is not interrupted", "wait", []stack.Reason{stack.Planning, stack.Checking, stack.Applying, stack.Destroying, stack.Previewing, stack.CheckingHealth, stack.BreakGlassSession, stack.RetryLater, stack.RetryLimitReached},
		"One run at a time holds a stack, whatever else is asked for meanwhile.",
	},
	{
		"a deleted stack waits for its dependents", "wait", []stack.Reason{stack.DeletionBlocked},
		"What others stand on goes last.",
	},
	{
		"a deleted stack with untracked resources is not released", "wait", []stack.Reason{stack.StateIncomplete},
		"An apply was cut short, and what it built is known from its journal alone: a destroy would not reach it.",
	},
	{
		"a deleted stack with nothing to destroy is released", "let the object go", []stack.Reason{stack.Deleting},
		"Nothing was built, or it is to be kept: destroyResourcesOnDeletion is not set, or terrier.dev/deletion is retain. What is kept is written down.",
	},
	{
		"a destroy breaks a state lock that may be broken", "destroy", []stack.Reason{stack.Unlocking},
		"tfstate.forceUnlock names this lock, or any.",
	},
	{
		"a failed destroy is retried after a pause", "wait", []stack.Reason{stack.RetryLater, stack.LockedByOther},
		"The finalizer stays until everything is down.",
	},
	{
		"a destroy that needs approval is planned first", "plan", []stack.Reason{stack.Planning},
		"terrier.dev/deletion is approve.",
	},
	{
		"a destroy that needs approval waits for it", "wait", []stack.Reason{stack.AwaitingApproval},
		"terrier.dev/deletion is approve, and approvePlan does not name this plan, and is not auto or a reviewer holds the plan.",
	},
	{
		"an approved destroy plan is applied", "apply", []stack.Reason{stack.Destroying},
		"approvePlan names exactly the plan that waits.",
	},
	{
		"a deleted stack destroys its resources", "destroy", []stack.Reason{stack.Destroying},
		"From the record of what was applied last: source, Secrets and variables may be gone.",
	},
	{
		"a suspended stack does nothing", "wait", []stack.Reason{stack.Suspended},
		"suspend is true.",
	},
	{
		"a break-glass command is run", "run the command", []stack.Reason{stack.BreakGlassSession},
		"Somebody asked, with terrier break-glass. It is one of a closed list, runs in the box of any run, and is recorded.",
	},
	{
		"a break-glass session suspends the stack", "wait", []stack.Reason{stack.BreakGlassSession},
		"breakTheGlass is set, or its annotation, and the platform allows it. The session ends by itself.",
	},
	{
		"nothing starts before its inputs can be read", "wait", blockedBy,
		"A plan is made from all of its inputs, or not at all.",
	},
	{
		"nothing starts before its dependencies are ready", "wait", []stack.Reason{stack.DependencyNotReady},
		"dependsOn names a stack that is not ready.",
	},
	{
		"untracked resources block the stack", "wait", []stack.Reason{stack.StateIncomplete},
		"An apply was cut short. To apply again would build a second time what exists already.",
	},
	{
		"a state lock that may be broken is broken", "plan", []stack.Reason{stack.Unlocking},
		"tfstate.forceUnlock names this lock, or any. No lock is broken twice.",
	},
	{
		"a stack stops after too many failures", "wait", []stack.Reason{stack.RetryLimitReached},
		"remediation.retries is used up for what would be tried again.",
	},
	{
		"a failure is retried after a pause", "wait", []stack.Reason{stack.RetryLater, stack.LockedByOther},
		"The pause is retryInterval, growing as retryStrategy says. A change of what failed ends it.",
	},
	{
		"a preview of a destroy is made on request", "preview", []stack.Reason{stack.Previewing},
		"Somebody asked, with terrier plan --destroy. Nothing else changes by it, whether it succeeds or not.",
	},
	{
		"a plan is made on request", "plan", []stack.Reason{stack.Planning},
		"Somebody asked, with terrier replan or the annotation reconcile.fluxcd.io/requestedAt.",
	},
	{
		"a drift-only stack is checked, never planned", "look for drift", []stack.Reason{stack.Checking},
		"approvePlan is disable.",
	},
	{
		"a plan waits for the answer of its webhooks", "wait", []stack.Reason{stack.Reviewing},
		"They are being asked, and their answer wakes the stack.",
	},
	{
		"the webhooks are asked before a plan is applied", "ask the webhooks", []stack.Reason{stack.Reviewing},
		"webhooks has one for plans. They are asked once about each plan.",
	},
	{
		"an unhealthy stack is checked for drift as well", "look for drift, or plan", ill,
		"interval is over. What is shown stays as it was; drift that is found is mended as ever, or shown beside the health.",
	},
	{
		"a stack that stays unhealthy stops after too many checks", "wait", []stack.Reason{stack.RetryLimitReached},
		"remediation.retries is used up for the health checks. Drift is looked for at each interval, and an apply has them made anew.",
	},
	{
		"an unhealthy stack waits before the next health check", "wait", []stack.Reason{stack.RetryLater},
		"The pause is retryInterval, growing as retryStrategy says.",
	},
	{
		"the health of an unhealthy stack is checked again", "check health", []stack.Reason{stack.RetryLater},
		"The pause is over. It stays as bad as it was until a look says something else.",
	},
	{
		"a plan that its webhooks did not pass is held", "wait", []stack.Reason{stack.ReviewRefused},
		"One that could not be asked is asked again after retryInterval, one that said no after interval.",
	},
	{
		"changes that come back after each apply stop the stack", "wait, or look for drift", []stack.Reason{stack.NotConverging},
		"The same addresses were changed by three applies in a row from the same inputs. A look that finds nothing ends it, and so does a person who names the plan.",
	},
	{
		"an approved plan is applied", "apply", []stack.Reason{stack.Applying},
		"approvePlan names exactly the pending plan, or is auto, or force is set, unless a reviewer holds the plan; and nothing that the plan was made from has changed.",
	},
	{
		"drift that is not to be remediated is shown", "wait, or look for drift", []stack.Reason{stack.DriftFound},
		"The plan that would mend it can be approved like any other.",
	},
	{
		"a plan-only stack stops at the plan", "wait", []stack.Reason{stack.PlanOnlyHeld},
		"planOnly is set.",
	},
	{
		"a plan waits for approval", "wait", []stack.Reason{stack.AwaitingApproval},
		"approvePlan does not name this plan, and is not auto or a reviewer holds the plan.",
	},
	{
		"a source that keeps changing is planned once it settles", "wait", []stack.Reason{stack.SourceDebounced},
		"A plan for another source was made less than ten seconds ago. A request does not wait.",
	},
	{
		"a change of source, inputs, spec or engine makes a new plan", "plan", []stack.Reason{stack.Planning},
		"The last plan was made from something else, or there is none.",
	},
	{
		"a failed attempt is retried", "plan", []stack.Reason{stack.Planning},
		"The pause after the failure is over.",
	},
	{
		"new outputs are published", "write outputs", []stack.Reason{stack.Publishing},
		"The state is newer than what was published, or what was published was changed or removed.",
	},
	{
		"health is checked after an apply", "check health", []stack.Reason{stack.CheckingHealth},
		"healthChecks has some, and they have not passed since the last apply.",
	},
	{
		"a destroyed stack is not checked for drift", "wait", atRest,
		"destroy is set and done.",
	},
	{
		"a stack without drift detection is planned at each interval", "plan", []stack.Reason{stack.Planning},
		"interval is over, and disableDriftDetection, destroy or force is set.",
	},
	{
		"drift is checked at each interval", "look for drift", atRest,
		"interval is over. What is shown stays as it was until something is found.",
	},
	{
		"a settled stack waits", "wait", atRest,
		"Nothing else applies.",
	},
}

var (
	ill    = []stack.Reason{stack.RetryLater, stack.RetryLimitReached}
	atRest = []stack.Reason{stack.Applied, stack.Unchanged, stack.NoDrift, stack.OutputsWritten, stack.Destroyed, stack.NothingLeft}

	blockedBy = []stack.Reason{
		stack.SpecInvalid, stack.SourceNotReady, stack.SourceDenied, stack.SourceFailed, stack.InputsFailed,
		stack.ModuleInvalid, stack.EngineMissing, stack.StateFailed, stack.OutputsFailed, stack.StartFailed,
		stack.StateTampered, stack.StateRegressed, stack.StateShared, stack.StateNotAdopted, stack.LockedByOther,
	}
)

// actionText puts an action into the words of RuleText.Does.
func actionText(a stack.Action) string {
	switch a := a.(type) {
	case stack.Wait:
		return "wait"
	case stack.Start:
		switch a.Kind {
		case stack.CheckRun:
			return "look for drift"
		case stack.HealthRun:
			return "check health"
		case stack.BreakGlassRun:
			return "run the command"
		}
		return string(a.Kind)
	case stack.Apply:
		return "apply"
	case stack.Destroy:
		return "destroy"
	case stack.Cancel:
		return "stop the run"
	case stack.Publish:
		return "write outputs"
	case stack.Review:
		return "ask the webhooks"
	case stack.Finish:
		return "let the object go"
	default:
		panic("service: an action without words") // the set is closed
	}
}
