package web

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/gin-gonic/gin"
	"golang.org/x/oauth2"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/web/pages"
)

// Issuer is an OpenID Connect provider that the operator trusts to identify
// users. The names of the fields and their defaults are those
// of the Kubernetes API server, so that both can have the same settings.
type Issuer struct {
	URL, ClientID string
	ClientSecret  secret.Text // may be empty
	Name          string      // its name for users; the host of URL if empty
	Scopes        []string    // besides openid

	UsernameClaim  string // sub if empty; email counts only if the issuer has verified it
	UsernamePrefix string // URL# if empty, and the claim is not email; "-" is none
	GroupsClaim    string // no groups if empty
	GroupsPrefix   string

	HTTP *http.Client // for requests to it
}

// issuer is an Issuer, found as soon as it answers.
type issuer struct {
	Issuer
	seal   sealer
	cookie string
	now    func() time.Time
	used   *EndedSessions // answers that were used

	mu       sync.Mutex
	provider *oidc.Provider
	again    time.Time // of the next discovery
	down     error     // of the last discovery
}

const (
	issuerPath   = signInPath + "/issuer"
	callbackPath = signInPath + "/callback"

	issuerPurpose = "terrier sign-in with an issuer v1"
	issuerTime    = 10 * time.Minute // for signing in at the issuer
	discoverTime  = 3 * time.Second
	discoverAgain = 10 * time.Second
)

func newIssuer(o Issuer, key secret.Text, now func() time.Time) (*issuer, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || o.ClientID == "" || o.HTTP == nil {
		return nil, fmt.Errorf("the issuer %q is incomplete: it needs an address, a client ID and an HTTP client", o.URL)
	}
	o.Name, o.UsernameClaim = cmp.Or(o.Name, u.Host), cmp.Or(o.UsernameClaim, "sub")
	switch {
	case o.UsernamePrefix == "-":
		o.UsernamePrefix = ""
	case o.UsernamePrefix == "" && o.UsernameClaim != "email":
		o.UsernamePrefix = o.URL + "#"
	}
	seal, err := newSealer(key, issuerPurpose)
	if err != nil {
		return nil, err
	}
	id, err := publicID(key)
	return &issuer{Issuer: o, seal: seal, cookie: "__Host-terrier-issuer-" + id, now: now, used: NewEndedSessions(now)}, err
}

// awake discovers the endpoints of the issuer, unless it has done so before. After a
// failure it waits before it tries again.
func (i *issuer) awake(ctx context.Context) error {
	_, err := i.find(ctx)
	return err
}

func (i *issuer) find(ctx context.Context) (*oidc.Provider, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.provider != nil {
		return i.provider, nil
	}
	if i.now().Before(i.again) {
		return nil, i.down
	}
	// The request may be canceled; the answer is for all requests.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discoverTime)
	defer cancel()
	p, err := oidc.NewProvider(i.context(ctx), i.URL)
	if err != nil {
		i.down, i.again = fmt.Errorf("discovering the issuer %s: %w", i.URL, err), i.now().Add(discoverAgain)
		return nil, i.down
	}
	i.provider = p
	return p, nil
}

// context passes the HTTP client to the libraries.
func (i *issuer) context(ctx context.Context) context.Context {
	return oidc.ClientContext(ctx, i.HTTP)
}

func (i *issuer) oauth(p *oidc.Provider, host string) oauth2.Config {
	return oauth2.Config{
		ClientID: i.ClientID, ClientSecret: i.ClientSecret.Reveal(), Endpoint: p.Endpoint(),
		// The host is one of the host names of the server.
		RedirectURL: "https://" + host + callbackPath,
		Scopes:      append([]string{oidc.ScopeOpenID}, i.Scopes...),
	}
}

// errand is the state that a browser carries, sealed, to the issuer and back.
type errand struct {
	State    string `json:"s"`
	Nonce    string `json:"n"`
	Verifier string `json:"v"`
	To       string `json:"t"`
	Until    int64  `json:"u"`
}

var errNoIssuer = fault.New(fault.Missing, "NoIssuer", errors.New("this server has no issuer to sign in with"))

// toIssuer sends a browser to the issuer. It changes nothing here: the browser carries
// the state.
func (e *entrance) toIssuer(c *gin.Context) {
	if e.issuer == nil {
		e.replies.refuse(c, errNoIssuer)
		return
	}
	p, err := e.issuer.find(c.Request.Context())
	if err != nil {
		e.log.Warn("issuer not reached", "issuer", e.issuer.URL, "err", err)
		e.showSignIn(c, http.StatusServiceUnavailable, pages.SignIn{To: localPath(c.Query("to"))})
		return
	}
	x := errand{State: randomName(), Nonce: randomName(), Verifier: oauth2.GenerateVerifier(),
		To: localPath(c.Query("to")), Until: e.screen.now().Add(issuerTime).Unix()}
	value, err := e.issuer.seal.seal(x)
	if err != nil {
		e.replies.refuse(c, err)
		return
	}
	// Lax, since the page of the issuer leads back here.
	http.SetCookie(c.Writer, &http.Cookie{Name: e.issuer.cookie, Value: value, Path: "/", MaxAge: int(issuerTime / time.Second),
		HttpOnly: true, Secure: true, SameSite: http.SameSiteLaxMode})
	o := e.issuer.oauth(p, c.Request.Host)
	c.Redirect(http.StatusSeeOther, o.AuthCodeURL(x.State, oidc.Nonce(x.Nonce), oauth2.S256ChallengeOption(x.Verifier)))
}

// fromIssuer turns the answer of the issuer into a session. A page of ours redirects
// from here: after a redirect from the issuer, the browser would not
// send the new cookie.
func (e *entrance) fromIssuer(c *gin.Context) {
	if e.issuer == nil {
		e.replies.refuse(c, errNoIssuer)
		return
	}
	http.SetCookie(c.Writer, &http.Cookie{Name: e.issuer.cookie, Path: "/", MaxAge: -1, HttpOnly: true, Secure: true, SameSite: http.SameSiteLaxMode})
	x, err := e.issuer.errand(c.Request)
	var who issued
	if err == nil {
		who, err = e.issuerSays(c, x)
	}
	var cookie *http.Cookie
	if err == nil {
		cookie, err = e.sessions.cookie(e.sessions.begin(session{Known: &who}))
	}
	if err != nil {
		e.log.Warn("sign-in with issuer failed", "issuer", e.issuer.URL, "err", err)
		e.signInFailed(c, x.To, err)
		return
	}
	e.replaceSession(c, cookie)
	e.audit.signedIn(c, who.Name, "issuer", "subject", who.Subject)
	e.onward(c, x.To)
}

// issuerSays asks the issuer for the user of an errand, which counts as a try. The answer is
// used once. One that has no try left is not noted as used: browsers without a user, which can
// have any number of errands, would fill the memory.
func (e *entrance) issuerSays(c *gin.Context, x errand) (issued, error) {
	succeeded, err := e.tries.begin(c.Request)
	if err == nil {
		err = e.issuer.used.End(c.Request.Context(), x.State, time.Unix(x.Until, 0))
	}
	if err != nil {
		return issued{}, err
	}
	who, err := e.issuer.answer(c.Request, x)
	if fault.Of(err) != fault.Denied {
		succeeded()
	}
	return who, err
}

var (
	errErrand  = fault.New(fault.Denied, "SignInLost", errors.New("this browser did not start to sign in here, or took too long: sign in again"))
	errAnswer  = fault.New(fault.Denied, "IssuerDenied", errors.New("the issuer refused to sign you in"))
	errIDToken = fault.New(fault.Denied, "IssuerInvalid", errors.New("the answer of the issuer is invalid"))
)

// errand reads the errand of a request, if its answer was not used before.
func (i *issuer) errand(r *http.Request) (errand, error) {
	var e errand
	cookie, err := r.Cookie(i.cookie)
	if err != nil || i.seal.open(cookie.Value, &e) != nil {
		return errand{}, errErrand
	}
	state := r.URL.Query().Get("state")
	until := time.Unix(e.Until, 0)
	if subtle.ConstantTimeCompare([]byte(state), []byte(e.State)) != 1 || !i.now().Before(until) || i.used.Ended(e.State) {
		return errand{To: e.To}, errErrand
	}
	return e, nil
}

// answer is the user that the issuer signed in.
func (i *issuer) answer(r *http.Request, e errand) (issued, error) {
	q := r.URL.Query()
	if iss := q.Get("iss"); iss != "" && iss != i.URL {
		return issued{}, errIDToken // another issuer's answer
	}
	if q.Get("error") != "" {
		return issued{}, errAnswer
	}
	p, err := i.find(r.Context())
	if err != nil {
		return issued{}, fault.New(fault.Later, "IssuerDown", err)
	}
	ctx := i.context(r.Context())
	o := i.oauth(p, r.Host)
	token, err := o.Exchange(ctx, q.Get("code"), oauth2.VerifierOption(e.Verifier))
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok && refused.Response.StatusCode < http.StatusInternalServerError {
		return issued{}, fault.New(fault.Denied, "IssuerDenied", fmt.Errorf("the issuer did not accept its own code: %.200q", refused.ErrorCode))
	}
	if err != nil {
		return issued{}, fault.New(fault.Later, "IssuerDown", fmt.Errorf("asking the issuer for a token: %w", err))
	}
	raw, ok := token.Extra("id_token").(string)
	if !ok {
		return issued{}, errIDToken
	}
	id, err := p.VerifierContext(ctx, &oidc.Config{ClientID: i.ClientID, Now: i.now}).Verify(ctx, raw)
	if err != nil {
		return issued{}, errors.Join(errIDToken, err)
	}
	if subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(e.Nonce)) != 1 {
		return issued{}, errIDToken
	}
	return i.identity(id)
}
