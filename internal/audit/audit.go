// Package audit keeps the journal: who did what to which stack, tenant or
// platform, and what became of it. It is files to which lines are appended and
// from which nothing is ever taken away. Each line holds the hash of the line
// before it, so that none can be changed, removed, inserted or moved without
// Verify naming the place; and whoever keeps the Head elsewhere notices if the
// end was cut off or everything was written anew.
//
// It holds no secrets, by what is put into it: names, digests, counts and what
// people wrote as comments. It asks nobody who may read it, it deletes nothing,
// and it does not say that something was recorded before it is on the disk.
//
// Start reading at Journal, then Verify.
package audit

import (
	"time"

	"github.com/terrier-iac/terrier/internal/stack"
)

// Entry is one line of the journal.
type Entry struct {
	Seq uint64    `json:"seq"` // 1, 2, 3 …; given by the journal
	At  time.Time `json:"at"`  // when it was recorded; never earlier than of the entry before

	ID  string `json:"id,omitempty"`  // of the deed: one that is among the newest entries already is not recorded again
	Who string `json:"who,omitempty"` // as the API server knows them; empty if it was nobody but Terrier
	Via Via    `json:"via,omitempty"`

	What   What   `json:"what"`
	Object Object `json:"object,omitzero"`

	Plan    string        `json:"plan,omitempty"`   // its name
	Digest  string        `json:"digest,omitempty"` // its identity
	Run     string        `json:"run,omitempty"`
	Outcome string        `json:"outcome,omitempty"`
	Changes stack.Changes `json:"changes,omitzero"`
	Comment string        `json:"comment,omitempty"` // what a person wrote
	Why     string        `json:"why,omitempty"`     // what we say of it

	Details map[string]string `json:"details,omitempty"` // names, digests and counts that have no field

	Prev string `json:"prev"` // hash of the line before, empty in the first of all; given by the journal
}

// Via is the way on which something was asked for.
type Via string

// The ways.
const (
	ViaUI         Via = "ui"         // pages in a browser
	ViaAPI        Via = "api"        // the HTTP API
	ViaCLI        Via = "cli"        // the command line of Terrier
	ViaKubectl    Via = "kubectl"    // the Kubernetes API, by whatever program
	ViaGit        Via = "git"        // a controller that applies what is in a repository
	ViaController Via = "controller" // Terrier itself, by its own rules
)

// What was done.
type What string

// Of stacks.
const (
	Planned           What = "planned"             // a plan with changes was made
	Approved          What = "approved"            // somebody let a plan through
	ApprovedStale     What = "approved-stale"      // somebody approved what is not the plan that waits
	Rejected          What = "rejected"            // somebody said no to a plan
	ApplyStarted      What = "apply-started"       // a run that changes the world began
	Applied           What = "applied"             // it made all of its changes
	ApplyFailed       What = "apply-failed"        // it did not
	DestroyStarted    What = "destroy-started"     // what a deleted stack built is being taken down
	Destroyed         What = "destroyed"           // it is gone
	DestroyFailed     What = "destroy-failed"      // it is not, or not all of it
	PlanFailed        What = "plan-failed"         // no plan could be made; once for a series of failures
	Recovered         What = "recovered"           // a series of failures ended
	DriftFound        What = "drift"               // the world is not what was applied
	DriftResolved     What = "drift-resolved"      // it is again
	GapFound          What = "gap-found"           // an apply was cut short, and the state does not know what it built
	GapForgotten      What = "gap-forgotten"       // somebody said to go on without it
	LockBroken        What = "lock-broken"         // the lock of somebody else was broken
	StateAccepted     What = "state-accepted"      // somebody accepted a state that should not have been there
	StateRolledBack   What = "state-rolled-back"   // somebody put an older state in the place of the newest
	StatePushed       What = "state-pushed"        // somebody put a state of theirs there
	GlassBegun        What = "glass-begun"         // somebody works by hand
	GlassCommand      What = "glass-command"       // a command of theirs is begun
	GlassCommandEnded What = "glass-command-ended" // it came to its end
	GlassEnded        What = "glass-ended"         // and no longer
	ReplanAsked       What = "replan-asked"        // somebody asked for a look at once
	RepairAsked       What = "repair-asked"        // somebody asked for a plan that imports what an apply left
	Changed           What = "changed"             // somebody changed what is asked for
	Created           What = "created"             // a stack, registry or template is new
	Suspended         What = "suspended"           // somebody said to leave it alone
	Resumed           What = "resumed"             // and no longer
	DeletionAsked     What = "deletion-asked"      // somebody deleted the object
	Deleted           What = "deleted"             // it was let go, and nothing of it is left
	Retained          What = "retained"            // it was let go, and what it built stays
	Orphaned          What = "orphaned"            // its object was removed by force
	RetainedForgotten What = "retained-forgotten"  // somebody dropped the record of what it left
	PlanRefused       What = "plan-refused"        // a webhook said no to a plan
	StateRead         What = "state-read"          // somebody read a state
	StateLocked       What = "state-locked"        // somebody holds the lock on a state by hand
	StateUnlocked     What = "state-unlocked"      // and no longer
)

// Of tenants.
const (
	GuardTripped      What = "guard-tripped"      // deletions are held back
	GuardCleared      What = "guard-cleared"      // there is nothing to hold back any more
	DeletionsAllowed  What = "deletions-allowed"  // somebody let exactly these deletions through
	RolloutStarted    What = "rollout-started"    // a change of a template goes to its tenants
	RolloutStopped    What = "rollout-stopped"    // it went wrong, and goes to no more of them
	RolloutResumed    What = "rollout-resumed"    // somebody said to go on
	RolloutFinished   What = "rollout-finished"   // all tenants have it
	RolloutUndone     What = "rollout-undone"     // the template is again what it was
	RegistrySuspended What = "registry-suspended" // somebody said not to read the table
	RegistryResumed   What = "registry-resumed"   // and to read it again
)

// Of the platform.
const (
	SignedIn       What = "signed-in"
	SignedOut      What = "signed-out"
	SignInRefused  What = "sign-in-refused"
	CommandDenied  What = "denied"          // somebody commanded what they may not
	JournalOpened  What = "journal-opened"  // a program began to write
	JournalCut     What = "journal-cut"     // a line that was cut short by a crash was taken off
	JournalDamaged What = "journal-damaged" // what was written before is not what was written
	Unreadable     What = "unreadable"      // in the place of a line that cannot be read; never recorded
)

// Object is what something was done to.
type Object struct {
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace,omitempty"` // empty for the platform itself
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
}

// Query chooses entries. Its zero value chooses all.
type Query struct {
	Since     time.Time // from then on
	Until     time.Time // before then
	Who       string    // exactly
	What      []What    // any of them; all if empty
	Via       Via
	Namespace string
	Stack     string // name of the object, whatever its kind
	Text      string // words that must all occur somewhere in the entry
	Before    uint64 // entries with a lower number; all if 0
	Limit     int    // 100 if 0, 1000 at most

	Seen func(namespace string) bool // which entries may be looked at; all if nil
}

// Page is what a query found, the newest first.
type Page struct {
	Items []Entry `json:"items"`
	Next  uint64  `json:"next,omitempty"` // the Before of the next page, 0 if there is none
}

// Head is the last entry of a journal: what has to be kept elsewhere so that a
// loss of the end is noticed.
type Head struct {
	Seq  uint64    `json:"seq"`
	Hash string    `json:"hash"` // of its line; empty if there is none
	At   time.Time `json:"at,omitzero"`
}

// Report is what Verify found.
type Report struct {
	Entries  uint64 `json:"entries"`
	Segments int    `json:"segments"`
	First    uint64 `json:"first,omitempty"` // number of the first entry that is there; higher than 1 if older segments were archived
	Head     Head   `json:"head"`
	Bad      *Bad   `json:"bad,omitempty"` // the first that is wrong, nil if nothing is
}

// Bad is the first place at which a journal is not what was written.
type Bad struct {
	Segment string `json:"segment"`
	Line    int    `json:"line,omitempty"` // from 1; 0 if it is the segment as a whole
	Seq     uint64 `json:"seq,omitempty"`  // of the entry that should be there
	What    string `json:"what"`
}

// Bad reports whether an entry tells of something that went wrong, or of somebody
// who was refused.
func (e Entry) Bad() bool {
	switch e.What {
	case ApplyFailed, DestroyFailed, PlanFailed, DriftFound, GapFound, PlanRefused, Orphaned, GuardTripped, RolloutStopped,
		SignInRefused, CommandDenied, JournalCut, JournalDamaged, Unreadable:
		return true
	default:
		return false
	}
}
