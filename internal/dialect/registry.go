package dialect

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Registry is the set of dialects in which stacks are asked for. Whatever looks at
// all stacks goes through it: indexes, sweeps, the search for shared states, lists,
// commands and pages.
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

// ResourceOf is what roles and addresses of the Kubernetes API call the kind of a
// dialect: terraforms of infra.contrib.fluxcd.io.
func ResourceOf(d Dialect) schema.GroupVersionResource {
	resource, _ := meta.UnsafeGuessKindToResource(d.Kind()) // as controller-gen names it
	return resource
}

// All returns the dialects, in their order.
func (r Registry) All() []Dialect { return slices.Clone(r.all) }

// Found returns the dialect of a stack of which a run was found, by the kind in its
// report. What earlier releases wrote holds no kind: then it is the first dialect.
func (r Registry) Found(kind string) Dialect {
	if d := r.Of(kind); d != nil && kind != "" {
		return d
	}
	return r.First()
}

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

// Meant returns the dialect of a kind that an object of another dialect names. A kind
// without a group is that of the object itself, if it is called so: two dialects may have
// kinds of one name.
func (r Registry) Meant(kind string, by Dialect) Dialect {
	if kind == "" || by.Kind().Kind == kind {
		return by
	}
	if d := r.Of(kind); d != nil {
		return d
	}
	return by
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

// Word is what users call the kind of a dialect, as kubectl has it:
// terraform.alustan.io. Of the first, and of nil, it is empty, so that its stacks have the names
// and addresses that they had while there was no other kind.
func (r Registry) Word(d Dialect) string {
	if d == nil || KindOf(d) == KindOf(r.First()) {
		return ""
	}
	return spelled(d)
}

// Words are the words of all kinds, in their order.
func (r Registry) Words() []string {
	out := make([]string, 0, len(r.all))
	for _, d := range r.all {
		out = append(out, r.Word(d))
	}
	return out
}

// Spelled is the word of a kind in full, also of the first.
func (r Registry) Spelled(word string) string {
	if d := r.Named(word); d != nil {
		return spelled(d)
	}
	return word
}

// Resource is what roles call a kind, with its group, by its word.
func (r Registry) Resource(word string) string {
	if d := r.Named(word); d != nil {
		return ResourceOf(d).GroupResource().String()
	}
	return word
}

// Named returns the dialect that a user means by a word: the first if it is empty,
// nil if there is none. It takes what kubectl takes: the kind or its resource, with
// the group, with or without the version, in any case.
func (r Registry) Named(meant string) Dialect {
	if meant == "" && len(r.all) > 0 {
		return r.First()
	}
	meant = strings.ToLower(meant)
	for _, d := range r.all {
		resource, kind := ResourceOf(d), d.Kind()
		full := "." + kind.Version + "." + kind.Group
		switch meant {
		case spelled(d), resource.GroupResource().String(), strings.ToLower(kind.Kind) + full, resource.Resource + full:
			return d
		}
	}
	return nil
}

func spelled(d Dialect) string { return strings.ToLower(KindOf(d)) }
