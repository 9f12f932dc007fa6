// Package dialect maps foreign API groups to stacks and back: one small package
// below it per group. A dialect decides nothing and reads nothing but the object
// it is given.
//
// Start reading at Dialect.
package dialect

import (
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/prerequisite"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Dialect is one foreign kind that asks for stacks.
type Dialect interface {
	// Kind names the kind, and the version of it that is read and written.
	Kind() schema.GroupVersionKind
	// New returns an empty object of the kind.
	New() client.Object
	// NewList returns an empty list of such objects.
	NewList() client.ObjectList
	// AddToScheme adds the types of both.
	AddToScheme(*runtime.Scheme) error
	// Finalizer is what keeps an object until its stack is gone.
	Finalizer() string
	// DependencyFinalizer begins the finalizers that upstream puts on an object
	// for each of its dependants.
	DependencyFinalizer() string
	// Annotations are Terrier's own that users write on objects of the kind: those whose
	// values may be wrong, and those that only another kind reads.
	Annotations() []Annotation
	// Decode says what the object asks for. Its error is Invalid and names the
	// field; what could be read is returned all the same.
	Decode(client.Object) (Stack, error)
	// Encode writes what is known into the status of the object, the same bytes
	// for the same knowledge.
	Encode(client.Object, Summary)
	// Terrier is the part of the status that upstream does not have, nil if it has none.
	Terrier(client.Object) *v1alpha2.TerrierStatus
	// View reads what the object shows of its stack. It has no error: what cannot be
	// read is Decode's to complain of.
	View(client.Object) View
	// Ask has the object ask for exactly this. It leaves every field as it is that says
	// so already.
	Ask(client.Object, Asked)
	// OnlyProgress reports whether the status of one object differs from that of
	// the other in nothing but how far a run is, or what it waits for.
	OnlyProgress(before, after client.Object) bool
	// Ready reports whether others may rely on the object, or why not.
	Ready(client.Object) (ok bool, why string)
	// EventReason is how events about a run that ended are called.
	EventReason(stack.Run) string
}

// Stack is what an object asks for, and what its status says.
type Stack struct {
	Spec          stack.Spec
	Configuration stack.Configuration
	Status        stack.Status
	Legible       stack.Configuration // the same as far as it can be read, also where Decode has an error; for showing only
	Replan        string              // the newest request of a user
	Ignored       []string            // fields that are set and have no effect
	Owned         client.Object       // the source that the controller makes for the object, and that goes with it: a GitRepository or an OCIRepository; nil if the object names its source itself
	OwnedFields   string              // what its fields are called in the object, as the end of a sentence
	OnlyPods      []string            // fields that are set and work only where runs are pods
	Listed        string              // what the inventory in the object is of; empty if there is none
}

// Summary is what is known of a stack after a reconcile.
type Summary struct {
	Decision         stack.Decision
	Status           stack.Status
	PlanInputs       stack.PlanInputs
	Run              *stack.Run
	Next             time.Time     // of the next attempt; zero if there is none to announce
	Every            time.Duration // the check interval while nothing changes; zero if there is none
	Now              time.Time
	Isolation        string   // of the newest run
	Environment      []string // names of variables given to runs; nil if this pass did not read them
	Ignored          []string
	BreakGlassDenied bool        // a break-glass session is asked for, and the platform allows none
	Inventory        *Inventory  // nil leaves what the object lists
	PostDeploy       *PostDeploy // nil leaves what the object has

	RecordLacks *string // what is wrong with the record of the last apply; empty if nothing is, nil leaves what the object says

	Prerequisites []prerequisite.Result // what is known of each; nil leaves what the object has

	RunUnread   bool  // it is not known whether a run goes on: what the object says of it stays
	SpecInvalid bool  // the spec or an annotation is not valid
	Unreadable  error // why the status in the object cannot be read: say so, and leave everything else
	Failing     error // why passes over the object end early: likewise
}

// PostDeploy is what the script after an apply has printed as its outputs.
type PostDeploy struct {
	Outputs map[string]json.RawMessage // nil for none
}

// Inventory is what exists of a stack.
type Inventory struct {
	Of     string // what it was made from, so that it is made once
	Items  []Item
	More   int  // items that there was no room for
	Sealed bool // the state is encrypted, so that it names none
}

// Item is one resource instance: its name and type in the module, and what its
// provider calls it.
type Item struct{ Name, Type, ID string }
