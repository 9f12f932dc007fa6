package web

import (
	"context"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
)

// scopes find out the namespaces whose stacks a user may list.
type scopes struct {
	auth  Auth
	all   func(context.Context, access.User) (access.Scope, error) // asks about each namespace; nil to ask about all of them at once
	known func(context.Context, access.User) (access.Scope, error) // what is known after a moment; all if nil
}

// of waits until the permission in each namespace is known.
func (s scopes) of(ctx context.Context, user access.User) (access.Scope, error) {
	if s.all != nil {
		return s.all(ctx, user)
	}
	err := s.auth.Authorize(ctx, user, access.Request{Verb: "list", Resource: access.ResourceStacks})
	switch fault.Of(err) {
	case fault.None:
		return access.Everything, nil
	case fault.Denied:
		return access.Scope{}, nil
	default:
		return access.Scope{}, err
	}
}

// soFar is the part of the scope that is known after a moment.
func (s scopes) soFar(ctx context.Context, user access.User) (access.Scope, error) {
	if s.known != nil {
		return s.known(ctx, user)
	}
	return s.of(ctx, user)
}
