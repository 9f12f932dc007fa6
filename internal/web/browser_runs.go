package web

import (
	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/web/pages"
)

// runRoutes are the pages about runs: each needs the permission for what
// it shows. The graph names only stacks that the visitor may list.
func (p pageRows) runRoutes() []route {
	const one = "/stacks/:namespace/:name"
	log, plan := right("get", access.ResourceLog), right("get", access.ResourcePlan)
	return []route{
		p.page(one+"/runs/:run", guarded, log, pages.Run),
		p.page(one+"/runs/:run/log", guarded, log, pages.Log),
		p.page(one+"/plan", guarded, plan, pages.Plan),
		p.page(one+"/graph", guarded, right("get", access.ResourceStacks), pages.StackGraph),
	}
}
