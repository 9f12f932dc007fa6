package access

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/audit"
)

// The field managers of what the server writes in the name of a user, by the
// channel of the request. The audit log tells the channel by them.
const (
	ServerManager = "terrier-server" // the pages
	APIManager    = "terrier-api"    // the HTTP API
)

type viaKey struct{}

// Via returns a context of commands that came over a channel.
func Via(ctx context.Context, via audit.Via) context.Context {
	return context.WithValue(ctx, viaKey{}, via)
}

// ViaOf returns the channel that Via was given, or none.
func ViaOf(ctx context.Context) audit.Via {
	via, _ := ctx.Value(viaKey{}).(audit.Via)
	return via
}

// managerOf is the field manager of what is written for a request. The command
// line has one name, whether it speaks to the cluster or to the server.
func managerOf(ctx context.Context) client.FieldOwner {
	switch ViaOf(ctx) {
	case audit.ViaAPI:
		return APIManager
	case audit.ViaCLI:
		return FieldManager
	default:
		return ServerManager
	}
}

// managed is a client that says over which channel a command came.
type managed struct{ client.WithWatch }

func (m managed) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return m.WithWatch.Create(ctx, o, append(opts, managerOf(ctx))...)
}

func (m managed) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	return m.WithWatch.Update(ctx, o, append(opts, managerOf(ctx))...)
}

func (m managed) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	return m.WithWatch.Patch(ctx, o, p, append(opts, managerOf(ctx))...)
}
