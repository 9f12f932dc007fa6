package access

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// KindScopes find the namespaces whose stacks a user may list, for each kind of
// stack: its right is one of its own.
type KindScopes []*Scopes

// NewKindScopes returns the Scopes of several kinds of stack, the first of which is
// the first here. Namespaces says which namespaces have stacks of a kind.
func NewKindScopes(rights Rights, kinds []string, namespaces func(kind string) func() []string, o ScopeOptions) KindScopes {
	var all KindScopes
	for _, kind := range kinds {
		o.Kind, o.Namespaces = kind, namespaces(kind)
		all = append(all, NewScopes(rights, o))
	}
	return all
}

// Scope is Scopes.Scope for all kinds.
func (k KindScopes) Scope(ctx context.Context, u User) (Scope, error) {
	return k.find(ctx, func(ctx context.Context, s *Scopes) (Scope, error) { return s.Scope(ctx, u) })
}

// SoFar is Scopes.SoFar for all kinds.
func (k KindScopes) SoFar(ctx context.Context, u User) (Scope, error) {
	return k.find(ctx, func(ctx context.Context, s *Scopes) (Scope, error) { return s.SoFar(ctx, u) })
}

// find asks for the scope of each kind at the same time.
func (k KindScopes) find(ctx context.Context, of func(context.Context, *Scopes) (Scope, error)) (Scope, error) {
	found := make([]Scope, len(k))
	all, ctx := errgroup.WithContext(ctx)
	for i, s := range k {
		all.Go(func() (err error) {
			found[i], err = of(ctx, s)
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return Scope{}, err
	}
	first := found[0]
	for i, s := range k[1:] {
		if first.Others == nil {
			first.Others = map[string]Scope{}
		}
		first.Others[s.Kind] = found[i+1]
		first.Unasked += found[i+1].Unasked
	}
	return first, nil
}
