package web

import (
	"errors"
	"log/slog"
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

// entrance signs users in and out with a browser.
type entrance struct {
	sessions *sessions
	links    *links
	tries    *tries
	issuer   *issuer // nil if there is none

	callers callers
	screen  *screen
	replies *replies
	audit   *auditor
	log     *slog.Logger
}

func newEntrance(o Options, callers callers, r *replies) (*entrance, error) {
	e := &entrance{
		sessions: callers.sessions, links: &links{now: o.Now}, tries: newTries(o.Now),
		callers: callers, screen: r.screen, replies: r, audit: r.audit, log: o.Log,
	}
	if o.Issuer == nil {
		return e, nil
	}
	var err error
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
func (e *entrance) routes() []route {
	return []route{
		{method: http.MethodGet, path: signInPath, door: open, handle: e.signInPage},
		{method: http.MethodPost, path: signInPath, door: open, body: formBytes, handle: e.signIn},
		{method: http.MethodPost, path: signOutPath, door: open, body: formBytes, handle: e.signOut},
		{method: http.MethodGet, path: issuerPath, door: open, handle: e.toIssuer},
		{method: http.MethodGet, path: callbackPath, door: open, handle: e.fromIssuer},
	}
}

// signInPage shows how to sign in. It changes nothing, whatever its address says.
func (e *entrance) signInPage(c *gin.Context) {
	to := localPath(c.Query("to"))
	p := pages.SignIn{To: to, Lost: c.Query("lost") != ""}
	if code := c.Query("code"); code != "" {
		if name, ok := e.links.look(code); ok {
			p.Code, p.Name, p.Lasts = code, name, e.sessions.Life
		} else {
			p.Problem = pages.SignInProblem(errLink)
		}
	}
	// A code may be of another user than the one who is signed in.
	if user, err := e.callers.ofSession(c.Request); err == nil && p.Code == "" {
		if p.Problem == nil {
			c.Redirect(http.StatusSeeOther, to)
			return
		}
		p.Present = user.Name
	}
	e.showSignIn(c, http.StatusOK, p)
}

func (e *entrance) showSignIn(c *gin.Context, status int, p pages.SignIn) {
	if e.issuer != nil {
		p.Issuer = e.issuer.Name
		if err := e.issuer.awake(c.Request.Context()); err != nil {
			e.log.Warn("issuer not reached", "issuer", e.issuer.URL, "err", err)
			p.IssuerDown = true
		}
	}
	e.screen.show(c, status, e.screen.bare(c), p.Page())
}

var (
	errLink    = fault.New(fault.Denied, "LinkUsed", errors.New("the link was used before, or it has expired"))
	errProgram = fault.New(fault.Denied, access.ReasonUnknownUser, errors.New("this token belongs to a part of this server, and not to a user"))
)

// signIn turns a token, or the code of a link, into a session.
func (e *entrance) signIn(c *gin.Context) {
	if err := c.Request.ParseForm(); err != nil {
		e.replies.refuse(c, err)
		return
	}
	form := c.Request.PostForm
	to := localPath(form.Get("to"))
	token, by := secret.New(strings.TrimSpace(form.Get("token"))), "token"
	succeeded := func() {} // a code is no try: checking it costs nothing
	var err error
	if code := form.Get("code"); code != "" {
		t, ok := e.links.use(code)
		if !ok {
			e.signInFailed(c, to, errLink)
			return
		}
		token, by = t, "link"
	} else if succeeded, err = e.tries.begin(c.Request); err != nil {
		e.replies.refuse(c, err)
		return
	}
	user, err := e.callers.auth.Authenticate(c.Request.Context(), token)
	if err == nil && strings.HasPrefix(user.Name, access.OwnUsers) {
		err = errProgram
	}
	if fault.Of(err) != fault.Denied {
		succeeded() // it was not a guess
	}
	if err != nil {
		e.signInFailed(c, to, err)
		return
	}
	cookie, err := e.sessions.cookie(e.sessions.begin(session{Token: token.Reveal()}))
	if err != nil {
		e.signInFailed(c, to, err)
		return
	}
	e.replaceSession(c, cookie)
	e.audit.signedIn(c, user.Name, by)
	c.Redirect(http.StatusSeeOther, to)
}

// signInFailed shows the page again, with the error.
func (e *entrance) signInFailed(c *gin.Context, to string, err error) {
	if k := fault.Of(err); k != fault.Denied && k != fault.Invalid {
		e.replies.refuse(c, err) // it is not about the credentials
		return
	}
	e.audit.signInRefused(c, err)
	e.showSignIn(c, http.StatusForbidden, pages.SignIn{To: to, Problem: pages.SignInProblem(err)})
}

// replaceSession gives a browser a new session. The old one ends: its
// cookie would otherwise stay valid.
func (e *entrance) replaceSession(c *gin.Context, cookie *http.Cookie) {
	if err := e.endSession(c); err != nil {
		e.log.Error("session not ended", "err", err)
	}
	http.SetCookie(c.Writer, cookie)
}

func (e *entrance) endSession(c *gin.Context) error {
	x, err := e.sessions.open(c.Request)
	if err != nil {
		return nil // it is invalid already
	}
	return e.sessions.SignOuts.End(c.Request.Context(), x.ID, time.Unix(x.Until, 0))
}

// signOut ends the session of a browser, for every copy of its cookie.
func (e *entrance) signOut(c *gin.Context) {
	who, unknown := e.callers.ofSession(c.Request)
	err := e.endSession(c)
	if err == nil && unknown == nil {
		_ = e.audit.record(c, query.AuditEntry{What: query.AuditSignedOut, Who: who.Name}) // audit logs the error; the session has ended
	}
	http.SetCookie(c.Writer, e.sessions.cleared())
	if err != nil {
		e.replies.refuse(c, err)
		return
	}
	c.Redirect(http.StatusSeeOther, signInPath)
}

// renew sends a browser the cookie of its extended session.
func (e *entrance) renew(c *gin.Context) {
	if !e.sessions.shown(c.Request) {
		return
	}
	x, err := e.sessions.open(c.Request)
	if err != nil {
		return
	}
	if x, due := e.sessions.seen(x, c.Request); due {
		if cookie, err := e.sessions.cookie(x); err == nil {
			http.SetCookie(c.Writer, cookie)
		}
	}
}

// toSignIn sends a browser to the sign-in page, with the address that it
// requested. A form is not carried out later: the user has to repeat it.
func (e *entrance) toSignIn(c *gin.Context) {
	r := c.Request
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		c.Redirect(http.StatusSeeOther, signInPath+"?lost=1")
		c.Abort()
		return
	}
	// A browser does not send the cookie when a page of another site leads here.
	// When a page of ours redirects once more, it does.
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" && !e.sessions.shown(r) {
		e.onward(c, r.URL.RequestURI())
		c.Abort()
		return
	}
	c.Redirect(http.StatusSeeOther, signInPath+"?"+url.Values{"to": {r.URL.RequestURI()}}.Encode())
	c.Abort()
}

// onward shows a page of ours that redirects to another one.
func (e *entrance) onward(c *gin.Context, to string) {
	to = localPath(to)
	c.Header("Refresh", "0; url="+to)
	e.screen.show(c, http.StatusOK, e.screen.bare(c), pages.Onward(to))
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
