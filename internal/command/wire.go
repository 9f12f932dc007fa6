package command

import (
	"time"

	"github.com/terrier-iac/terrier/internal/access/regtoken"
	"github.com/terrier-iac/terrier/internal/drift/patch"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/query"
)

// What commands send. Each is also what the server reads.
type (
	// SeenPlan is the plan that a user saw and decides about, with a comment.
	SeenPlan struct {
		Name    string `json:"name"`
		Digest  string `json:"digest,omitempty"`
		Comment string `json:"comment,omitempty"`
	}
	// SeenRepair is the repair plan that a user saw.
	SeenRepair struct {
		Name   string `json:"name"`
		Digest string `json:"digest,omitempty"`
	}
	// SeenRun is the run that a user saw and cancels.
	SeenRun struct {
		Run string `json:"run"`
	}
	// NamedLock names a lock; the caller's own if empty, where that is enough.
	NamedLock struct {
		ID string `json:"id,omitempty"`
	}
	// LockReason says why a user locks a state.
	LockReason struct {
		Reason string `json:"reason,omitempty"`
	}
	// AcceptReason says why a user accepts an unexpected state.
	AcceptReason struct {
		Reason string `json:"reason,omitempty"`
	}
	// SeenSteps are the steps after an apply that a user saw: their digest. Without one, those
	// that there are now are meant.
	SeenSteps struct {
		Digest string `json:"digest,omitempty"`
	}

	// AcceptDriftOrder accepts drift: the configuration is to be changed, and until then Terrier
	// does not enforce it.
	AcceptDriftOrder struct {
		query.DriftOrder
		Digest      string `json:"digest,omitempty"`      // of the plan that would enforce the configuration, as the user saw it
		Reason      string `json:"reason,omitempty"`      // for the audit log
		HoldSeconds int64  `json:"holdSeconds,omitempty"` // how long Terrier waits for the change; a day if 0, at most seven
		Branch      string `json:"branch,omitempty"`      // that the change is committed to and pushed as; none if empty
		PushSecret  string `json:"pushSecret,omitempty"`  // with the credentials for it; that of the source if empty
	}
	// StackRollback rolls a stack back to its last good apply, or ends a rollback.
	StackRollback struct {
		End    bool   `json:"end,omitempty"`    // the rollback: what the object asks for is planned again
		Leaves string `json:"leaves,omitempty"` // what the user saw, as canRollBack of the stack names it; whatever there is if empty
		Reason string `json:"reason,omitempty"` // for the audit log
	}
	// RollbackTo says which apply a rollback leaves, and to which it returns.
	RollbackTo struct {
		From string `json:"from"` // a revision
		To   string `json:"to"`   // likewise
		Plan string `json:"plan"` // by which that was applied
	}
	// RollbackOrder rolls a state back to a version. With Preview the answer only says
	// what that would do; without, Over and To are what the preview said.
	RollbackOrder struct {
		Version string `json:"version"`
		Force   bool   `json:"force,omitempty"`
		Preview bool   `json:"preview,omitempty"`
		Over    string `json:"over,omitempty"`
		To      string `json:"to,omitempty"`
	}
	// AllowedToken stands for exactly the deletions that are allowed.
	AllowedToken struct {
		Token string `json:"token"`
	}
	// RenderOrder renders a template with Row, or with the row of the tenant UID.
	RenderOrder struct {
		Row query.RowText `json:"row,omitempty"`
		UID string        `json:"uid,omitempty"`
	}
	// UndoOrder rolls a template back to a generation: the last good one if To is 0.
	// With Preview the answer only says what that would do; without, From is what the
	// preview said.
	UndoOrder struct {
		To      int64 `json:"to,omitempty"`
		From    int64 `json:"from,omitempty"`
		Preview bool  `json:"preview,omitempty"`
	}
)

// What commands answer, where questions have no type for it.
type (
	// Requested is a request that the controller answers later.
	Requested struct {
		Request string `json:"request"`
	}
	// AcceptedDrift is drift that was accepted.
	AcceptedDrift struct {
		Plan   string       `json:"plan"`             // that would enforce the configuration
		Digest string       `json:"digest"`           // of that plan
		Until  time.Time    `json:"until"`            // until when Terrier waits for the change
		Branch string       `json:"branch,omitempty"` // that was pushed
		Commit string       `json:"commit,omitempty"`
		Edits  []patch.Edit `json:"edits,omitempty"` // in that commit
		Open   []patch.Open `json:"open,omitempty"`  // what that commit does not accept
	}
	// Resumed is the generation of a template whose rollout continues.
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

// ReasonStateConflict is of a state that changed since the user saw it.
const ReasonStateConflict = kube.StateConflict

// NewestRun is the newest run, in an address.
const NewestRun = "newest"

// SignInLink signs in one browser, once, as the user that requested it.
type SignInLink struct {
	Path  string    `json:"path"` // below the address of the server
	Name  string    `json:"name"` // of the user
	Until time.Time `json:"until"`
}

// NewRegistryToken is a token of a namespace, for the registry, that a user wants.
type NewRegistryToken struct {
	Name        string `json:"name"`
	Write       bool   `json:"write,omitempty"`
	LifeSeconds int64  `json:"lifeSeconds"`
}

// MadeRegistryToken is such a token. Its secret is shown once.
type MadeRegistryToken struct {
	regtoken.Token
	Secret string `json:"secret"`
}

// Refusal is the body of every answer of the HTTP API that is not a success.
type Refusal struct {
	Error  string     `json:"error"`
	Kind   fault.Kind `json:"kind"`
	Reason string     `json:"reason,omitempty"`
	Hint   string     `json:"hint,omitempty"` // what to do about it
}

// NamedRetained names the record of a deleted stack.
type NamedRetained struct {
	UID string `json:"uid"`
}
