package issuer

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
	"github.com/terrier-iac/terrier/internal/identity"
	"github.com/terrier-iac/terrier/internal/secret"
)

// Purpose is what the key of Grants is derived for.
const Purpose = "grants of identities"

// Grant says of a run which tokens it may have, until it expires. The controller that starts
// the run makes it, and any controller with the same key checks it; none of them keeps it.
// Only the supervisor of the run has it, and only while the run goes on it is worth anything.
type Grant struct {
	identity.Run
	Key     string         `json:"key"` // of the run, see runner.Key
	Uses    []identity.Use `json:"uses"`
	Expires time.Time      `json:"expires"`
}

// Grants seals and opens grants.
type Grants struct{ key []byte }

// minKey is the least length of a key, in bytes.
const minKey = 16

// NewGrants returns Grants. All controllers of an installation have the same key.
func NewGrants(key secret.Text) (*Grants, error) {
	k := []byte(key.Reveal())
	if len(k) < minKey {
		return nil, fmt.Errorf("the key of grants has %d bytes, want at least %d", len(k), minKey)
	}
	return &Grants{key: k}, nil
}

// Seal makes the text of a grant.
func (g *Grants) Seal(grant Grant) (secret.Text, error) {
	if grant.ID == "" || grant.Key == "" || grant.Expires.IsZero() {
		return secret.Text{}, errors.New("a grant has no run or no end")
	}
	if _, err := grant.Subject(); err != nil {
		return secret.Text{}, err
	}
	text, err := json.Marshal(grant)
	if err != nil {
		return secret.Text{}, err
	}
	b := base64.RawURLEncoding
	return secret.New(b.EncodeToString(text) + "." + b.EncodeToString(g.mac(text))), nil
}

// ReasonGrant is the reason of a grant that is foreign, changed or expired.
const ReasonGrant = "IdentityGrantInvalid"

// Open returns what a grant says. One that is foreign, changed or expired is Denied.
func (g *Grants) Open(text string, now time.Time) (Grant, error) {
	foreign := fault.New(fault.Denied, ReasonGrant, errors.New("the grant of the run is not one of this installation"))
	first, second, parted := strings.Cut(text, ".")
	b := base64.RawURLEncoding.Strict()
	said, err := b.DecodeString(first)
	if !parted || err != nil {
		return Grant{}, foreign
	}
	mac, err := b.DecodeString(second)
	if err != nil || !hmac.Equal(mac, g.mac(said)) {
		return Grant{}, foreign
	}
	var grant Grant
	if json.Unmarshal(said, &grant) != nil {
		return Grant{}, foreign
	}
	if !now.Before(grant.Expires) {
		return Grant{}, fault.New(fault.Denied, ReasonGrant, fmt.Errorf("the grant of run %s expired at %s", grant.ID, grant.Expires.UTC().Format(time.RFC3339)))
	}
	return grant, nil
}

func (g *Grants) mac(text []byte) []byte {
	h := hmac.New(sha256.New, g.key)
	_, _ = h.Write([]byte(Purpose + "\x00"))
	_, _ = h.Write(text)
	return h.Sum(nil)
}
