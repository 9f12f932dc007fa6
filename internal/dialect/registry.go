package dialect

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Registry is the set of dialects in which stacks are asked for. Whatever looks at
// all stacks goes through it: indexes, sweeps, the search for shared states.
type Registry struct{ all []Dialect }

// NewRegistry returns the set of these dialects, the first of which stands for
// stacks whose kind is unknown.
func NewRegistry(dialects ...Dialect) Registry {
	var kinds []string
	for _, d := range dialects {
		if slices.Contains(kinds, KindOf(d)) {
			panic(fmt.Sprintf("dialect: two dialects for %s", KindOf(d))) // the set is made by the program
		}
		kinds = append(kinds, KindOf(d))
	}
	return Registry{slices.Clone(dialects)}
}

// KindOf is the kind of the objects of a dialect, with its group:
// Terraform.infra.contrib.fluxcd.io.
func KindOf(d Dialect) string { return d.Kind().GroupKind().String() }

// All returns the dialects, in their order.
func (r Registry) All() []Dialect { return slices.Clone(r.all) }

// First is the dialect that stands for stacks whose kind is unknown.
func (r Registry) First() Dialect { return r.all[0] }

// Of returns the dialect of a kind, with or without its group; nil if there is
// none.
func (r Registry) Of(kind string) Dialect {
	for _, d := range r.all {
		if KindOf(d) == kind || d.Kind().Kind == kind {
			return d
		}
	}
	return nil
}

// For returns the dialect of an object, nil if it is of another kind.
func (r Registry) For(obj client.Object) Dialect {
	for _, d := range r.all {
		if reflect.TypeOf(d.New()) == reflect.TypeOf(obj) {
			return d
		}
	}
	return nil
}

// EachStack calls what for each stack of all dialects that the options choose.
func (r Registry) EachStack(ctx context.Context, from client.Reader, what func(Dialect, client.Object) error, opts ...client.ListOption) error {
	for _, d := range r.all {
		list := d.NewList()
		if err := from.List(ctx, list, opts...); err != nil {
			return err
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error { return what(d, o.(client.Object)) }); err != nil {
			return err
		}
	}
	return nil
}
