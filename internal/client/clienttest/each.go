package clienttest

import (
	"testing"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/query"
)

// eachOfStack asks and commands everything of one stack, and returns how each
// question and command ended.
func eachOfStack(t *testing.T, s Subject, key query.Key) map[string]error {
	t.Helper()
	ctx, out := t.Context(), map[string]error{}
	_, out["Get()"] = s.Stacks.Get(ctx, key)
	_, out["Describe()"] = s.Stacks.Describe(ctx, key)
	_, out["Explain()"] = s.Stacks.Explain(ctx, key)
	_, out["Runs()"] = s.Stacks.Runs(ctx, key)
	_, out["Run()"] = s.Stacks.Run(ctx, key, "plan-1")
	_, out["Log()"] = s.Stacks.Log(ctx, key, "plan-1", query.LogOptions{})
	_, out["Log(), following"] = s.Stacks.Log(ctx, key, "plan-1", query.LogOptions{Follow: true})
	_, out["Plan()"] = s.Stacks.Plan(ctx, key, "")
	_, out["StateVersions()"] = s.Stacks.StateVersions(ctx, key)
	_, out["StateOf()"] = s.Stacks.StateOf(ctx, key, "", false)

	_, out["Approve()"] = s.Stacks.Approve(ctx, key, shown, "")
	_, out["OverrideWindow()"] = s.Stacks.OverrideWindow(ctx, key, shown, "")
	_, out["Reject()"] = s.Stacks.Reject(ctx, key, shown, "")
	_, out["Replan()"] = s.Stacks.Replan(ctx, key)
	_, out["RerunSteps()"] = s.Stacks.RerunSteps(ctx, key, "")
	_, out["ProposeDrift()"] = s.Stacks.ProposeDrift(ctx, key, query.DriftOrder{})
	_, out["RollBack()"] = s.Stacks.RollBack(ctx, key, command.StackRollback{})
	_, out["AcceptDrift()"] = s.Stacks.AcceptDrift(ctx, key, command.AcceptDriftOrder{})
	out["Suspend()"] = s.Stacks.Suspend(ctx, key)
	out["Resume()"] = s.Stacks.Resume(ctx, key)
	_, out["Cancel()"] = s.Stacks.Cancel(ctx, key, "apply-1")
	out["Unlock()"] = s.Stacks.Unlock(ctx, key, "lock-1")
	_, out["BreakGlass()"] = s.Stacks.BreakGlass(ctx, key)
	_, out["OrderCommand()"] = s.Stacks.OrderCommand(ctx, key, command.CommandOrder{ID: "one", Args: []string{"state", "list"}})
	out["EndBreakGlass()"] = s.Stacks.EndBreakGlass(ctx, key)
	_, out["PreviewDestroy()"] = s.Stacks.PreviewDestroy(ctx, key)
	_, out["PlanRepair()"] = s.Stacks.PlanRepair(ctx, key, command.RepairAnswers{})
	out["Repair()"] = s.Stacks.Repair(ctx, key, shown)
	_, out["PlanRollback()"] = s.Stacks.PlanRollback(ctx, key, "3", false)
	_, out["PlanPush()"] = s.Stacks.PlanPush(ctx, key, []byte(stateOf(9, "a")), false)
	_, out["LockState()"] = s.Stacks.LockState(ctx, key, "")
	_, out["UnlockState()"] = s.Stacks.UnlockState(ctx, key, "")
	_, out["AcceptState()"] = s.Stacks.AcceptState(ctx, key, "")
	return out
}

// eachOfTenants asks everything of one registry, template or tenant.
func eachOfTenants(t *testing.T, s Subject, key query.Key) map[string]error {
	t.Helper()
	ctx, out := t.Context(), map[string]error{}
	_, out["Describe()"] = s.Tenants.Describe(ctx, key)
	_, out["Registry()"] = s.Tenants.Registry(ctx, key)
	_, out["Rollout()"] = s.Tenants.Rollout(ctx, key)
	return out
}

// tenantCommands commands everything of a registry and a template.
func tenantCommands(t *testing.T, s Subject, registry, template query.Key) map[string]error {
	t.Helper()
	ctx, out := t.Context(), map[string]error{}
	out["Allow()"] = s.Tenants.Allow(ctx, registry, "token")
	_, out["ReadNow()"] = s.Tenants.ReadNow(ctx, registry)
	out["SuspendRegistry()"] = s.Tenants.SuspendRegistry(ctx, registry)
	out["ResumeRegistry()"] = s.Tenants.ResumeRegistry(ctx, registry)
	_, out["ResumeRollout()"] = s.Tenants.ResumeRollout(ctx, template)
	_, out["PlanUndo()"] = s.Tenants.PlanUndo(ctx, template, 0)
	return out
}
