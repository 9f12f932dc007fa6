package kube

import (
	"time"

	"github.com/terrier-iac/terrier/internal/stack"
)

// Retained is the record of a stack that was let go while something that it
// built still exists. It outlives everything else that was kept of the stack.
type Retained struct {
	Stack     string           `json:"stack"` // namespace/name
	UID       string           `json:"uid"`
	At        time.Time        `json:"at"`
	Why       string           `json:"why"`
	State     *StateRef        `json:"state,omitempty"`     // where its state stays, if we kept it
	Resources []string         `json:"resources,omitempty"` // addresses in that state
	Untracked *stack.Untracked `json:"gap,omitempty"`       // what is in no state
}

// RetainedFor is how long the record of a stack that is gone is kept.
const RetainedFor = 30 * 24 * time.Hour
