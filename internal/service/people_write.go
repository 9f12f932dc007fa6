package service

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ServerManager is the field manager of what the server writes in the name of
// somebody, so that it can be told from what they write by themselves.
const ServerManager = "terrier-server"

// served is the client of a person whose hands are the server's.
type served struct{ client.WithWatch }

func (s served) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return s.WithWatch.Create(ctx, o, append(opts, client.FieldOwner(ServerManager))...)
}

func (s served) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	return s.WithWatch.Update(ctx, o, append(opts, client.FieldOwner(ServerManager))...)
}

func (s served) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	return s.WithWatch.Patch(ctx, o, p, append(opts, client.FieldOwner(ServerManager))...)
}
