package web

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/web/pages"
)

// stackRoutes are the pages about stacks. Lists show what the visitor
// may list, so that they need no permission of their own; a page of one stack
// needs the permission for its part. The permission for a command is checked here
// and again by the cluster, since the command acts as the visitor.
func (p pageRows) stackRoutes() []route {
	const one = "/stacks/:namespace/:name"
	see := right("get", access.ResourceStacks)
	log, state, outputs, plan := right("get", access.ResourceLog), right("get", access.ResourceState), right("get", access.ResourceOutputs), right("get", access.ResourcePlan)
	change := right("patch", access.ResourceStacks)
	table := []route{
		p.page("/stacks", known, nil, pages.Stacks),
		p.action("/stacks", known, nil, pages.ToStacks),
		p.page("/approvals", known, nil, pages.Approvals),
		p.page("/drift", known, nil, pages.Drift),
		p.page("/graph", known, nil, pages.Graph),
		p.page(one, guarded, see, pages.Stack),
		p.page(one+"/runs", guarded, log, pages.StackRuns),
		p.page(one+"/resources", guarded, state, pages.StackResources),
		p.page(one+"/outputs", guarded, outputs, pages.StackOutputs),
		p.page(one+"/inputs", guarded, see, pages.StackInputs),
		p.page(one+"/states", guarded, state, pages.StackStates),
		p.page(one+"/drift", guarded, plan, pages.StackDrift),
		p.action(one+"/drift/accept", guarded, change, pages.AcceptDrift),
		p.page(one+"/events", guarded, see, pages.StackEvents),
		p.page(one+"/manifest", guarded, see, pages.StackManifest),
		p.page(one+"/repair", guarded, change, pages.StackRepair),
		p.action(one+"/approve", guarded, change, pages.Approve),
		p.action(one+"/override-window", guarded, right("update", access.ResourceWindows), pages.OverrideWindow),
		p.action(one+"/reject", guarded, change, pages.Reject),
		p.action(one+"/replan", guarded, change, pages.Replan),
		p.action(one+"/rerun-steps", guarded, change, pages.RerunSteps),
		p.action(one+"/rollback", guarded, change, pages.RollBackStack),
		p.action(one+"/suspend", guarded, change, pages.Suspend),
		p.action(one+"/resume", guarded, change, pages.Resume),
		p.page(one+"/break-glass", guarded, change, pages.StackBreakGlass),
		p.action(one+"/break-glass", guarded, change, pages.BreakGlass),
		p.action(one+"/break-glass/run", guarded, change, pages.RunCommand),
		p.action(one+"/break-glass/end", guarded, change, pages.EndBreakGlass),
		// The address of the page in earlier releases.
		{method: http.MethodGet, path: one + "/glass", door: known, handle: func(c *gin.Context) {
			c.Redirect(http.StatusSeeOther, strings.TrimSuffix(c.Request.URL.Path, "glass")+"break-glass")
		}},
		p.action(one+"/unlock", guarded, change, pages.Unlock),
		p.action(one+"/cancel", guarded, change, pages.Cancel),
		p.action(one+"/preview-destroy", guarded, change, pages.PreviewDestroy),
		p.action(one+"/repair", guarded, change, pages.Repair),
		p.upload(one+"/states/push", guarded, right("update", access.ResourceState), pages.PushState),
		p.action(one+"/states/store", guarded, right("update", access.ResourceState), pages.StoreState),
		{method: http.MethodGet, path: one + "/states/:version/file", door: guarded, access: state, within: func(l Limits) time.Duration { return l.Transfer }, handle: asFile(p.states.version)},
		p.action(one+"/states/rollback", guarded, right("update", access.ResourceState), pages.Rollback),
		p.action(one+"/states/accept", guarded, right("update", access.ResourceState), pages.AcceptState),
		p.action(one+"/states/lock", guarded, right("update", access.ResourceState), pages.LockState),
		p.action(one+"/states/unlock", guarded, right("update", access.ResourceState), pages.UnlockState),
	}
	for i, r := range table {
		table[i].whole = slices.Contains([]string{one + "/resources", one + "/inputs", one + "/drift", one + "/drift/accept"}, r.path) || strings.HasPrefix(r.path, one+"/states") && !strings.HasSuffix(r.path, "lock")
	}
	return table
}

// runRoutes are the pages about runs: each needs the permission for what
// it shows. The graph names only stacks that the visitor may list.
func (p pageRows) runRoutes() []route {
	const one = "/stacks/:namespace/:name"
	log, plan := right("get", access.ResourceLog), right("get", access.ResourcePlan)
	document := p.page(one+"/plan", guarded, plan, pages.Plan)
	document.whole = true
	return []route{
		p.page(one+"/runs/:run", guarded, log, pages.Run),
		p.page(one+"/runs/:run/log", guarded, log, pages.Log),
		document,
		p.page(one+"/graph", guarded, right("get", access.ResourceStacks), pages.StackGraph),
	}
}
