package web

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/web/pages"
)

// operateRoutes are the rows of pages about the platform: the queue,
// tenants with their registries and templates, sources, the audit log, retained resources,
// and the server itself.
// Lists are for every signed-in user, and show what the user may view.
func (s *server) operateRoutes() []route {
	const (
		tenant   = "/tenants/:namespace/:name"
		registry = "/registries/:namespace/:name"
		template = "/templates/:namespace/:name"
		retained = "/retained/:namespace/:name"
	)
	edit := right("patch", access.ResourceRegistries)
	return []route{
		s.page("/queue", known, nil, pages.Queue),
		s.page("/sources", known, nil, pages.Sources),
		s.page("/notifications", known, nil, pages.Notifications),
		s.page("/about", known, nil, pages.About),
		s.page("/api", known, nil, pages.APIDocs),

		s.page("/audit", known, nil, pages.Audit),
		s.action("/audit/verify", guarded, everywhere("list", access.ResourceAudit), pages.VerifyJournal),
		{method: http.MethodGet, path: "/audit/export", door: known, within: func(l Limits) time.Duration { return l.Transfer }, handle: s.exportAudit},

		s.page("/retained", known, nil, pages.Retained),
		s.action(retained+"/forget", guarded, right("delete", access.ResourceStacks), pages.ForgetRetained),
		{method: http.MethodGet, path: retained + "/state", door: guarded, access: right("get", access.ResourceState), within: func(l Limits) time.Duration { return l.Transfer }, handle: asFile(s.retainedState)},

		s.page("/tenants", known, nil, pages.Tenants),
		s.page(tenant, guarded, right("get", access.ResourceTenants), pages.Tenant),
		s.page(registry, guarded, right("get", access.ResourceRegistries), pages.Registry),
		s.action(registry+"/allow", guarded, edit, pages.AllowDeletions),
		s.action(registry+"/read", guarded, edit, pages.ReadRows),
		s.action(registry+"/suspend", guarded, edit, pages.SuspendRegistry),
		s.action(registry+"/resume", guarded, edit, pages.ResumeRegistry),
		s.page(template, guarded, right("get", access.ResourceTemplates), pages.Template),
		s.action(template+"/resume", guarded, right("patch", access.ResourceTemplates), pages.ResumeRollout),
		s.action(template+"/undo", guarded, right("update", access.ResourceTemplates), pages.UndoRollout),
	}
}

// exported bounds how many entries of the audit log one export has. For more
// entries, use several exports by day, or the files.
const exported = 100_000

// exportAudit sends the entries of the audit page as lines of JSON, newest
// first.
func (s *server) exportAudit(c *gin.Context) {
	v, err := s.visit(c)
	if err != nil {
		s.refuse(c, err)
		return
	}
	q, wrong := pages.AuditQuery(v.Query)
	if wrong != nil {
		s.refuse(c, wrong)
		return
	}
	q.Before, q.Limit = 0, 1000
	if s.Journal == nil {
		c.Data(http.StatusOK, "application/jsonl; charset=utf-8", nil) // there are no entries
		return
	}
	sight := query.AuditSightOf(v.Can)
	page, err := s.Journal.Entries(c.Request.Context(), sight, q)
	if err != nil {
		s.refuse(c, err)
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
		if page, err = s.Journal.Entries(c.Request.Context(), sight, q); err != nil {
			s.Log.Error("export of the audit log interrupted", "request", c.GetString(keyRequest), "err", err)
			panic(http.ErrAbortHandler) // an incomplete export must not look complete
		}
	}
}
