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

// pageRoutes are the rows of everything that is for browsers. Whoever may not
// see something gets a page that says so; whoever is not known is sent to sign
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

// access names the right that a row takes.
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

// formBytes bounds what a form of a page sends.
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

// visit is what a page is told of a request.
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

// asks answers what somebody may do.
func (s *server) asks(c *gin.Context, user access.User) func(access.Request) bool {
	return func(a access.Request) bool { return s.Recent.Authorize(c.Request.Context(), user, a) == nil }
}

// show sends a page.
func (s *server) show(c *gin.Context, status int, v *pages.Visit, p pages.Page) {
	html, err := s.renderer.Render(v, p)
	if err != nil {
		s.Log.Error("page failed", "request", c.GetString(keyRequest), "path", c.FullPath(), "err", err)
		c.Data(http.StatusInternalServerError, "text/plain; charset=utf-8", []byte("something is wrong inside the server\n"))
		return
	}
	c.Header("Content-Security-Policy", pages.ContentPolicy)
	c.DataFromReader(status, int64(len(html)), "text/html; charset=utf-8", bytes.NewReader(html), nil)
}

// astray sees to it that somebody who typed an address that is none is shown a
// page. Programs say that they want JSON, or nothing. Who it is stays open: what
// the page says is the same for all.
func (s *server) astray(c *gin.Context) {
	reads := c.Request.Method == http.MethodGet || c.Request.Method == http.MethodHead
	c.Set(keyBrowser, reads && strings.Contains(c.GetHeader("Accept"), "text/html"))
	c.Next()
}

// problem shows a browser why it does not get what it asked for.
func (s *server) problem(c *gin.Context, status int, answer command.Refusal) {
	v := &pages.Visit{Context: c.Request.Context(), House: &s.house, User: userOf(c), Path: c.Request.URL.Path, Query: url.Values{}, Now: s.Now()}
	if v.User.Name != "" {
		v.Can = s.asks(c, v.User)
	}
	p := pages.Failed(v, answer, c.GetString(keyRequest))
	if c.Request.Method != http.MethodGet {
		p.Live = pages.Live{} // nothing is done twice by itself
	}
	s.show(c, status, v, p)
	c.Abort()
}
