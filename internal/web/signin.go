package web

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/web/pages"
)

// entrance is what signing in with a browser needs.
type entrance struct {
	sessions *sessions
	links    *links
	tries    *tries
	issuer   *issuer // nil if there is none
}

func newEntrance(o Options) (entrance, error) {
	e := entrance{links: &links{now: o.Now}, tries: newTries(o.Now)}
	var err error
	if e.sessions, err = newSessions(o.Sessions, o.Now); err != nil || o.Issuer == nil {
		return e, err
	}
	e.issuer, err = newIssuer(*o.Issuer, e.sessions.Key, o.Now)
	return e, err
}

const (
	signInPath  = "/sign-in"
	signOutPath = "/sign-out"
	homePath    = "/stacks"
)

// signInRoutes are the rows of signing in with a browser, and of signing
// out.
func (s *server) signInRoutes() []route {
	return []route{
		{method: http.MethodGet, path: signInPath, door: open, handle: s.signInPage},
		{method: http.MethodPost, path: signInPath, door: open, body: formBytes, handle: s.signIn},
		{method: http.MethodPost, path: signOutPath, door: open, body: formBytes, handle: s.signOut},
		{method: http.MethodGet, path: issuerPath, door: open, handle: s.toIssuer},
		{method: http.MethodGet, path: callbackPath, door: open, handle: s.fromIssuer},
	}
}

// linkRoutes are the rows of the sign-in links of the command line.
func (s *server) linkRoutes() []route {
	return []route{{method: http.MethodPost, path: api + "/sign-in-links", door: known, handle: s.makeLink,
		within: func(l Limits) time.Duration { return l.Request }}}
}

// signInPage shows how to sign in. It changes nothing, whatever its address says.
func (s *server) signInPage(c *gin.Context) {
	to := localPath(c.Query("to"))
	p := pages.SignIn{To: to, Lost: c.Query("lost") != ""}
	if code := c.Query("code"); code != "" {
		if name, ok := s.links.look(code); ok {
			p.Code, p.Name = code, name
		} else {
			p.Problem = pages.SignInProblem(errLink)
		}
	}
	// A code may be of another user than the one who is signed in.
	if user, err := s.sessionUser(c.Request); err == nil && p.Code == "" {
		if p.Problem == nil {
			c.Redirect(http.StatusSeeOther, to)
			return
		}
		p.Present = user.Name
	}
	s.showSignIn(c, http.StatusOK, p)
}

func (s *server) showSignIn(c *gin.Context, status int, p pages.SignIn) {
	if s.issuer != nil {
		p.Issuer = s.issuer.Name
		if err := s.issuer.awake(c.Request.Context()); err != nil {
			s.Log.Warn("issuer not reached", "issuer", s.issuer.URL, "err", err)
			p.IssuerDown = true
		}
	}
	v := &pages.Visit{Context: c.Request.Context(), House: &s.house, Path: c.Request.URL.Path, Query: url.Values{}, Now: s.Now()}
	s.show(c, status, v, p.Page())
}

var (
	errLink    = fault.New(fault.Denied, "LinkUsed", errors.New("the link was used before, or it has expired"))
	errProgram = fault.New(fault.Denied, access.ReasonUnknownUser, errors.New("this token belongs to a part of this server, and not to a user"))
)

// signIn turns a token, or the code of a link, into a session.
func (s *server) signIn(c *gin.Context) {
	if err := c.Request.ParseForm(); err != nil {
		s.refuse(c, err)
		return
	}
	form := c.Request.PostForm
	to := localPath(form.Get("to"))
	token, by := secret.New(strings.TrimSpace(form.Get("token"))), "token"
	succeeded := func() {} // a code is no try: checking it costs nothing
	var err error
	if code := form.Get("code"); code != "" {
		t, ok := s.links.use(code)
		if !ok {
			s.signInFailed(c, to, errLink)
			return
		}
		token, by = t, "link"
	} else if succeeded, err = s.tries.begin(c.Request); err != nil {
		s.refuse(c, err)
		return
	}
	user, err := s.Auth.Authenticate(c.Request.Context(), token)
	if err == nil && strings.HasPrefix(user.Name, access.OwnUsers) {
		err = errProgram
	}
	if fault.Of(err) != fault.Denied {
		succeeded() // it was not a guess
	}
	if err != nil {
		s.signInFailed(c, to, err)
		return
	}
	cookie, err := s.sessions.cookie(s.sessions.begin(session{Token: token.Reveal()}))
	if err != nil {
		s.signInFailed(c, to, err)
		return
	}
	s.replaceSession(c, cookie)
	s.signedIn(c, user.Name, by)
	c.Redirect(http.StatusSeeOther, to)
}

// signInFailed shows the page again, with the error.
func (s *server) signInFailed(c *gin.Context, to string, err error) {
	if k := fault.Of(err); k != fault.Denied && k != fault.Invalid {
		s.refuse(c, err) // it is not about the credentials
		return
	}
	s.signInRefused(c, err)
	s.showSignIn(c, http.StatusForbidden, pages.SignIn{To: to, Problem: pages.SignInProblem(err)})
}

// replaceSession gives a browser a new session. The old one ends: its
// cookie would otherwise stay valid.
func (s *server) replaceSession(c *gin.Context, cookie *http.Cookie) {
	if err := s.endSession(c); err != nil {
		s.Log.Error("session not ended", "err", err)
	}
	http.SetCookie(c.Writer, cookie)
}

func (s *server) endSession(c *gin.Context) error {
	x, err := s.sessions.open(c.Request)
	if err != nil {
		return nil // it is invalid already
	}
	return s.sessions.SignOuts.End(c.Request.Context(), x.ID, time.Unix(x.Until, 0))
}

// signOut ends the session of a browser, for every copy of its cookie.
func (s *server) signOut(c *gin.Context) {
	who, unknown := s.sessionUser(c.Request)
	err := s.endSession(c)
	if err == nil && unknown == nil {
		_ = s.audit(c, query.AuditEntry{What: query.AuditSignedOut, Who: who.Name}) // audit logs the error; the session has ended
	}
	http.SetCookie(c.Writer, s.sessions.cleared())
	if err != nil {
		s.refuse(c, err)
		return
	}
	c.Redirect(http.StatusSeeOther, signInPath)
}

// renew sends a browser the cookie of its extended session.
func (s *server) renew(c *gin.Context) {
	if !s.sessions.shown(c.Request) {
		return
	}
	x, err := s.sessions.open(c.Request)
	if err != nil {
		return
	}
	if x, due := s.sessions.seen(x, c.Request); due {
		if cookie, err := s.sessions.cookie(x); err == nil {
			http.SetCookie(c.Writer, cookie)
		}
	}
}

// toSignIn sends a browser to the sign-in page, with the address that it
// requested. A form is not carried out later: the user has to repeat it.
func (s *server) toSignIn(c *gin.Context) {
	r := c.Request
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		c.Redirect(http.StatusSeeOther, signInPath+"?lost=1")
		c.Abort()
		return
	}
	// A browser does not send the cookie when a page of another site leads here.
	// When a page of ours redirects once more, it does.
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" && !s.sessions.shown(r) {
		s.onward(c, r.URL.RequestURI())
		c.Abort()
		return
	}
	c.Redirect(http.StatusSeeOther, signInPath+"?"+url.Values{"to": {r.URL.RequestURI()}}.Encode())
	c.Abort()
}

// onward shows a page of ours that redirects to another one.
func (s *server) onward(c *gin.Context, to string) {
	to = localPath(to)
	c.Header("Refresh", "0; url="+to)
	v := &pages.Visit{Context: c.Request.Context(), House: &s.house, Path: c.Request.URL.Path, Query: url.Values{}, Now: s.Now()}
	s.show(c, http.StatusOK, v, pages.Onward(to))
}

// localPath is to if that is a path of ours, and the first page if it
// leads, or might in some browser lead, to another site.
func localPath(to string) string {
	clean := len(to) <= 2048 && strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "//") && !strings.HasPrefix(to, signInPath)
	for _, r := range to {
		clean = clean && r > ' ' && r != '\\' && r != 0x7f
	}
	u, err := url.Parse(to)
	if !clean || err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || strings.HasPrefix(u.Path, "//") {
		return homePath
	}
	return u.RequestURI()
}
