package web

import (
	"context"
	"slices"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// scopes find out the namespaces whose stacks a user may list.
type scopes struct {
	auth  Auth
	kinds query.Kinds
	all   func(context.Context, access.User) (access.Scope, error) // asks about each namespace; nil to ask about all of them at once
	known func(context.Context, access.User) (access.Scope, error) // what is known after a moment; all if nil
}

// of waits until the permission in each namespace is known.
func (s scopes) of(ctx context.Context, user access.User) (access.Scope, error) {
	if s.all != nil {
		return s.all(ctx, user)
	}
	return s.each(func(kind string) (access.Scope, error) {
		all, err := s.may(ctx, user, kind)
		return access.Scope{All: all}, err
	})
}

// in is the scope of one namespace. It is Denied if the user may list no kind of stack
// there.
func (s scopes) in(ctx context.Context, user access.User, namespace string) (access.Scope, error) {
	kinds, err := s.kindsOf(ctx, user, "list", access.ResourceStacks, namespace)
	if err != nil {
		return access.Scope{}, err
	}
	return s.each(func(kind string) (access.Scope, error) {
		return access.Scope{In: map[string]bool{namespace: slices.Contains(kinds, kind)}}, nil
	})
}

// kindsOf are the kinds of stack for which the user has a permission in a namespace, or
// in all of them. It is Denied if there is none.
func (s scopes) kindsOf(ctx context.Context, user access.User, verb string, r access.Resource, namespace string) ([]string, error) {
	var out []string
	var denied error
	for _, kind := range s.words() {
		err := s.auth.Authorize(ctx, user, access.Request{Verb: verb, Resource: r, Kind: kind, Namespace: namespace})
		switch {
		case err == nil:
			out = append(out, kind)
		case fault.Of(err) != fault.Denied:
			return nil, err
		case denied == nil:
			denied = err
		}
	}
	if out == nil {
		return nil, denied
	}
	return out, nil
}

// words are the kinds of stack, the first of which has none.
func (s scopes) words() []string {
	if words := s.kinds.Words(); len(words) > 0 {
		return words
	}
	return []string{""}
}

func (s scopes) may(ctx context.Context, user access.User, kind string) (bool, error) {
	err := s.auth.Authorize(ctx, user, access.Request{Verb: "list", Resource: access.ResourceStacks, Kind: kind})
	if fault.Of(err) == fault.Denied {
		return false, nil
	}
	return err == nil, err
}

// each is the scope of all kinds.
func (s scopes) each(of func(kind string) (access.Scope, error)) (access.Scope, error) {
	first, err := of("")
	if err != nil {
		return access.Scope{}, err
	}
	for _, kind := range s.words()[1:] {
		if first.Others == nil {
			first.Others = map[string]access.Scope{}
		}
		if first.Others[kind], err = of(kind); err != nil {
			return access.Scope{}, err
		}
	}
	return first, nil
}

// soFar is the part of the scope that is known after a moment.
func (s scopes) soFar(ctx context.Context, user access.User) (access.Scope, error) {
	if s.known != nil {
		return s.known(ctx, user)
	}
	return s.of(ctx, user)
}
