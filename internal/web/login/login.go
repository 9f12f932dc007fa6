// Package login is as much of OAuth 2.0 as "tofu login" and "terraform login" use: the
// authorization code grant with PKCE (RFC 6749, RFC 7636) of one public client that listens
// on this computer. There is no other grant, no other client and no secret.
//
// A code goes to no other address than that of the client, it works once, within a minute,
// and only for the client that asked for it. The package knows no sessions and makes no
// tokens: its callers do.
//
// Start reading at Parse, then at Codes.
package login

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
)

// The client, as the discovery document has it. Ports are those at which it may listen.
const (
	Client    = "terrier-cli"
	FirstPort = 10000
	LastPort  = 10010

	AuthorizePath = "/login/authorize"
	TokenPath     = "/login/token"
)

// Service is login.v1 of the discovery document.
func Service() map[string]any {
	return map[string]any{
		"client": Client, "grant_types": []string{"authz_code"}, "authz": AuthorizePath, "token": TokenPath,
		"ports": []int{FirstPort, LastPort},
	}
}

// Request is a valid request of a command line for a code.
type Request struct {
	Redirect  string // where it listens
	State     string // its own; it gets it back
	Challenge string // the hash of a secret that it shows with the code
}

// ReasonInvalid is the reason of a request that is not of a command line of this computer.
const ReasonInvalid = "LoginInvalid"

func invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, ReasonInvalid, fmt.Errorf(format, args...))
}

var (
	challenge = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)       // SHA-256, as base64url
	verifier  = regexp.MustCompile(`^[A-Za-z0-9._~-]{43,128}$`) // RFC 7636
	state     = regexp.MustCompile(`^[\x21-\x7e]{1,512}$`)
)

// redirects are all addresses that a code may go to, letter by letter.
var redirects = func() map[string]bool {
	all := map[string]bool{}
	for port := FirstPort; port <= LastPort; port++ {
		all[fmt.Sprintf("http://localhost:%d/login", port)] = true
	}
	return all
}()

// names are the parameters of a request that mean something here.
var names = []string{"response_type", "client_id", "redirect_uri", "state", "code_challenge", "code_challenge_method"}

// Parse reads the parameters of a request. A request with a fault is answered with a page
// and never with a redirect: the command line shows no more than that page.
func Parse(q url.Values) (Request, error) {
	for _, name := range names {
		if len(q[name]) > 1 {
			return Request{}, invalid("the request has %s twice", name)
		}
	}
	switch {
	case q.Get("client_id") != Client:
		return Request{}, invalid("the client_id %.80q is unknown here: this page is opened by tofu login or terraform login", q.Get("client_id"))
	case !redirects[q.Get("redirect_uri")]:
		return Request{}, invalid("the redirect_uri %.120q is not http://localhost:PORT/login with a port from %d to %d: a token would leave this computer", q.Get("redirect_uri"), FirstPort, LastPort)
	case q.Get("response_type") != "code":
		return Request{}, invalid("the response_type %.40q is not code", q.Get("response_type"))
	case q.Get("code_challenge_method") != "S256":
		return Request{}, invalid("the code_challenge_method %.40q is not S256: use a newer tofu or terraform", q.Get("code_challenge_method"))
	case !challenge.MatchString(q.Get("code_challenge")):
		return Request{}, invalid("the code_challenge is not a SHA-256 hash in base64url: use a newer tofu or terraform")
	case !state.MatchString(q.Get("state")):
		return Request{}, invalid("the state is missing, or has more than 512 characters or other than those of ASCII")
	}
	return Request{Redirect: q.Get("redirect_uri"), State: q.Get("state"), Challenge: q.Get("code_challenge")}, nil
}

// Values are the parameters of r, as Parse reads them.
func (r Request) Values() url.Values {
	return url.Values{
		"response_type": {"code"}, "client_id": {Client}, "redirect_uri": {r.Redirect}, "state": {r.State},
		"code_challenge": {r.Challenge}, "code_challenge_method": {"S256"},
	}
}

// Origin is the origin of the address that the code goes to.
func (r Request) Origin() string {
	u, err := url.Parse(r.Redirect)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// Port is the port of that address.
func (r Request) Port() string {
	_, port, _ := strings.Cut(strings.TrimPrefix(r.Origin(), "http://"), ":")
	return port
}

// Answer is the address that brings a code to the command line.
func (r Request) Answer(code string) string {
	return r.Redirect + "?" + url.Values{"code": {code}, "state": {r.State}}.Encode()
}

// Bounds of codes that were not exchanged.
const (
	CodeLife = time.Minute
	codesOf  = 16   // of one user at once
	codesAll = 1024 // together
)

// Codes are the codes that were not exchanged yet. Only their hashes are stored.
type Codes struct {
	now func() time.Time

	mu   sync.Mutex
	made map[[sha256.Size]byte]code
}

type code struct {
	user    access.User
	request Request
	until   time.Time
	used    bool // it stays until then, so that a second use is told apart from a wrong code
}

// NewCodes returns that there are no codes.
func NewCodes(now func() time.Time) *Codes {
	return &Codes{now: now, made: map[[sha256.Size]byte]code{}}
}

// Make returns a code for a request that a user confirmed.
func (c *Codes) Make(r Request, user access.User) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, own := c.now(), 0
	maps.DeleteFunc(c.made, func(_ [sha256.Size]byte, x code) bool {
		if !now.Before(x.until) {
			return true
		}
		if x.user.Name == user.Name {
			own++
		}
		return false
	})
	if own >= codesOf || len(c.made) >= codesAll {
		return "", fault.Wait(CodeLife, "TooManyLogins", errors.New("too many command lines ask for tokens at the same time"))
	}
	b := make([]byte, 32)
	rand.Read(b) // never fails
	text := base64.RawURLEncoding.EncodeToString(b)
	c.made[sha256.Sum256([]byte(text))] = code{user: user, request: r, until: now.Add(CodeLife)}
	return text, nil
}

// Error is a refusal as RFC 6749 has it.
type Error struct {
	Code        string `json:"error"`
	Description string `json:"error_description"`
}

func (e *Error) Error() string { return e.Description }

// The codes of refusals.
const (
	InvalidRequest = "invalid_request"
	InvalidClient  = "invalid_client"
	InvalidGrant   = "invalid_grant"
	UnknownGrant   = "unsupported_grant_type"
	ServerError    = "server_error"
	Unavailable    = "temporarily_unavailable"
)

func refused(code, format string, args ...any) *Error {
	return &Error{code, fmt.Sprintf(format, args...)}
}

const again = "; run tofu login again"

// Exchange takes the code of a form, which is of no use from then on, and returns the user
// who confirmed the request. The first of several uses of a code wins, also if it then fails:
// a code that others have seen is no code any more.
func (c *Codes) Exchange(form url.Values) (access.User, *Error) {
	for _, name := range []string{"grant_type", "client_id", "client_secret", "code", "code_verifier", "redirect_uri"} {
		if len(form[name]) > 1 {
			return access.User{}, refused(InvalidRequest, "the request has %s twice", name)
		}
	}
	switch {
	case form.Get("grant_type") != "authorization_code":
		return access.User{}, refused(UnknownGrant, "the grant_type is not authorization_code, the only one here")
	case form.Get("client_id") != Client || form.Has("client_secret"):
		return access.User{}, refused(InvalidClient, "the client_id is not %s, which has no secret", Client)
	case form.Get("code") == "":
		return access.User{}, refused(InvalidRequest, "the code is missing")
	}
	x, state := c.take(form.Get("code"))
	switch {
	case state == codeUsed:
		return x.user, refused(InvalidGrant, "the code was used before%s", again)
	case state == codeUnknown:
		return access.User{}, refused(InvalidGrant, "the code has expired after %s, or it is wrong%s", CodeLife, again)
	case form.Get("redirect_uri") != x.request.Redirect:
		return x.user, refused(InvalidGrant, "the redirect_uri is another one than that of the code%s", again)
	case !verifier.MatchString(form.Get("code_verifier")) || !x.request.proves(form.Get("code_verifier")):
		return x.user, refused(InvalidGrant, "the code_verifier does not match: another program asked for this code%s", again)
	}
	return x.user, nil
}

type found int

const (
	codeUnknown found = iota
	codeUsed
	codeGood
)

func (c *Codes) take(text string) (code, found) {
	c.mu.Lock()
	defer c.mu.Unlock()
	hash := sha256.Sum256([]byte(text))
	x, ok := c.made[hash]
	switch {
	case !ok || !c.now().Before(x.until):
		return code{}, codeUnknown
	case x.used:
		return x, codeUsed
	}
	used := x
	used.used = true
	c.made[hash] = used
	return x, codeGood
}

// proves reports whether a verifier is the secret that the challenge is the hash of.
func (r Request) proves(verifier string) bool {
	sum := sha256.Sum256([]byte(verifier))
	return subtle.ConstantTimeCompare([]byte(base64.RawURLEncoding.EncodeToString(sum[:])), []byte(r.Challenge)) == 1
}
