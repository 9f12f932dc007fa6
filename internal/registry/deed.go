package registry

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/terrier-iac/terrier/internal/address"
)

// Deed is what a user changes in a registry.
type Deed struct {
	ID        string // of the request: what is tried again has the same one
	What      What
	By        string // the user
	Namespace string
	Name      string          // of the module or provider, or the ID of a key
	Version   address.Version // empty for a key
	Reason    string          // of a retraction
	Details   map[string]string
}

// What is a kind of deed.
type What string

// The kinds.
const (
	ModulePublished   What = "module-published"
	ModuleRetracted   What = "module-retracted"
	ModuleRestored    What = "module-restored"
	ProviderPublished What = "provider-published"
	ProviderRetracted What = "provider-retracted"
	ProviderRestored  What = "provider-restored"
	KeyAdded          What = "signing-key-added"
	KeyRemoved        What = "signing-key-removed"
)

// deeds records what users change, after all checks and before it counts. What cannot be
// recorded does not happen. What was recorded may fail to be stored, and is then recorded
// once more by the next attempt of the user.
type deeds struct {
	Deed
	record func(context.Context, Deed) error
}

// deed begins a deed of a user.
func (c *common) deed(what What, by, namespace string, name fmt.Stringer, v address.Version) *deeds {
	return &deeds{Deed{ID: "registry/" + rand.Text(), What: what, By: by, Namespace: namespace, Name: name.String(), Version: v}, c.o.Record}
}

// done records the deed. It may be called again with the same deed.
func (d *deeds) done(ctx context.Context) error {
	if d.record == nil {
		return nil
	}
	return d.record(ctx, d.Deed)
}

// keyID is the name of a key.
type keyID string

func (k keyID) String() string { return string(k) }
