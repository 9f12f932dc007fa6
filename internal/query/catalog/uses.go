package catalog

import (
	"time"

	"github.com/terrier-iac/terrier/internal/query"
)

// Use is a stack that uses a module or a provider of the registry.
type Use struct {
	Stack      query.Key `json:"stack"`
	Version    string    `json:"version,omitempty"`    // that its last run installed; empty if that is not known
	Constraint string    `json:"constraint,omitempty"` // as its configuration has it
	Since      time.Time `json:"since,omitzero"`       // when a run of the stack installed this version first
	Path       string    `json:"path,omitempty"`       // of a module: the call, as module.net.module.vpc
}

// UsedBy is the stacks that use something, as one user sees them.
type UsedBy struct {
	Items  []Use `json:"items"`            // sorted by stack
	Hidden int   `json:"hidden,omitempty"` // stacks that the user may not view

	// What the list may lack, of stacks that the user may view.
	Unread        int         `json:"unread,omitempty"`        // stacks whose records are still to be read
	Unknown       int         `json:"unknown,omitempty"`       // stacks of which no run has found out what they use
	UnknownStacks []query.Key `json:"unknownStacks,omitempty"` // the first of these
}
