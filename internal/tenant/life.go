package tenant

import (
	"strings"
	"time"
)

// Ref identifies an object.
type Ref struct {
	Group, Version, Kind string
	Namespace            string // empty for cluster-scoped objects
	Name                 string
}

// RefOf returns the Ref of a rendered object.
func RefOf(object map[string]any) Ref {
	apiVersion, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	meta, _ := object["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	namespace, _ := meta["namespace"].(string)
	group, version, found := strings.Cut(apiVersion, "/")
	if !found {
		group, version = "", apiVersion
	}
	return Ref{Group: group, Version: version, Kind: kind, Namespace: namespace, Name: name}
}

// APIVersion is group and version as manifests write them.
func (r Ref) APIVersion() string {
	if r.Group == "" {
		return r.Version
	}
	return r.Group + "/" + r.Version
}

// Place is r without its version: two versions of a kind are views of one object.
func (r Ref) Place() Ref {
	r.Version = ""
	return r
}

// String is the object as messages name it.
func (r Ref) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// Item is one object that a tenant has, or has to clean up.
type Item struct {
	ID string // of the resource that it was made for
	Ref
	UID      string         // empty until the object is known to exist
	Deletion DeletionPolicy // as it was when the object was written; empty if that is unknown
	Order    int            // its place in the order of creation; a greater one is deleted first
}

// Key is the item as Tenant Operator writes it.
func (i Item) Key() string {
	return i.Kind + "/" + i.Namespace + "/" + i.Name + "@" + i.ID
}

// ParseKey reads the text of Key, which has neither group nor version.
func ParseKey(key string) (Item, bool) {
	at := strings.LastIndexByte(key, '@') // names have none, ids should not
	if at < 0 {
		return Item{}, false
	}
	parts := strings.Split(key[:at], "/")
	if len(parts) != 3 || parts[0] == "" || parts[2] == "" {
		return Item{}, false
	}
	return Item{ID: key[at+1:], Ref: Ref{Kind: parts[0], Namespace: parts[1], Name: parts[2]}}, true
}

// Readiness is the state of an object by the rules of its kind.
type Readiness string

const (
	IsReady       Readiness = "Ready"
	IsProgressing Readiness = "Progressing"
	IsFailed      Readiness = "Failed" // it will not become ready by itself
)

// Child is one object of a tenant as it was observed. The zero Child is an object
// that does not exist.
type Child struct {
	Exists   bool
	Deleting bool // its deletion waits for finalizers
	Owned    bool // its metadata names this tenant
	Orphaned bool // it was retained on purpose, and is marked so
	Tied     bool // its metadata lets Kubernetes delete it with its Tenant
	NoKind   bool // the cluster has no such kind, so it cannot exist

	CreatedOnce bool // it was created with Once
	Current     bool // it is as rendered; there is nothing to write
	Wrote       bool // it was changed in this pass, so its timeout starts again

	UID        string
	Generation int64
	Deletion   DeletionPolicy // of its annotation; empty without one
	Finalizers []string
	Readiness  Readiness
	Message    string         // why it is not ready
	Depends    bool           // its readiness depends on other objects, which no watch sees
	Unwatched  bool           // no watch sees the object itself: the controller may not watch its kind
	Object     map[string]any // only needed for ReadyWhen

	Failure *Failure // why it could not be read, written or deleted
	Unseen  bool     // it could not be read: no other field here is known
	NoRoom  bool     // the inventory has no room for it, so that it must not be created
}

// Failure is an attempt that did not succeed.
type Failure struct {
	Conflict bool // the object, or some of its fields, has another owner
	Reason   string
	Message  string
	RetryAt  time.Time // zero: not before something changes
}

// waits reports whether the next attempt is not due yet.
func (f *Failure) waits(now time.Time) bool {
	return f != nil && (f.RetryAt.IsZero() || now.Before(f.RetryAt))
}

// State is how far one resource is.
type State string

// The states of a resource.
const (
	Ready       State = "Ready"
	Pending     State = "Pending"     // it waits for its dependencies
	Progressing State = "Progressing" // it was written, or is about to be, and is not ready yet
	Failed      State = "Failed"
	Conflicted  State = "Conflicted" // failed because it has another owner
	Skipped     State = "Skipped"    // a dependency has failed
	Deleting    State = "Deleting"
	Kept        State = "Kept" // no longer wanted, and not deleted for a reason
)

// leaving reports whether a state is one of an object that is not wanted any more.
func (s State) leaving() bool { return s == Deleting || s == Kept }

// stops reports whether the dependants of a resource in this state are skipped.
func (s State) stops() bool { return s == Failed || s == Conflicted || s == Skipped }

// Reasons of states. Those that are events have the names of Tenant Operator and Lynq.
const (
	ApplyFailed          = "ApplyFailed"
	Applying             = "Applying"
	BeingDeleted         = "BeingDeleted"
	CannotBeRead         = "CannotBeRead"
	AccountInvalid       = "ServiceAccountInvalid"
	Unavailable          = "APIUnavailable"
	InventoryFull        = "InventoryFull"
	CleanupFailed        = "CleanupPartialFailure"
	DeletionProtected    = "DeletionProtected"
	DependencyNotReady   = "DependencyNotReady"
	DependencySkipped    = "DependencySkipped"
	DuplicateObject      = "DuplicateObject"
	Forbidden            = "Forbidden"
	KindUnknown          = "KindUnknown"
	NamespaceNotAllowed  = "NamespaceNotAllowed"
	NotReady             = "NotReady"
	ReadinessTimeout     = "ReadinessTimeout"
	RemovedFromTemplate  = "RemovedFromTemplate"
	ResourceConflict     = "ResourceConflict"
	ResourceFailed       = "ResourceFailed"
	TemplateRenderError  = "TemplateRenderError"
	TenantDeleted        = "TenantDeleted"
	WaitsForDependents   = "WaitsForDependents"
	WaitsForFinalizers   = "WaitsForFinalizers"
	DependencyError      = "DependencyError"
	SortError            = "SortError"
	VariablesBuildError  = "VariablesBuildError"
	ProceedingDependency = "DependencyFailedButProceeding"
)

// Verdict is the status of one resource.
type Verdict struct {
	ID      string
	State   State
	Reason  string
	Message string
	Since   time.Time // when State or Reason changed last

	// Next is the next attempt after a failure; zero if there is none before
	// something changes.
	Next time.Time
}

// same reports whether two verdicts differ in messages and times at most.
func (v Verdict) same(w Verdict) bool { return v.State == w.State && v.Reason == w.Reason }

// rank is an object's place in the order of creation: level by level, and within
// a level first the objects that others need.
func rank(level int, r Ref) int {
	const classes = 4
	switch {
	case r.Kind == "Namespace" && r.Group == "":
		return level * classes
	case r.Group == "" && (r.Kind == "Secret" || r.Kind == "ConfigMap" || r.Kind == "ServiceAccount"):
		return level*classes + 1
	case r.Group == "infra.contrib.fluxcd.io" && r.Kind == "Terraform":
		return level*classes + 3
	}
	return level*classes + 2
}
