package command

import (
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/query"
)

// What commands send. Each is also what the server reads.
type (
	// SeenPlan is the plan that somebody saw when they decided about it, and what
	// they say to that.
	SeenPlan struct {
		Name    string `json:"name"`
		Digest  string `json:"digest,omitempty"`
		Comment string `json:"comment,omitempty"`
	}
	// SeenRepair is the plan of a repair that somebody saw.
	SeenRepair struct {
		Name   string `json:"name"`
		Digest string `json:"digest,omitempty"`
	}
	// NamedLock names a lock. Empty is the caller's own, where that is enough.
	NamedLock struct {
		ID string `json:"id,omitempty"`
	}
	// LockReason says why a state is to be locked.
	LockReason struct {
		Reason string `json:"reason,omitempty"`
	}
	// RollbackOrder asks for an older version of a state. With Preview it is only
	// said what that would do; without, Over and To are what was said then.
	RollbackOrder struct {
		Version string `json:"version"`
		Force   bool   `json:"force,omitempty"`
		Preview bool   `json:"preview,omitempty"`
		Over    string `json:"over,omitempty"`
		To      string `json:"to,omitempty"`
	}
	// AllowedToken stands for exactly the deletions that may pass.
	AllowedToken struct {
		Token string `json:"token"`
	}
	// RenderOrder asks for what a template makes of a row: of Row, or of that of the
	// tenant with the UID.
	RenderOrder struct {
		Row query.RowText `json:"row,omitempty"`
		UID string        `json:"uid,omitempty"`
	}
	// UndoOrder asks for an older generation of a template: the last good one if To
	// is 0. With Preview it is only said what that would do; without, From is what
	// was said then.
	UndoOrder struct {
		To      int64 `json:"to,omitempty"`
		From    int64 `json:"from,omitempty"`
		Preview bool  `json:"preview,omitempty"`
	}
)

// What commands answer, where that is no type that reads have as well.
type (
	// Requested is a request that the controller answers later.
	Requested struct {
		Request string `json:"request"`
	}
	// Resumed is the generation of a template whose rollout goes on.
	Resumed struct {
		Generation int64 `json:"generation"`
	}
	// UndoView is what an Undoing would do.
	UndoView struct {
		From int64 `json:"from"`
		To   int64 `json:"to"`
		Same bool  `json:"same,omitempty"` // the two do not differ
	}
)

// ReasonStateConflict is of a state that is not what it was when somebody looked.
const ReasonStateConflict = kube.StateConflict

// NewestRun stands for the newest run in an address.
const NewestRun = "newest"

// SignInLink lets one browser in, once, as whoever asked for it.
type SignInLink struct {
	Path  string    `json:"path"` // below the address of the server
	Name  string    `json:"name"` // who somebody is there
	Until time.Time `json:"until"`
}

// Refusal is the body of every answer of the HTTP API that is not a success.
type Refusal struct {
	Error  string     `json:"error"`
	Kind   fault.Kind `json:"kind"`
	Reason string     `json:"reason,omitempty"`
	Hint   string     `json:"hint,omitempty"` // what to do about it
}

// NamedRetained names the record of one stack that is gone.
type NamedRetained struct {
	UID string `json:"uid"`
}
