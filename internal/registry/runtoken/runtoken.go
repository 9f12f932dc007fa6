// Package runtoken makes and checks the tokens by which runs read from the registry.
//
// A token is valid for one run of one stack, in one namespace, until it expires. It is
// stateless: the controller that starts the run makes it, and any controller with the same
// key checks it. It says who reads and no more: what a run may read, and whether it still goes
// on, is decided by the code that checks it, and a run never writes.
//
// Only the supervisor of a run has its token. The sandbox has a secret of the supervisor's
// own, which is worth nothing outside of it (package relay of the runner).
//
// Start reading at Signer.
package runtoken

import (
	"fmt"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/sealed"
	"github.com/terrier-iac/terrier/internal/secret"
)

// Purpose is what the key of a Signer is derived for.
const Purpose = "tokens of runs for the registry"

// Prefix is how such a token begins, and no other one does.
const Prefix = "terrier-run."

// The reasons of refusals, which are faults of kind Denied.
const (
	ReasonForeign = "RunTokenInvalid" // of another installation, or no token at all
	ReasonExpired = "RunTokenExpired"
)

// Claims are what a token says about its owner.
type Claims struct {
	Run       string    // the ID of the run
	Key       string    // of the run, see runner.Key
	Namespace string    // of the stack: the tenant
	Expires   time.Time // to the second
}

// payload is what is sealed.
type payload struct {
	Run       string `json:"run"`
	Key       string `json:"stack"`
	Namespace string `json:"ns"`
	Expires   int64  `json:"exp"`
}

// Of implements sealed.Content.
func (p payload) Of() string { return p.Run }

// ExpiresAt implements sealed.Content.
func (p payload) ExpiresAt() time.Time { return time.Unix(p.Expires, 0).UTC() }

// Check implements sealed.Content.
func (p payload) Check() error {
	if p.Run == "" || p.Key == "" || p.Namespace == "" {
		return fmt.Errorf("the token of run %q with the key %q in namespace %q has no owner", p.Run, p.Key, p.Namespace)
	}
	return nil
}

// Signer makes and checks tokens.
type Signer struct{ texts *sealed.Texts[payload] }

// New returns a Signer. All controllers of an installation have the same key.
func New(key secret.Text) (*Signer, error) {
	texts, err := sealed.New[payload](sealed.Kind{Purpose: Purpose, Prefix: Prefix, What: "token of the run", Foreign: ReasonForeign, Expired: ReasonExpired}, key)
	return &Signer{texts}, err
}

// Is reports whether a text looks like a token of a run, without checking it.
func Is(token string) bool { return strings.HasPrefix(token, Prefix) }

// Issue makes a token.
func (s *Signer) Issue(c Claims) (secret.Text, error) {
	if c.Expires.IsZero() {
		return secret.Text{}, fmt.Errorf("the token of run %q has no end", c.Run)
	}
	return s.texts.Seal(payload{c.Run, c.Key, c.Namespace, c.Expires.Unix()})
}

// Check returns what a token says. A token that is foreign, changed or expired is Denied.
func (s *Signer) Check(token string, now time.Time) (Claims, error) {
	p, err := s.texts.Open(token, now)
	if err != nil {
		return Claims{}, err
	}
	return Claims{Run: p.Run, Key: p.Key, Namespace: p.Namespace, Expires: p.ExpiresAt()}, nil
}
