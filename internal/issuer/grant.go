package issuer

import (
	"errors"
	"time"

	"github.com/terrier-iac/terrier/internal/identity"
	"github.com/terrier-iac/terrier/internal/sealed"
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

// Of implements sealed.Content.
func (g Grant) Of() string { return g.ID }

// ExpiresAt implements sealed.Content.
func (g Grant) ExpiresAt() time.Time { return g.Expires }

// Check implements sealed.Content.
func (g Grant) Check() error {
	if g.ID == "" || g.Key == "" || g.Expires.IsZero() {
		return errors.New("a grant has no run or no end")
	}
	_, err := g.Subject()
	return err
}

// ReasonGrant is the reason of a grant that is foreign, changed or expired.
const ReasonGrant = "IdentityGrantInvalid"

// NewGrants returns what seals and opens grants. All controllers of an installation have the
// same key.
func NewGrants(key secret.Text) (*sealed.Texts[Grant], error) {
	return sealed.New[Grant](sealed.Kind{Purpose: Purpose, What: "grant of the run", Foreign: ReasonGrant, Expired: ReasonGrant}, key)
}
