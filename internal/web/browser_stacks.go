package web

import (
	"net/http"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/web/pages"
)

// stackPageRoutes are the pages about stacks. Lists show what the visitor
// may list, so that they need no permission of their own; a page of one stack
// needs the permission for its part. The permission for a command is checked here
// and again by the cluster, since the command acts as the visitor.
func (s *server) stackPageRoutes() []route {
	const one = "/stacks/:namespace/:name"
	see := right("get", access.ResourceStacks)
	log, state, outputs, plan := right("get", access.ResourceLog), right("get", access.ResourceState), right("get", access.ResourceOutputs), right("get", access.ResourcePlan)
	change := right("patch", access.ResourceStacks)
	return []route{
		s.page("/stacks", known, nil, pages.Stacks),
		s.action("/stacks", known, nil, pages.ToStacks),
		s.page("/approvals", known, nil, pages.Approvals),
		s.page("/drift", known, nil, pages.Drift),
		s.page(one, guarded, see, pages.Stack),
		s.page(one+"/runs", guarded, log, pages.StackRuns),
		s.page(one+"/resources", guarded, state, pages.StackResources),
		s.page(one+"/outputs", guarded, outputs, pages.StackOutputs),
		s.page(one+"/inputs", guarded, see, pages.StackInputs),
		s.page(one+"/states", guarded, state, pages.StackStates),
		s.page(one+"/drift", guarded, plan, pages.StackDrift),
		s.page(one+"/events", guarded, see, pages.StackEvents),
		s.page(one+"/repair", guarded, change, pages.StackRepair),
		s.action(one+"/approve", guarded, change, pages.Approve),
		s.action(one+"/reject", guarded, change, pages.Reject),
		s.action(one+"/replan", guarded, change, pages.Replan),
		s.action(one+"/suspend", guarded, change, pages.Suspend),
		s.action(one+"/resume", guarded, change, pages.Resume),
		s.page(one+"/glass", guarded, change, pages.StackGlass),
		s.action(one+"/glass", guarded, change, pages.BreakGlass),
		s.action(one+"/glass/run", guarded, change, pages.RunCommand),
		s.action(one+"/glass/end", guarded, change, pages.EndBreakGlass),
		s.action(one+"/unlock", guarded, change, pages.Unlock),
		s.action(one+"/preview-destroy", guarded, change, pages.PreviewDestroy),
		s.action(one+"/repair", guarded, change, pages.Repair),
		s.upload(one+"/states/push", guarded, right("update", access.ResourceState), pages.PushState),
		s.action(one+"/states/store", guarded, right("update", access.ResourceState), pages.StoreState),
		{method: http.MethodGet, path: one + "/states/:version/file", door: guarded, access: state, within: func(l Limits) time.Duration { return l.Transfer }, handle: asFile(s.stateVersion)},
		s.action(one+"/states/rollback", guarded, right("update", access.ResourceState), pages.Rollback),
		s.action(one+"/states/accept", guarded, right("update", access.ResourceState), pages.AcceptState),
		s.action(one+"/states/lock", guarded, right("update", access.ResourceState), pages.LockState),
		s.action(one+"/states/unlock", guarded, right("update", access.ResourceState), pages.UnlockState),
	}
}
