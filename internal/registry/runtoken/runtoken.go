// Package runtoken makes and checks the tokens by which runs read from the registry.
//
// A token is valid for one run of one stack, in one namespace, until it expires. It is
// stateless: the controller that starts the run makes it, and any controller with the same
// key checks it. It says who reads and no more: what a run may read is decided by the code
// that checks it, and a run never writes.
//
// Only the supervisor of a run has its token. The sandbox has a secret of the supervisor's
// own, which is worth nothing outside of it (package relay of the runner).
//
// Start reading at Signer.
package runtoken

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
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
	Stack     string    // the UID of its stack
	Namespace string    // of the stack: the tenant
	Expires   time.Time // to the second
}

// payload is what is signed.
type payload struct {
	Run       string `json:"run"`
	Stack     string `json:"stack"`
	Namespace string `json:"ns"`
	Expires   int64  `json:"exp"`
}

// Signer makes and checks tokens.
type Signer struct{ key []byte }

// minKey is the least length of a key, in bytes.
const minKey = 16

// New returns a Signer. All controllers of an installation have the same key.
func New(key secret.Text) (*Signer, error) {
	k := []byte(key.Reveal())
	if len(k) < minKey {
		return nil, fmt.Errorf("the key of the tokens of runs has %d bytes, want at least %d", len(k), minKey)
	}
	return &Signer{key: k}, nil
}

// Is reports whether a text looks like a token of a run, without checking it.
func Is(token string) bool { return strings.HasPrefix(token, Prefix) }

// Issue makes a token.
func (s *Signer) Issue(c Claims) (secret.Text, error) {
	if c.Run == "" || c.Stack == "" || c.Namespace == "" || c.Expires.IsZero() {
		return secret.Text{}, fmt.Errorf("the token of run %q of stack %q in namespace %q has no owner or no end", c.Run, c.Stack, c.Namespace)
	}
	text, err := json.Marshal(payload{c.Run, c.Stack, c.Namespace, c.Expires.Unix()})
	if err != nil {
		return secret.Text{}, err
	}
	b := base64.RawURLEncoding
	return secret.New(Prefix + b.EncodeToString(text) + "." + b.EncodeToString(s.mac(text))), nil
}

// Check returns what a token says. A token that is foreign, changed or expired is Denied.
func (s *Signer) Check(token string, now time.Time) (Claims, error) {
	foreign := fault.New(fault.Denied, ReasonForeign, errors.New("the token of the run is not one of this installation"))
	rest, ok := strings.CutPrefix(token, Prefix)
	first, second, parted := strings.Cut(rest, ".")
	if !ok || !parted {
		return Claims{}, foreign
	}
	b := base64.RawURLEncoding.Strict()
	text, err := b.DecodeString(first)
	if err != nil {
		return Claims{}, foreign
	}
	mac, err := b.DecodeString(second)
	if err != nil || !hmac.Equal(mac, s.mac(text)) {
		return Claims{}, foreign
	}
	var p payload
	if json.Unmarshal(text, &p) != nil {
		return Claims{}, foreign
	}
	c := Claims{Run: p.Run, Stack: p.Stack, Namespace: p.Namespace, Expires: time.Unix(p.Expires, 0).UTC()}
	if !now.Before(c.Expires) {
		return Claims{}, fault.New(fault.Denied, ReasonExpired, fmt.Errorf("the token of run %s expired at %s", c.Run, c.Expires.Format(time.RFC3339)))
	}
	return c, nil
}

// mac signs for this purpose alone.
func (s *Signer) mac(text []byte) []byte {
	h := hmac.New(sha256.New, s.key)
	_, _ = h.Write([]byte(Purpose + "\x00"))
	_, _ = h.Write(text)
	return h.Sum(nil)
}
