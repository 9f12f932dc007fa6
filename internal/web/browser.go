package web

import (
	"cmp"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/web/login"
	"github.com/terrier-iac/terrier/internal/web/pages"
)

// pageRows makes the rows for browsers.
type pageRows struct {
	screen   *screen
	replies  *replies
	audit    *auditor
	entrance *entrance
	states   stateAPI
	retained retainedAPI
	exchange tokenEndpoint
	auditLog query.AuditLog // nil without an audit log
	limits   Limits
	log      *slog.Logger
}

// routes are the rows for browsers. A visitor without the permission for a page
// gets a page that says so; a visitor without a session is sent to sign
// in.
func (p pageRows) routes() []route {
	table := append(p.entrance.routes(), p.page("/", known, nil, pages.Home))
	table = append(table, p.stackRoutes()...)
	table = append(table, p.runRoutes()...)
	table = append(table, p.operateRoutes()...)
	table = append(table, p.tokenRoutes()...)
	table = append(table, p.catalogRoutes()...)
	static := gin.WrapH(http.StripPrefix(pages.StaticPrefix, p.screen.renderer.Static()))
	for _, m := range []string{http.MethodGet, http.MethodHead} {
		table = append(table, route{method: m, path: pages.StaticPrefix + "/*path", door: open, handle: static})
	}
	for i := range table {
		table[i].browser = table[i].path != login.TokenPath
		if table[i].within == nil {
			table[i].within = func(l Limits) time.Duration { return l.Request }
		}
	}
	return table
}

// access is the permission that a row needs.
type requirement = func(*gin.Context) (access.Request, error)

func (p pageRows) page(path string, d door, a requirement, h pages.Handler) route {
	return route{method: http.MethodGet, path: path, door: d, access: a, handle: func(c *gin.Context) {
		v, err := p.screen.visit(c)
		if err != nil {
			p.replies.refuse(c, err)
			return
		}
		v.Revealed = func(version string) error { return p.states.sender.read(c, version) }
		page, err := h(v)
		if err = cmp.Or(v.Unknown(), err); err != nil {
			p.replies.refuse(c, err)
			return
		}
		p.screen.show(c, http.StatusOK, v, page)
	}}
}

// formBytes bounds the body of a form.
const formBytes = 1 << 20

// action is the row of a form.
func (p pageRows) action(path string, d door, a requirement, do pages.Action) route {
	return route{method: http.MethodPost, path: path, door: d, access: a, body: formBytes, handle: func(c *gin.Context) {
		v, err := p.screen.visit(c)
		if err == nil {
			err = readForm(c.Request, v)
			v.Refused = func(k query.Key, err error) { p.audit.refusedOne(c, k, err) }
			v.Record = func(e query.AuditEntry) error { return p.audit.record(c, e) }
			v.Forget = func(k query.Key, uid string) error { return p.retained.forget(c, k, uid) }
		}
		if err != nil {
			p.replies.refuse(c, err)
			return
		}
		done, err := do(v)
		if err != nil {
			p.replies.refuse(c, err)
			return
		}
		if done.Page != nil {
			p.screen.show(c, http.StatusOK, v, *done.Page)
			return
		}
		to := done.To
		if done.Said != "" {
			mark := "?"
			if strings.Contains(to, mark) {
				mark = "&"
			}
			to += mark + url.Values{"done": {string(done.Said)}}.Encode()
		}
		c.Redirect(http.StatusSeeOther, to)
	}}
}
