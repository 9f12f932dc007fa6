// Package input resolves what the runs of a stack are given: variables,
// environment, files and settings of the backend. They come from a Secret, a
// ConfigMap, outputs that another stack published, or a field of the object itself. It reads through a Reader, writes nothing, and decides nothing:
// what cannot be resolved is an error whose kind says what follows.
//
// To add a kind of sources: a file like object.go, and a line in Kinds. One that reads
// more than Secrets and ConfigMaps adds to Reader what it needs; docs/architecture.md has
// the places that make a Reader.
//
// Start reading at Resolver.Resolve.
package input

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Kinds are the kinds of sources.
func Kinds() []Kind {
	return []Kind{
		{Name: Secret, Open: openObject, Watched: []string{"v1/Secret"}},
		{Name: ConfigMap, Open: openObject, Watched: []string{"v1/ConfigMap"}, Public: true},
	}
}

// Kind is one kind of sources. Variables (varsFrom) and settings of the backend
// (backendConfigsFrom) can be taken from each.
type Kind struct {
	Name    string                 // by which objects name it
	Open    func(stack.Ref) Source // the source of that name
	Watched []string               // the kinds of objects that Wakes names, as apiVersion/kind: the controller watches them
	Public  bool                   // what it holds is no secret; else it is hidden in logs and documents

	// Release gives back what sources of the kind handed out for the stack with a
	// UID, which is gone. It is nil for a kind that hands nothing out. It can be
	// called again, and does not need the stack's configuration: that is gone, too,
	// where the stack's finalizer was removed by force.
	Release func(ctx context.Context, r Reader, uid string) error
}

// Source is where inputs come from.
type Source interface {
	// Read returns what the source holds now. The error is of the kind Missing if
	// there is no such source; an input that is optional does without it then.
	Read(context.Context, Reader) (Value, error)
	// Wakes names the objects whose change changes the value: the controller
	// reconciles the stack then.
	Wakes() []stack.Ref
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

	// Made says that the source makes its data for each run. Then there are none before a
	// run begins, and key is the only one of them that is wanted, if any is.
	Made bool
	key  string
}

// isPublic reports whether a key holds no secret.
func (v Value) isPublic(key string) bool { return slices.Contains(v.Public, key) }

// Reader reads objects of the cluster.
type Reader interface {
	// Read returns the data of a Secret or ConfigMap, Missing if there is none, and
	// which of its keys hold no secret.
	Read(context.Context, stack.Ref) (data map[string][]byte, public []string, err error)
}

func kindOf(name string) (Kind, error) {
	for _, k := range Kinds() {
		if k.Name == name {
			return k, nil
		}
	}
	return Kind{}, fault.New(fault.Invalid, "", fmt.Errorf("is %.40q, not %s", name, names()))
}

// CheckKind reports in an error that there is no kind of sources with this name, and
// which there are.
func CheckKind(name string) error {
	_, err := kindOf(name)
	return err
}

// names are the names of all kinds, as a sentence has them.
func names() string {
	var all []string
	for _, k := range Kinds() {
		all = append(all, k.Name)
	}
	return strings.Join(all, " or ")
}

// HoldsSecrets reports whether what a kind of sources holds is secret unless a
// value says that it is public.
func HoldsSecrets(name string) bool {
	k, err := kindOf(name)
	return err != nil || !k.Public
}

// Read reads a source that is named by its kind.
func Read(ctx context.Context, r Reader, ref stack.Ref) (Value, error) {
	k, err := kindOf(ref.Kind)
	if err != nil {
		return Value{}, fmt.Errorf("the kind of the source %s %w", ref.Name, err)
	}
	return k.Open(ref).Read(ctx, r)
}

// Release gives back what sources of all kinds handed out for the stack with a UID,
// which is gone.
func Release(ctx context.Context, r Reader, uid string) error {
	var all []error
	for _, k := range Kinds() {
		if k.Release != nil {
			all = append(all, k.Release(ctx, r, uid))
		}
	}
	return errors.Join(all...)
}

// WatchedKinds are the kinds of objects whose change wakes a stack, each once.
func WatchedKinds() []string {
	var all []string
	for _, k := range Kinds() {
		all = append(all, k.Watched...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
