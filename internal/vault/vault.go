// Package vault reads secrets of OpenBao and HashiCorp Vault: it signs in, reads, renews
// what ends, and gives back what it was handed out.
//
// A Session is one sign-in, and everything that is read with it ends with it: leases
// belong to the token that they were made with. So who keeps the accessor of a session
// can end all of it, also after a crash.
//
// The package keeps nothing, caches nothing and retries nothing: its errors say whether
// another attempt may succeed, and how to go on. No error holds a secret that was read.
// The requests are those of the HTTP API of both servers, version 1. They are few and
// plain JSON, so it takes no library.
//
// Start reading at Server.SignIn and Session.Read.
package vault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
)

// The reasons of this package's faults.
const (
	ReasonUnreachable = "VaultUnreachable" // it does not answer, or answers with an error of its own
	ReasonSealed      = "VaultSealed"
	ReasonSignIn      = "VaultSignInFailed" // it does not accept the identity
	ReasonDenied      = "VaultAccessDenied" // the identity lacks a right
	ReasonNoSecret    = "VaultSecretMissing"
	ReasonNoMount     = "VaultMountMissing" // so that it is not known whether there is a secret
	ReasonPath        = "VaultPathInvalid"
	ReasonMade        = "VaultSecretMade" // only a secret that stays was wanted
)

// maxAnswer bounds an answer, in bytes: a secret of Vault has at most 1 MiB by default.
const maxAnswer = 4 << 20

// Server is one OpenBao or Vault.
type Server struct {
	URL       *url.URL     // without the path of the API
	Namespace string       // of the server; empty for its root
	HTTP      *http.Client // decides which addresses and certificates are accepted
}

// String names the server, for messages.
func (s Server) String() string {
	if s.Namespace == "" {
		return s.URL.Host
	}
	return s.URL.Host + " (namespace " + s.Namespace + ")"
}

// request is one call of the API.
type request struct {
	method string
	path   string // below /v1/
	query  url.Values
	in     any // nil for no body
	token  secret.Text
}

// answer is what the API answers with.
type answer struct {
	RequestID string          `json:"request_id"`
	LeaseID   string          `json:"lease_id"`
	Duration  int64           `json:"lease_duration"` // seconds
	Renewable bool            `json:"renewable"`
	Data      json.RawMessage `json:"data"`
	Auth      *struct {
		Token     string `json:"client_token"`
		Accessor  string `json:"accessor"`
		Duration  int64  `json:"lease_duration"` // seconds; 0 is without an end
		Renewable bool   `json:"renewable"`
	} `json:"auth"`
	Warnings []string `json:"warnings"`
}

// refusal is an answer that is no success.
type refusal struct {
	code   int
	errors []string
}

func (r refusal) Error() string {
	text := strings.Join(strings.Fields(strings.Join(r.errors, "; ")), " ")
	if text == "" {
		text = http.StatusText(r.code)
	}
	return fmt.Sprintf("%d: %s", r.code, fault.Shorten(text, 300))
}

func (r refusal) says(texts ...string) bool {
	for _, e := range r.errors {
		for _, text := range texts {
			if strings.Contains(e, text) {
				return true
			}
		}
	}
	return false
}

// do makes a request. Its error is a refusal if the server gave one.
func (s Server) do(ctx context.Context, r request) (answer, error) {
	var body io.Reader
	if r.in != nil {
		b, err := json.Marshal(r.in)
		if err != nil {
			return answer{}, err
		}
		body = bytes.NewReader(b)
	}
	at := s.URL.JoinPath("v1")
	// The path is a text: what looks like an escape in it is none.
	at.Path, at.RawPath, at.RawQuery = at.Path+"/"+r.path, "", r.query.Encode()
	ask, err := http.NewRequestWithContext(ctx, r.method, at.String(), body)
	if err != nil {
		return answer{}, err
	}
	ask.Header.Set("X-Vault-Request", "true")
	if body != nil {
		ask.Header.Set("Content-Type", "application/json")
	}
	if s.Namespace != "" {
		ask.Header.Set("X-Vault-Namespace", s.Namespace)
	}
	if !r.token.Empty() {
		ask.Header.Set("X-Vault-Token", r.token.Reveal())
	}
	resp, err := s.HTTP.Do(ask)
	if err != nil {
		return answer{}, unwrapURL(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return answer{}, err
	case len(text) > maxAnswer:
		return answer{}, fmt.Errorf("its answer has more than %d MiB", maxAnswer>>20)
	case resp.StatusCode/100 != 2:
		var said struct{ Errors []string }
		_ = json.Unmarshal(text, &said) // a proxy between may answer in its own words, which are not shown
		return answer{}, refusal{resp.StatusCode, said.Errors}
	}
	var out answer
	if len(text) > 0 {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		err = errors.New("its answer is no JSON") // the error of the parser may quote a secret
	}
	return out, err
}

// unwrapURL removes the URL from an error of the HTTP client: its query may hold what is
// to be decrypted.
func unwrapURL(err error) error {
	if of, ok := errors.AsType[*url.Error](err); ok {
		return of.Err
	}
	return err
}

// explain gives an error its kind, its reason and the way out. The text doing says what
// failed; denied says what to do where a right lacks.
func (s Server) explain(err error, doing, denied string) error {
	if err == nil || fault.Reason(err, "") != "" {
		return err
	}
	as := func(kind fault.Kind, reason, way string) error {
		return fault.New(kind, reason, fmt.Errorf("%s, at the Vault %s: %w: %s", doing, s, err, way))
	}
	r, ok := errors.AsType[refusal](err)
	switch {
	case !ok:
		return as(fault.Later, ReasonUnreachable, "check that the server runs, its address and the network. Terrier tries again by itself")
	case r.code == http.StatusForbidden:
		return as(fault.Denied, ReasonDenied, denied)
	case r.code == http.StatusNotFound && len(r.errors) > 0: // about the route: of a secret that is not there nothing is said
		return as(fault.Missing, ReasonNoMount, "check the mount and the path")
	case r.code == http.StatusNotFound:
		return as(fault.Missing, ReasonNoSecret, "check the path, and that the secret exists")
	case r.code == http.StatusServiceUnavailable && r.says("sealed"):
		return as(fault.Later, ReasonSealed, "unseal it. Terrier goes on by itself then")
	case r.code == http.StatusTooManyRequests || r.code/100 == 5:
		return as(fault.Later, ReasonUnreachable, "look at the log of the server. Terrier tries again by itself")
	case r.code == http.StatusBadRequest:
		// Later, and not Invalid: what has to change may be a role or an engine of the server.
		return as(fault.Later, ReasonPath, "correct what is asked of it, or the role or the engine there. Terrier tries again by itself")
	}
	return as(fault.Later, ReasonUnreachable, "look at the log of the server. Terrier tries again by itself")
}

// Silent reports whether err says that a server gave no answer. One that answers with an error
// of its own is there, and may have an answer to another question.
func Silent(err error) bool {
	_, refused := errors.AsType[refusal](err)
	return fault.Reason(err, "") == ReasonUnreachable && !refused
}

// seconds is a number of them as a duration.
func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }
