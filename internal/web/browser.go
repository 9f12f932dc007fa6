package web

import (
	"bytes"
	"cmp"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/web/pages"
)

// pageRoutes are the rows for browsers. A visitor without the permission for a page
// gets a page that says so; a visitor without a session is sent to sign
// in.
func (s *server) pageRoutes() []route {
	table := []route{
		{method: http.MethodGet, path: "/", door: known, handle: func(c *gin.Context) { c.Redirect(http.StatusSeeOther, "/stacks") }},
	}
	table = append(table, s.signInRoutes()...)
	table = append(table, s.stackPageRoutes()...)
	table = append(table, s.runPageRoutes()...)
	table = append(table, s.operateRoutes()...)
	static := gin.WrapH(http.StripPrefix(pages.StaticPrefix, s.renderer.Static()))
	for _, m := range []string{http.MethodGet, http.MethodHead} {
		table = append(table, route{method: m, path: pages.StaticPrefix + "/*path", door: open, handle: static})
	}
	for i := range table {
		table[i].browser = true
		if table[i].within == nil {
			table[i].within = func(l Limits) time.Duration { return l.Request }
		}
	}
	return table
}

// access is the permission that a row needs.
type requirement = func(*gin.Context) (access.Request, error)

// page is the row of a page.
func (s *server) page(path string, d door, a requirement, h pages.Handler) route {
	return route{method: http.MethodGet, path: path, door: d, access: a, handle: func(c *gin.Context) {
		v, err := s.visit(c)
		if err != nil {
			s.refuse(c, err)
			return
		}
		p, err := h(v)
		if err = cmp.Or(v.Unknown(), err); err != nil {
			s.refuse(c, err)
			return
		}
		s.show(c, http.StatusOK, v, p)
	}}
}

// formBytes bounds the body of a form.
const formBytes = 1 << 20

// action is the row of a form.
func (s *server) action(path string, d door, a requirement, do pages.Action) route {
	return route{method: http.MethodPost, path: path, door: d, access: a, body: formBytes, handle: func(c *gin.Context) {
		v, err := s.visit(c)
		if err == nil {
			err = readForm(c.Request, v)
			v.Refused = func(k query.Key, err error) { s.refusedOne(c, k, err) }
			v.Forget = func(k query.Key, uid string) error { return s.forget(c, k, uid) }
		}
		if err != nil {
			s.refuse(c, err)
			return
		}
		done, err := do(v)
		if err != nil {
			s.refuse(c, err)
			return
		}
		if done.Page != nil {
			s.show(c, http.StatusOK, v, *done.Page)
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

// visit is the request as a page gets it.
func (s *server) visit(c *gin.Context) (*pages.Visit, error) {
	user := userOf(c)
	v := &pages.Visit{
		Context: c.Request.Context(), House: &s.house, User: user, Now: s.Now(),
		Path: c.Request.URL.Path, Query: c.Request.URL.Query(), Names: map[string]string{},
		Can: s.asks(c, user),
	}
	for _, p := range c.Params {
		v.Names[p.Key] = p.Value
	}
	if user.Name != "" && s.Scopes != nil {
		v.Scopes = func() (access.Scope, error) { return s.soFar(c.Request.Context(), user) }
	}
	var err error
	if user.Name != "" && s.People != nil {
		v.Person, err = s.People(user)
	}
	return v, err
}

// asks checks the permissions of a user.
func (s *server) asks(c *gin.Context, user access.User) func(access.Request) bool {
	return func(a access.Request) bool { return s.Recent.Authorize(c.Request.Context(), user, a) == nil }
}

// show sends a page.
func (s *server) show(c *gin.Context, status int, v *pages.Visit, p pages.Page) {
	html, err := s.renderer.Render(v, p)
	if err != nil {
		s.Log.Error("page failed", "request", c.GetString(keyRequest), "path", c.FullPath(), "err", err)
		c.Data(http.StatusInternalServerError, "text/plain; charset=utf-8", []byte("internal error of the server\n"))
		return
	}
	c.Header("Content-Security-Policy", pages.ContentPolicy)
	c.DataFromReader(status, int64(len(html)), "text/html; charset=utf-8", bytes.NewReader(html), nil)
}

// astray marks requests of browsers for unknown addresses, so that they get a
// page. Programs accept JSON, or name no type. The user is not identified: the
// page is the same for all users.
func (s *server) astray(c *gin.Context) {
	reads := c.Request.Method == http.MethodGet || c.Request.Method == http.MethodHead
	c.Set(keyBrowser, reads && strings.Contains(c.GetHeader("Accept"), "text/html"))
	c.Next()
}

// problem shows a refusal as a page.
func (s *server) problem(c *gin.Context, status int, answer command.Refusal) {
	v := &pages.Visit{Context: c.Request.Context(), House: &s.house, User: userOf(c), Path: c.Request.URL.Path, Query: url.Values{}, Now: s.Now()}
	if v.User.Name != "" {
		v.Can = s.asks(c, v.User)
	}
	p := pages.Failed(v, answer, c.GetString(keyRequest))
	if c.Request.Method != http.MethodGet {
		p.Live = pages.Live{} // an action is not retried automatically
	}
	s.show(c, status, v, p)
	c.Abort()
}
