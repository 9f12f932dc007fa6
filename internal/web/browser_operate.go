package web

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/web/pages"
)

// operateRoutes are the rows of pages about the platform: the queue,
// tenants with their registries and templates, sources, the audit log, retained resources,
// and the server itself.
// Lists are for every signed-in user, and show what the user may view.
func (p pageRows) operateRoutes() []route {
	const (
		tenant   = "/tenants/:namespace/:name"
		registry = "/registries/:namespace/:name"
		template = "/templates/:namespace/:name"
		retained = "/retained/:namespace/:name"
	)
	edit := right("patch", access.ResourceRegistries)
	return []route{
		p.page("/queue", known, nil, pages.Queue),
		p.page("/status", known, nil, pages.Status),
		p.page("/sources", known, nil, pages.Sources),
		p.page("/sources/:kind/:namespace/:name", guarded, right("get", access.ResourceSources), pages.SourceDetail),
		p.page("/notifications", known, nil, pages.Notifications),
		p.page("/about", known, nil, pages.About),
		p.page("/api", known, nil, pages.APIDocs),

		p.page("/audit", known, nil, pages.Audit),
		p.action("/audit/verify", guarded, everywhere("list", access.ResourceAudit), pages.VerifyAuditLog),
		{method: http.MethodGet, path: "/audit/export", door: known, within: func(l Limits) time.Duration { return l.Transfer }, handle: p.exportAudit},

		p.page("/retained", known, nil, pages.Retained),
		p.action(retained+"/forget", guarded, right("delete", access.ResourceStacks), pages.ForgetRetained),
		{method: http.MethodGet, path: retained + "/state", door: guarded, whole: true, access: right("get", access.ResourceState), within: func(l Limits) time.Duration { return l.Transfer }, handle: asFile(p.retained.state)},

		p.page("/tenants", known, nil, pages.Tenants),
		p.page(tenant, guarded, right("get", access.ResourceTenants), pages.Tenant),
		p.page(registry, guarded, right("get", access.ResourceRegistries), pages.Registry),
		p.action(registry+"/allow", guarded, edit, pages.AllowDeletions),
		p.action(registry+"/read", guarded, edit, pages.ReadRows),
		p.action(registry+"/suspend", guarded, edit, pages.SuspendRegistry),
		p.action(registry+"/resume", guarded, edit, pages.ResumeRegistry),
		p.page(template, guarded, right("get", access.ResourceTemplates), pages.Template),
		p.action(template+"/resume", guarded, right("patch", access.ResourceTemplates), pages.ResumeRollout),
		p.action(template+"/undo", guarded, right("update", access.ResourceTemplates), pages.UndoRollout),
	}
}

// exported bounds how many entries of the audit log one export has. For more
// entries, use several exports by day, or the files.
const exported = 100_000

// exportAudit sends the entries of the audit page as lines of JSON, newest
// first.
func (p pageRows) exportAudit(c *gin.Context) {
	v, err := p.screen.visit(c)
	if err != nil {
		p.replies.refuse(c, err)
		return
	}
	q, wrong := pages.AuditQuery(v.Query)
	if wrong != nil {
		p.replies.refuse(c, wrong)
		return
	}
	q.Before, q.Limit = 0, 1000
	if p.auditLog == nil {
		c.Data(http.StatusOK, "application/jsonl; charset=utf-8", nil) // there are no entries
		return
	}
	next := sightedEntries(c, p.screen.recent, p.auditLog)
	page, err := next(q)
	if err != nil {
		p.replies.refuse(c, err)
		return
	}
	c.Header("Content-Type", "application/jsonl; charset=utf-8")
	c.Header("Content-Disposition", `attachment; filename="audit-log.jsonl"`)
	out := json.NewEncoder(c.Writer)
	for sent := 0; ; {
		for _, e := range page.Items {
			if err := out.Encode(e); err != nil {
				panic(http.ErrAbortHandler) // the reader is gone
			}
		}
		if sent += len(page.Items); page.Next == 0 || sent >= exported {
			return
		}
		q.Before = page.Next
		if page, err = next(q); err != nil {
			p.log.Error("export of the audit log interrupted", "request", c.GetString(keyRequest), "err", err)
			panic(http.ErrAbortHandler) // an incomplete export must not look complete
		}
	}
}
