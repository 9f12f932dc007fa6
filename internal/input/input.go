// Package input resolves what the runs of a stack are given: variables,
// environment, files and settings of the backend. Each comes from a Source: a
// Secret, a ConfigMap, outputs that another stack published, or a field of the
// object itself. It reads through a Reader, writes nothing, and decides nothing:
// what cannot be resolved is an error whose kind says what follows.
//
// To add a source: implement Source, and return it from sourceOf for the kind
// by which objects name it. Variables, environment and settings of the backend
// can be taken from it then, what it reads wakes the stack (References), and
// what it holds is hidden in logs.
//
// Start reading at Resolver.Resolve.
package input

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Source is where inputs come from.
type Source interface {
	// Read returns what the source holds now. The error is of the kind Missing if
	// there is no such source; an input that is optional does without it then.
	Read(context.Context, Reader) (Value, error)
	// Wakes names the objects whose change changes the value: the controller
	// watches them, and reconciles the stack.
	Wakes() []stack.Ref
	// Release gives back what the source handed out for the stack, which is gone.
	Release(context.Context) error
}

// Value is what a source holds at one moment.
type Value struct {
	Data   map[string][]byte
	Public []string // keys that hold no secret

	// Version is what a plan depends on beside the data themselves: another
	// version voids an approval although the data read the same. It is empty for a
	// source of which the data say everything.
	Version string
	// Until is when the value stops being valid: the stack is reconciled before.
	// It is zero for a value that stays.
	Until time.Time
}

// isPublic reports whether a key holds no secret.
func (v Value) isPublic(key string) bool { return slices.Contains(v.Public, key) }

// Reader reads objects of the cluster.
type Reader interface {
	// Read returns the data of a Secret or ConfigMap, Missing if there is none, and
	// which of its keys hold no secret.
	Read(context.Context, stack.Ref) (data map[string][]byte, public []string, err error)
}

// Kinds of sources.
const (
	Secret    = "Secret"
	ConfigMap = "ConfigMap"
)

// sourceOf is the source that an object names by kind and name.
func sourceOf(ref stack.Ref) (Source, error) {
	switch ref.Kind {
	case Secret, ConfigMap:
		return object(ref), nil
	default:
		return nil, fault.New(fault.Invalid, "", fmt.Errorf("%q is neither Secret nor ConfigMap", ref.Kind))
	}
}

// object is a Secret or a ConfigMap.
type object stack.Ref

// Read implements Source.
func (o object) Read(ctx context.Context, r Reader) (Value, error) {
	data, public, err := r.Read(ctx, stack.Ref(o))
	return Value{Data: data, Public: public}, err
}

// Wakes implements Source.
func (o object) Wakes() []stack.Ref { return []stack.Ref{stack.Ref(o)} }

// Release implements Source: an object hands nothing out.
func (object) Release(context.Context) error { return nil }
