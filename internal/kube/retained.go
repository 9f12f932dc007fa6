package kube

import (
	"time"

	"github.com/terrier-iac/terrier/internal/stack"
)

// Retained is the record of a deleted stack whose resources still exist. It
// outlives every other record of the stack.
type Retained struct {
	Stack     string           `json:"stack"`          // namespace/name
	Kind      string           `json:"kind,omitempty"` // of the stack, as users call it; empty for the first kind
	UID       string           `json:"uid"`
	At        time.Time        `json:"at"`
	Why       string           `json:"why"`
	State     *StateRef        `json:"state,omitempty"`     // where its state stays, if Terrier kept it
	Resources []string         `json:"resources,omitempty"` // addresses in that state
	Sealed    bool             `json:"sealed,omitempty"`    // that state is encrypted, and they are not known
	Untracked *stack.Untracked `json:"gap,omitempty"`       // untracked resources
	Origin

	Forgotten []stack.ForgottenResource `json:"forgotten,omitempty"` // that its runs took out of the state and did not destroy
	GivenUp   []stack.GivenUp           `json:"givenUp,omitempty"`   // states in whose place a user accepted others
}

// Forgotten is the record of what a stack does not manage any more: the resources that its
// runs took out of the state and did not destroy, as its configuration asked, and the states
// that a user gave up. It is written before the run counts as taken over, or begins, and
// outlives the stack.
type Forgotten struct {
	Stack     string                    `json:"stack"`          // namespace/name
	Kind      string                    `json:"kind,omitempty"` // as of Retained
	UID       string                    `json:"uid"`
	Resources []stack.ForgottenResource `json:"resources"`
	GivenUp   []stack.GivenUp           `json:"givenUp,omitempty"`
}

// WhyRemoved is why a stack is retained whose object was removed by force. The time of such a
// record is when a controller noticed.
const WhyRemoved = "the object was removed before Terrier released it"

// existed is a time at which the stack existed: when it was released.
func (r Retained) existed() time.Time {
	if r.Why == WhyRemoved {
		return time.Time{}
	}
	return r.At
}

// In reports whether the stack was in n, and not in a former namespace of its name.
func (r Retained) In(n Namespace) bool { return r.Origin.In(n, r.existed()) }

// RetainedFor is how long the record of a deleted stack is kept.
const RetainedFor = 30 * 24 * time.Hour
