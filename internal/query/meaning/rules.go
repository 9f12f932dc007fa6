package meaning

import "github.com/terrier-iac/terrier/internal/stack"

// Rule says of one rule what it does and why it is there.
type Rule struct {
	Rule    string
	Does    string         // what follows from it, as Action says it
	Reasons []stack.Reason // that it shows; nil if it keeps the one before
	Why     string
}

// Rules are the texts of all rules, in the order in which they are tried. Each names fields
// by marks, which stack.Words.In replaces. A test compares them with what the rules do.
func Rules() []Rule { return rules }

var rules = []Rule{
	{
		"nothing is decided while the status cannot be read", "wait", []stack.Reason{stack.StatusUnreadable},
		"Without its status, a stack would lose the resources that exist.",
	},
	{
		"a run that ended is taken over before anything else", "wait", []stack.Reason{stack.StateFailed, stack.StartFailed},
		"Terrier first stores its state and its records and frees its lock. Until then the run is kept. A run that Terrier cannot read may be running, and nothing begins before Terrier can read it.",
	},
	{
		"an action that was not possible is tried again after a pause", "wait", blockedBy,
		"The condition says why it was not possible.",
	},
	{
		"a plan is cancelled when its stack is deleted", "stop the run", []stack.Reason{stack.Cancelling},
		"A plan or a drift check changes nothing, so that cancelling it loses nothing. The plan of a destroy and a run that writes are cancelled only on request.",
	},
	{
		"a run is cancelled on request", "stop the run", []stack.Reason{stack.Cancelling},
		"A user requested it with terrier cancel or the annotation terrier.dev/cancel, which names the run. The engine is interrupted once, has a time of grace to end and to write the state, and is killed after that.",
	},
	{
		"a running drift check does not change the status", "wait", nil,
		"The status stays as it was: a drift check without a finding writes nothing to the API server.",
	},
	{
		"a running run is not interrupted", "wait", []stack.Reason{stack.Planning, stack.Checking, stack.Applying, stack.Destroying, stack.Previewing, stack.CheckingHealth, stack.BreakGlassSession, stack.RetryLater, stack.RetryLimitReached},
		"A stack has one run at a time.",
	},
	{
		"resources are changed only at times that policies allow", "wait", []stack.Reason{stack.ApplyWithheld},
		"A window, a freeze, the age of the source or the destroys of the last hour keep an apply or a destroy waiting. The message names the policy and until when. Plans are made meanwhile, and so are the drift checks of a stack without a pending plan.",
	},
	{
		"steps after an apply are run only at times that policies allow", "wait", []stack.Reason{stack.ApplyWithheld},
		"A window, a freeze or the age of the source keep them waiting as they do an apply. Drift checks go on.",
	},
	{
		"a deleted stack waits for its dependents", "wait", []stack.Reason{stack.DeletionBlocked},
		"Other stacks use its resources.",
	},
	{
		"a deleted stack with untracked resources is not released", "wait", []stack.Reason{stack.StateIncomplete},
		"An apply was interrupted, and only its log knows the resources that it created: a destroy would not find them.",
	},
	{
		"a deleted stack with nothing to destroy is released", "release the object", []stack.Reason{stack.Deleting},
		"There are no resources, or they are retained: the stack does not ask for a destroy, or terrier.dev/deletion is retain. A record lists retained resources, and resources that runs forgot (destroy = false).",
	},
	{
		"a cancelled destroy is not repeated by itself", "wait", []stack.Reason{stack.RunCancelled},
		"A user cancelled the destroy. A request, such as terrier replan, or a correction of what it is made from goes on.",
	},
	{
		"a deleted stack without a script that destroys it is not released", "wait", []stack.Reason{stack.NoDestroyScript},
		"The stack is applied by a script. Neither spec.scripts.destroy nor the last run has a script that destroys. Terrier goes on once it is set, or terrier.dev/deletion is retain.",
	},
	{
		"a destroy breaks a state lock that may be broken", "plan or destroy", []stack.Reason{stack.Unlocking},
		"A user allowed it for this lock, as with terrier force-unlock STACK --lock-id ID, or for any lock. A destroy that a user or a policy has a say in is planned first.",
	},
	{
		"a destroy that does not find the last known state is held", "wait", []stack.Reason{stack.StateMissing},
		"The destroy would find nothing and succeed, and the resources would stay without an owner. A request, such as terrier replan, looks for the state again.",
	},
	{
		"a failed destroy is retried after a pause", "wait", []stack.Reason{stack.DestroyFailed, stack.LockedByOther},
		"The finalizer stays until all resources are destroyed. Each request of a user, such as terrier replan, is one attempt before the pause is over.",
	},
	{
		"a destroy that needs approval is planned first", "plan", []stack.Reason{stack.Planning},
		"terrier.dev/deletion is approve, or a policy judges the stack. A request of a user plans the destroy again, and so does a change of what it is made from.",
	},
	{
		"a destroy plan waits for the answer of policies", "wait", []stack.Reason{stack.Reviewing},
		"Their answer starts the next reconcile.",
	},
	{
		"policies are asked before a deleted stack is destroyed", "have the plan reviewed", []stack.Reason{stack.Reviewing},
		"A policy judges the stack. Webhooks in spec.webhooks are not asked about the destroy of a deleted stack.",
	},
	{
		"a destroy plan that policies do not pass is not applied", "wait", []stack.Reason{stack.ReviewRefused},
		"A policy denies the plan. The object stays until the plan or the policy changes, or terrier.dev/deletion is retain.",
	},
	{
		"a rejected destroy plan is not applied", "wait", []stack.Reason{stack.PlanRejected},
		"A user rejected the plan of the destroy. The object stays until a destroy is approved, or terrier.dev/deletion is retain.",
	},
	{
		"a destroy that needs approval waits for it", "wait", []stack.Reason{stack.AwaitingApproval},
		"terrier.dev/deletion is approve or a policy holds the plan, and {approved} does not name this plan. A stack that applies every plan by itself needs this approval as well.",
	},
	{
		"a destroy plan that is too old is made again", "plan", []stack.Reason{stack.Planning},
		"It is older than the maxPlanAge of a policy. If the new plan is the same, its approval counts.",
	},
	{
		"an approved destroy plan is applied", "apply, or destroy by the script", []stack.Reason{stack.Destroying},
		"The approval ({approved}) names exactly the pending plan, or the policies passed it and terrier.dev/deletion is not approve.",
	},
	{
		"a deleted stack destroys its resources", "destroy", []stack.Reason{stack.Destroying},
		"It uses the record of the last apply: source, Secrets and variables may not exist any more. If it fails, and a user changes the source, the variables or the spec after the deletion began, it uses those; the backend stays as it was. A module that declares its own backend is used only from the record. Resources with destroy = false in the module are forgotten, and stay: a record lists them.",
	},
	{
		"a suspended stack does nothing", "wait", []stack.Reason{stack.Suspended},
		"The stack is suspended.",
	},
	{
		"a break-glass command is run", "run the command", []stack.Reason{stack.BreakGlassSession},
		"A user requested it with terrier break-glass. It is one of a closed list, runs in the sandbox of every run, and is in the audit log.",
	},
	{
		"a break-glass session suspends the stack", "wait", []stack.Reason{stack.BreakGlassSession},
		"A user opened it with terrier break-glass or on the object, and the platform allows it. The session has a maximum duration.",
	},
	{
		"nothing starts before its inputs can be read", "wait", blockedBy,
		"A plan needs all of its inputs.",
	},
	{
		"nothing starts before its dependencies are ready", "wait", []stack.Reason{stack.DependencyNotReady},
		"dependsOn names a stack that is not ready. An input that does not exist yet may be one that this stack will publish.",
	},
	{
		"nothing is planned or applied before its prerequisites are there", "wait", []stack.Reason{stack.PrerequisiteMissing},
		"The annotation terrier.dev/prerequisites names what has to be there. Drift checks and destroys go on without it.",
	},
	{
		"untracked resources block the stack", "wait", []stack.Reason{stack.StateIncomplete},
		"An apply was interrupted. Another apply would create resources that exist already.",
	},
	{
		"a change of the destroy script alone renews the record of the last apply", "renew the record for a destroy", settled,
		"A deletion runs the script of that record. The script that applies does not run: nothing about it changed.",
	},
	{
		"a preview of a destroy is made on request", "preview", []stack.Reason{stack.Previewing},
		"A user requested it with terrier plan STACK --destroy. It changes nothing else.",
	},
	{
		"a stack is rolled back on request", "roll back", []stack.Reason{stack.Planning},
		"A user requested it with terrier rollback, which names what the user wants to leave. What the last good apply was made from is planned in its place.",
	},
	{
		"what failed its health checks is rolled back", "roll back", []stack.Reason{stack.Planning},
		"terrier.dev/rollback-on is failed-health, the health checks of the last apply failed, and an earlier apply was healthy. It is planned and applied as any plan is, and needs an approval if it destroys something.",
	},
	{
		"a cancelled run is not repeated by itself", "wait", []stack.Reason{stack.RunCancelled},
		"A user cancelled the last run. A request, an approval, or a change of what a run is made from goes on; a check is made again after {interval}.",
	},
	{
		"a state lock that may be broken is broken", "plan, or run the script", []stack.Reason{stack.Unlocking},
		"A user allowed it for this lock, as with terrier force-unlock STACK --lock-id ID, or for any lock. No lock is broken twice; one that the engine could not break is tried again after the pause.",
	},
	{
		"a stack whose place has not the last known state is held", "wait", []stack.Reason{stack.StateMissing},
		"The run would create every resource a second time. A request, such as terrier replan, looks for the state again; terrier state accept continues with what is there.",
	},
	{
		"a stack stops after too many failures", "wait", []stack.Reason{stack.RetryLimitReached},
		"The limit of retries ({retries}) is used up.",
	},
	{
		"a failure that no retry repairs waits for a change", "wait", []stack.Reason{stack.ModuleInvalid},
		"The engine refused the configuration or its variables. A change of the source, the inputs or the spec starts a plan, and so does terrier replan.",
	},
	{
		"a failure is retried after a pause", "wait", []stack.Reason{stack.RetryLater, stack.LockedByOther},
		"{pause} A change of the failed source or spec ends it.",
	},
	{
		"a script that needs no plan is run on request", "run the script", []stack.Reason{stack.Applying},
		"A user requested it with terrier replan or the annotation reconcile.fluxcd.io/requestedAt. Each request is one attempt. A script needs a plan if terrier.dev/approval is manual, if a policy or a webhook judges its plans, or if it has untracked resources.",
	},
	{
		"a plan is made on request", "plan", []stack.Reason{stack.Planning},
		"A user requested it with terrier replan or the annotation reconcile.fluxcd.io/requestedAt. Each request is one attempt.",
	},
	{
		"a drift-only stack is checked, never planned", "check for drift", []stack.Reason{stack.Checking},
		"The stack asks for drift checks alone.",
	},
	{
		"a plan waits for the answer of policies and webhooks", "wait", []stack.Reason{stack.Reviewing},
		"Their answer starts the next reconcile.",
	},
	{
		"policies and webhooks are asked before a plan is applied", "have the plan reviewed", []stack.Reason{stack.Reviewing},
		"An enabled webhook in spec.webhooks or a policy judges the plans of the stack. Terrier asks again about the same plan after a refusal or an error, and when a policy changes.",
	},
	{
		"an unhealthy stack is checked for drift as well", "check for drift, or plan", unhealthy,
		"The check interval has passed. The status stays as it was; drift is remediated as usual, or shown beside the health.",
	},
	{
		"a stack that stays unhealthy stops after too many checks", "wait", []stack.Reason{stack.RetryLimitReached},
		"The limit of retries ({retries}) is used up for the health checks. Drift checks continue at each interval, and an apply starts the health checks again.",
	},
	{
		"an unhealthy stack waits before the next health check", "wait", []stack.Reason{stack.RetryLater},
		"{pause}",
	},
	{
		"the health of an unhealthy stack is checked again", "check health", []stack.Reason{stack.RetryLater},
		"The pause is over. The status stays until a check has another result.",
	},
	{
		"a plan that policies or webhooks did not pass is held", "wait", []stack.Reason{stack.ReviewRefused},
		"Terrier asks a webhook that did not answer again after the pause of a retry, and a policy or a webhook that refused after the check interval.",
	},
	{
		"drift that a user accepted waits for the change of the configuration", "wait, or check for drift", []stack.Reason{stack.DriftFound},
		"terrier.dev/accept-drift names the drift of the pending plan, and its time is not over. The plan is not approved by name.",
	},
	{
		"changes that come back after each apply stop the stack", "wait, or check for drift", []stack.Reason{stack.NotConverging},
		"Three applies in a row changed the same addresses from the same inputs. A check without a finding ends this, and so does an approval that names the plan.",
	},
	{
		"a plan that is too old is made again before it is applied", "plan", []stack.Reason{stack.Planning},
		"It is older than the maxPlanAge of a policy. If the new plan is the same, its approval counts.",
	},
	{
		"an approved plan is applied", "apply, or run the script", []stack.Reason{stack.Applying},
		"The approval ({approved}) names exactly the pending plan, or the stack applies every plan by itself, unless a policy holds the plan; or a policy allows it without an approval. No input of the plan has changed.",
	},
	{
		"a rejected plan waits for another plan", "wait, or check for drift", []stack.Reason{stack.PlanRejected},
		"A user rejected the plan with terrier reject or the annotation terrier.dev/rejected. A change of its inputs makes another plan; an approval of this one is still possible.",
	},
	{
		"drift that is not to be remediated is shown", "wait, or check for drift", []stack.Reason{stack.DriftFound},
		"The plan that would remediate it can be approved like any other.",
	},
	{
		"a plan-only stack stops at the plan", "wait", []stack.Reason{stack.PlanOnlyHeld},
		"planOnly is set.",
	},
	{
		"a plan waits for approval", "wait", []stack.Reason{stack.AwaitingApproval},
		"The approval ({approved}) does not name this plan, and the stack does not apply every plan by itself, or a policy holds the plan.",
	},
	{
		"a source that keeps changing is planned once it settles", "wait", []stack.Reason{stack.SourceDebounced},
		"Terrier planned another revision less than ten seconds ago. A request of a user does not wait.",
	},
	{
		"a change of source, inputs, spec or engine runs a script that needs no plan", "run the script", []stack.Reason{stack.Applying},
		"The script was run last with other inputs, or never, or it failed.",
	},
	{
		"a script that failed is run again", "run the script", []stack.Reason{stack.Applying},
		"The pause after the failure is over.",
	},
	{
		"a change of source, inputs, spec or engine makes a new plan", "plan", []stack.Reason{stack.Planning},
		"The last plan had other inputs, or there is none.",
	},
	{
		"a failed attempt is retried", "plan", []stack.Reason{stack.Planning},
		"The pause after the failure is over.",
	},
	{
		"new outputs are published", "write outputs", []stack.Reason{stack.Publishing},
		"The state is newer than the published outputs, or their Secret was changed or removed.",
	},
	{
		"the steps after an apply are run", "run the steps", []stack.Reason{stack.RunningSteps},
		"The annotation terrier.dev/after-apply names them. They are run again for other steps, other outputs, or an apply that changes resources.",
	},
	{
		"health is checked after an apply", "check health", []stack.Reason{stack.CheckingHealth},
		"healthChecks is set, and the checks have not passed since the last apply.",
	},
	{
		"a destroyed stack is not checked for drift", "wait", settled,
		"destroy is set and done.",
	},
	{
		"a script that repairs drift is run at each interval", "run the script", []stack.Reason{stack.Applying},
		"The check interval has passed, and terrier.dev/drift is not report.",
	},
	{
		"a stack without drift detection is planned at each interval", "plan", []stack.Reason{stack.Planning},
		"The check interval has passed, and disableDriftDetection, destroy or force is set.",
	},
	{
		"drift is checked at each interval", "check for drift", settled,
		"The check interval has passed. The status stays until a check finds drift.",
	},
	{
		"a settled stack waits", "wait", settled,
		"Nothing else applies.",
	},
}

var (
	unhealthy = []stack.Reason{stack.RetryLater, stack.RetryLimitReached}
	settled   = []stack.Reason{stack.Applied, stack.Unchanged, stack.NoDrift, stack.OutputsWritten, stack.Destroyed, stack.NothingLeft, stack.StepsFailed, stack.StepsHeld, stack.RolledBack}

	blockedBy = []stack.Reason{
		stack.SpecInvalid, stack.SourceNotReady, stack.SourceDenied, stack.SourceFailed, stack.InputsFailed,
		stack.ModuleInvalid, stack.EngineMissing, stack.StateFailed, stack.OutputsFailed, stack.StartFailed,
		stack.StateTampered, stack.StateRegressed, stack.StateMissing, stack.StateShared, stack.StateNotAdopted, stack.LockedByOther,
	}
)

// Action is an action in words, as Rule.Does has them.
func Action(a stack.Action) string {
	switch a := a.(type) {
	case stack.Wait:
		return "wait"
	case stack.Start:
		switch a.Kind {
		case stack.CheckRun:
			return "check for drift"
		case stack.HealthRun:
			return "check health"
		case stack.StepsRun:
			return "run the steps"
		case stack.BreakGlassRun:
			return "run the command"
		}
		return string(a.Kind)
	case stack.Apply:
		return "apply"
	case stack.RunScript:
		return "run the script"
	case stack.Destroy:
		return "destroy"
	case stack.Cancel:
		return "stop the run"
	case stack.RollBack:
		return "roll back"
	case stack.Renew:
		return "renew the record for a destroy"
	case stack.Publish:
		return "write outputs"
	case stack.Review:
		return "have the plan reviewed"
	case stack.Finish:
		return "release the object"
	default:
		panic("meaning: an action without a text") // the set is closed
	}
}
