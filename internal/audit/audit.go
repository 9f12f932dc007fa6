// Package audit keeps the audit log: who did what to which stack, tenant or
// platform, and the outcome. The log is files to which lines are appended and from
// which none is ever removed. Each line holds the hash of the line before it, so
// that Verify finds every line that was changed, removed, inserted or moved; and a
// Head that is kept elsewhere shows whether the end was removed or the whole log
// was rewritten.
//
// Entries hold no secrets: only names, digests, counts and the comments of users.
// The package checks no permissions, deletes nothing, and confirms an entry only
// once it is on the disk.
//
// Start reading at Log, then Verify.
package audit

import (
	"cmp"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/stack"
)

// Entry is one line of the audit log.
type Entry struct {
	Seq uint64    `json:"seq"` // 1, 2, 3 …; set by the log
	At  time.Time `json:"at"`  // when it was recorded; never earlier than of the entry before

	ID  string `json:"id,omitempty"`  // of the action: an ID of one of the newest entries is not recorded again
	Who string `json:"who,omitempty"` // the user, as the API server knows them; empty if Terrier acted by itself
	Via Via    `json:"via,omitempty"`

	// The user whom the object names, where the API server is not known to have recorded that.
	// Any user may have written it, so it is not verified, and Who is empty.
	Claimed string `json:"claimed,omitempty"`

	What   What   `json:"what"`
	Object Object `json:"object,omitzero"`

	Plan    string        `json:"plan,omitempty"`   // its name
	Digest  string        `json:"digest,omitempty"` // its identity
	Run     string        `json:"run,omitempty"`
	Outcome string        `json:"outcome,omitempty"`
	Changes stack.Changes `json:"changes,omitzero"`
	Comment string        `json:"comment,omitempty"` // of a user
	Why     string        `json:"why,omitempty"`     // an explanation by Terrier

	Details map[string]string `json:"details,omitempty"` // names, digests and counts that have no field

	Prev string `json:"prev"` // hash of the line before, empty in the first of all; set by the log
}

// Via is the interface through which a request came.
type Via string

const (
	ViaUI         Via = "ui"         // pages in a browser
	ViaAPI        Via = "api"        // the HTTP API
	ViaCLI        Via = "cli"        // the command line of Terrier
	ViaKubectl    Via = "kubectl"    // the Kubernetes API, by any other program
	ViaGit        Via = "git"        // a controller that applies a repository
	ViaController Via = "controller" // Terrier itself, by its own rules
)

// What is an action or a finding.
type What string

// Of stacks.
const (
	Planned           What = "planned"            // a plan with changes was made
	Approved          What = "approved"           // a user approved a plan
	ApprovedStale     What = "approved-stale"     // a user approved another plan than the pending one
	Rejected          What = "rejected"           // a user rejected a plan
	WindowOverridden  What = "window-overridden"  // a user wants a plan to be applied outside of the windows of policies
	RejectedLate      What = "rejected-late"      // a user rejected a plan that was not pending any more: it is being applied, was applied or was replaced
	ApplyStarted      What = "apply-started"      // a run that changes resources began; also one that destroys those of spec.targets
	Applied           What = "applied"            // it made all of its changes
	ApplyFailed       What = "apply-failed"       // it did not
	StepsStarted      What = "steps-started"      // the steps after an apply began
	StepsEnded        What = "steps-ended"        // they ended, as the outcome says
	DestroyStarted    What = "destroy-started"    // the destroy of all resources began
	Destroyed         What = "destroyed"          // all resources are destroyed
	DestroyFailed     What = "destroy-failed"     // some resources are not destroyed
	PlanFailed        What = "plan-failed"        // no plan could be made; once for a series of failures
	Recovered         What = "recovered"          // a series of failures ended
	DriftFound        What = "drift"              // resources differ from what was applied
	DriftAccepted     What = "drift-accepted"     // a user accepted drift: the configuration is to be changed
	DriftResolved     What = "drift-resolved"     // they do not differ any more
	RollbackAsked     What = "rollback-asked"     // a user asked for the last good apply again
	RolledBack        What = "rolled-back"        // inputs of an earlier apply took the place of those that are asked for
	RollbackEndAsked  What = "rollback-end-asked" // a user asked for the end of a rollback
	RollbackEnded     What = "rollback-ended"     // what the object asks for counts again
	UntrackedFound    What = "untracked-found"    // an apply was interrupted, and may have created untracked resources
	UntrackedIgnored  What = "untracked-ignored"  // a user ignored them
	LockBroken        What = "lock-broken"        // a foreign lock was broken
	StateAccepted     What = "state-accepted"     // a user accepted an unexpected state
	StateRolledBack   What = "state-rolled-back"  // a user rolled the state back to an older version
	StatePushed       What = "state-pushed"       // a user uploaded a state
	ReplanAsked       What = "replan-asked"       // a user asked for a plan at once
	StepsRerunAsked   What = "steps-rerun-asked"  // a user asked for the steps after an apply once more
	CancelAsked       What = "cancel-asked"       // a user cancelled a run
	RepairAsked       What = "repair-asked"       // a user asked for a plan that imports untracked resources
	Changed           What = "changed"            // a user changed the spec
	Created           What = "created"            // a stack, registry or template is new
	Suspended         What = "suspended"          // a user suspended it
	Resumed           What = "resumed"            // a user resumed it
	DeletionAsked     What = "deletion-asked"     // a user deleted the object
	Deleted           What = "deleted"            // the object was released, and no resources are left
	Retained          What = "retained"           // the object was released, and its resources stay
	Orphaned          What = "orphaned"           // its finalizer was removed by force
	RetainedForgotten What = "retained-forgotten" // a user deleted the record of retained resources
	PlanRefused       What = "plan-refused"       // a policy denies a plan, or a webhook refused it
	PlanHeld          What = "plan-held"          // a policy holds a plan until a user approves it
	SecretRead        What = "secret-read"        // a secret of OpenBao or Vault was read for a stack or an ExternalSecret
	SecretRenewed     What = "secret-renewed"     // the lease of a credential of OpenBao or Vault was renewed for an ExternalSecret
	SecretRevoked     What = "secret-revoked"     // a credential of OpenBao or Vault was revoked that an ExternalSecret had
	StateRead         What = "state-read"         // a user read a state
	StateKeyRead      What = "state-key-read"     // a user read the keys of a state
	OutputsRevealed   What = "outputs-revealed"   // a user read the values of sensitive outputs
	IdentityIssued    What = "identity-issued"    // a run got a token for another system
	StateLocked       What = "state-locked"       // a user locked a state
	StateUnlocked     What = "state-unlocked"     // a user unlocked it
)

// repeats reports whether it is an act of a user that decides nothing about resources by itself: what
// comes of it has lines of its own. Such an act, done again and again with one object, is
// counted.
func (w What) repeats() bool {
	switch w {
	case ReplanAsked, CancelAsked, Changed, Suspended, Resumed, RegistrySuspended, RegistryResumed,
		StateRead, StateKeyRead, OutputsRevealed, StateLocked, StateUnlocked, SignedIn, SignedOut:
		return true
	default:
		return false
	}
}

// Of break-glass sessions.
const (
	BreakGlassBegun        What = "break-glass-begun"
	BreakGlassCommand      What = "break-glass-command"
	BreakGlassCommandEnded What = "break-glass-command-ended"
	BreakGlassEnded        What = "break-glass-ended"
)

// formerNames are those of older entries. Read returns the new names, and a query
// may have the old ones.
var formerNames = map[What]What{
	"gap-found": UntrackedFound, "gap-forgotten": UntrackedIgnored,
	"glass-begun": BreakGlassBegun, "glass-command": BreakGlassCommand,
	"glass-command-ended": BreakGlassCommandEnded, "glass-ended": BreakGlassEnded,
	"journal-opened": LogOpened, "journal-cut": LogCut, "journal-damaged": LogDamaged,
}

// renamed is the present name of an action.
func (w What) renamed() What { return cmp.Or(formerNames[w], w) }

// Of tenants.
const (
	GuardTripped      What = "guard-tripped"      // a guard blocks deletions
	GuardCleared      What = "guard-cleared"      // no deletion is blocked any more
	DeletionsAllowed  What = "deletions-allowed"  // a user allowed exactly these deletions
	RolloutStarted    What = "rollout-started"    // a change of a template reaches its tenants
	RolloutStopped    What = "rollout-stopped"    // too many tenants failed, and no further ones are changed
	RolloutResumed    What = "rollout-resumed"    // a user resumed it
	RolloutFinished   What = "rollout-finished"   // all tenants have it
	RolloutUndone     What = "rollout-undone"     // the template has an older spec again
	RegistrySuspended What = "registry-suspended" // a user suspended the registry
	RegistryResumed   What = "registry-resumed"   // a user resumed it
)

// Of the platform.
const (
	SignedIn      What = "signed-in"
	SignedOut     What = "signed-out"
	SignInRefused What = "sign-in-refused"
	CommandDenied What = "denied" // a user lacked the permission for a command

	LoginConfirmed What = "login-confirmed" // a user confirmed that a command line gets a token for the registry
	LoginDeclined  What = "login-declined"  // a user declined it
	LoginRefused   What = "login-refused"   // a command line was refused such a token
	TokenCreated   What = "token-created"   // there is a new token for the registry
	TokenRevoked   What = "token-revoked"   // a user revoked it

	ModulePublished   What = "module-published"    // there is a new version of a module
	ModuleRetracted   What = "module-retracted"    // a user withdrew it
	ModuleRestored    What = "module-restored"     // a user made it available again
	ProviderPublished What = "provider-published"  // there is a new version of a provider
	ProviderRetracted What = "provider-retracted"  // a user withdrew it
	ProviderRestored  What = "provider-restored"   // a user made it available again
	SigningKeyAdded   What = "signing-key-added"   // providers of a namespace may be signed with it
	SigningKeyRemoved What = "signing-key-removed" // they may not, any more

	LogOpened  What = "audit-log-opened"  // a process began to write
	LogCut     What = "audit-log-cut"     // a line that a crash interrupted was removed
	LogDamaged What = "audit-log-damaged" // older lines were changed
	SummedUp   What = "summed-up"         // entries of one namespace, or of one user about one object, that are counted, and not recorded one by one
	Unreadable What = "unreadable"        // in place of a line that cannot be read; never recorded
)

// Object is the object of an action.
type Object struct {
	Kind      string `json:"kind,omitempty"`
	Group     string `json:"group,omitempty"`     // of the API, of a stack that is not of the first kind
	Namespace string `json:"namespace,omitempty"` // empty for the platform itself
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
}

// IsStack reports whether the object is a stack. Only stacks have a group, and what has no
// kind counts as one of the first kind.
func (o Object) IsStack() bool { return o.Group != "" || o.Kind == "Terraform" || o.Kind == "" }

// Word is what users call the kind of a stack: kind.group. It is empty for the first
// kind, and so for all entries that were made while there was no other.
func (o Object) Word() string {
	if o.Group == "" {
		return ""
	}
	return strings.ToLower(o.Kind + "." + o.Group)
}

// Query selects entries. Its zero value selects all.
type Query struct {
	Since     time.Time // from then on
	Until     time.Time // before then
	Who       string    // exactly
	What      []What    // any of them; all if empty
	Via       Via
	ByUsers   bool // none that Terrier made by its own rules
	Namespace string
	Stack     string  // name of the object
	Kind      *string // its word, as users write it: kind.group, or "" for the first kind of stack; nil if of whatever kind
	Text      string  // words that the entry must all contain
	Before    uint64  // entries with a lower number; all if 0
	After     uint64  // entries with a higher number
	Limit     int     // 100 if 0, 1000 at most

	Seen   func(namespace string, at time.Time) bool // what the caller may see; all if nil; asked of what matches otherwise
	Enough func() bool                               // ends the page, as if it were full, once it is true; never if nil
}

// Page is the result of a query, the newest entry first.
type Page struct {
	Items []Entry `json:"items"`
	Next  uint64  `json:"next,omitempty"` // the Before of the next page, 0 if there is none
}

// Head is the last entry of a log. A copy of it elsewhere proves a loss of the end.
type Head struct {
	Seq  uint64    `json:"seq"`
	Hash string    `json:"hash"` // of its line; empty if there is none
	At   time.Time `json:"at,omitzero"`
}

// Report is the result of Verify.
type Report struct {
	Entries  uint64 `json:"entries"`
	Segments int    `json:"segments"`
	First    uint64 `json:"first,omitempty"` // number of the first entry; higher than 1 if older segments were archived
	Head     Head   `json:"head"`
	Bad      *Bad   `json:"bad,omitempty"` // the first mismatch, nil if there is none
}

// Bad is the first place at which a log was changed.
type Bad struct {
	Segment string `json:"segment"`
	Line    int    `json:"line,omitempty"` // from 1; 0 for the segment as a whole
	Seq     uint64 `json:"seq,omitempty"`  // of the expected entry
	What    string `json:"what"`
}

// Bad reports whether an entry is about a failure or a refusal.
func (e Entry) Bad() bool {
	switch e.What {
	case ApplyFailed, DestroyFailed, PlanFailed, DriftFound, UntrackedFound, PlanRefused, Orphaned, GuardTripped, RolloutStopped,
		SignInRefused, CommandDenied, LogCut, LogDamaged, Unreadable:
		return true
	default:
		return false
	}
}
