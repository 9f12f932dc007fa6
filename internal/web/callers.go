package web

import (
	"net/http"
	"strings"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/access/regtoken"
	"github.com/terrier-iac/terrier/internal/secret"
)

// callers find out which user sends a request.
type callers struct {
	auth     Auth
	recent   Auth // with a cache of some seconds
	sessions *sessions
	tokens   Tokens // for the registry; nil without
}

// identify returns the user of a request: of its token, else of the session of
// its browser.
func (u callers) identify(r *http.Request) (access.User, error) {
	if u.sessions.shown(r) {
		return u.ofSession(r)
	}
	return u.auth.Authenticate(r.Context(), tokenOf(r))
}

// identifyForRegistry is identify for a route that tokens for the registry open, too.
func (u callers) identifyForRegistry(r *http.Request) (access.User, error) {
	if u.byToken(r) {
		return u.tokens.Authenticate(r.Context(), tokenOf(r))
	}
	return u.identify(r)
}

// byToken reports whether a request has a token for the registry.
func (u callers) byToken(r *http.Request) bool { return u.tokens != nil && regtoken.Is(tokenOf(r)) }

// ofSession is the user of a request with a cookie.
func (u callers) ofSession(r *http.Request) (access.User, error) {
	x, err := u.sessions.open(r)
	if err != nil {
		return access.User{}, err
	}
	if x.Known != nil {
		return x.Known.user(), nil
	}
	return u.recent.Authenticate(r.Context(), secret.New(x.Token))
}

// tokenOf reads the token of a request: a bearer token, or the password of
// registry clients, which support nothing else.
func tokenOf(r *http.Request) secret.Text {
	if _, password, ok := r.BasicAuth(); ok {
		return secret.New(password)
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return secret.Text{}
	}
	return secret.New(strings.TrimSpace(token))
}
