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

// RetainedFor is how long the record of a deleted stack is kept.
const RetainedFor = 30 * 24 * time.Hour
