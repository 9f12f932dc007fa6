package web

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/web/pages"
)

// screen makes visits of requests, and shows pages.
type screen struct {
	renderer *pages.Renderer
	backend  *pages.Backend
	recent   Auth // with a cache of some seconds
	scopes   scopes
	people   func(access.User) (command.Person, error) // nil if commands are not carried out
	log      *slog.Logger
	now      func() time.Time
}

// visit is the request as a page gets it.
func (s *screen) visit(c *gin.Context) (*pages.Visit, error) {
	user := userOf(c)
	v := &pages.Visit{
		Context: c.Request.Context(), Backend: s.backend, User: user, Now: s.now(),
		Host: c.Request.Host, Path: c.Request.URL.Path, Query: c.Request.URL.Query(), Names: map[string]string{},
		Can: s.can(c, user),
	}
	for _, p := range c.Params {
		v.Names[p.Key] = p.Value
	}
	if user.Name != "" && s.scopes.all != nil {
		v.Scopes = func() (access.Scope, error) { return s.scopes.soFar(c.Request.Context(), user) }
	}
	var err error
	if user.Name != "" && s.people != nil {
		v.Person, err = s.people(user)
	}
	return v, err
}

// bare is a request as a page gets it that shows nothing of the cluster.
func (s *screen) bare(c *gin.Context) *pages.Visit {
	return &pages.Visit{Context: c.Request.Context(), Backend: s.backend, User: userOf(c), Path: c.Request.URL.Path, Query: url.Values{}, Now: s.now()}
}

// can checks the permissions of a user.
func (s *screen) can(c *gin.Context, user access.User) func(access.Request) bool {
	return func(a access.Request) bool { return s.recent.Authorize(c.Request.Context(), user, a) == nil }
}

func (s *screen) show(c *gin.Context, status int, v *pages.Visit, p pages.Page) {
	html, err := s.renderer.Render(v, p)
	if err != nil {
		s.log.Error("page failed", "request", c.GetString(keyRequest), "path", askedPath(c), "err", err)
		c.Data(http.StatusInternalServerError, "text/plain; charset=utf-8", []byte("internal error of the server\n"))
		return
	}
	c.Header("Content-Security-Policy", p.ContentPolicy())
	c.DataFromReader(status, int64(len(html)), "text/html; charset=utf-8", bytes.NewReader(html), nil)
}

// unknownAddress marks requests of browsers for unknown addresses, so that they get a
// page, with the menu of the user who is signed in. Programs accept JSON, or name no type.
func (u callers) unknownAddress(c *gin.Context) {
	reads := c.Request.Method == http.MethodGet || c.Request.Method == http.MethodHead
	page := reads && strings.Contains(c.GetHeader("Accept"), "text/html")
	c.Set(keyBrowser, page)
	if page && u.sessions.shown(c.Request) {
		if user, err := u.ofSession(c.Request); err == nil { // without a user, the page is the same but for its menu
			c.Set(keyUser, user)
		}
	}
	c.Next()
}
