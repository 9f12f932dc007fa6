package access

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/audit"
)

// The field managers of what the server writes in the name of somebody, by the
// way on which they asked, so that it can be told from what they write by
// themselves. The journal knows the way by them.
const (
	ServerManager = "terrier-server" // the pages
	APIManager    = "terrier-api"    // the HTTP API
)

type wayKey struct{}

// OnWay returns a context in which a person commands on a way.
func OnWay(ctx context.Context, way audit.Via) context.Context {
	return context.WithValue(ctx, wayKey{}, way)
}

// WayOf is the way that OnWay was told of, or none.
func WayOf(ctx context.Context) audit.Via {
	way, _ := ctx.Value(wayKey{}).(audit.Via)
	return way
}

// managerOn is the field manager of what is written on the way of ctx. The
// command line is known by one name, whether it speaks to the cluster or to us.
func managerOn(ctx context.Context) client.FieldOwner {
	switch WayOf(ctx) {
	case audit.ViaAPI:
		return APIManager
	case audit.ViaCLI:
		return FieldManager
	default:
		return ServerManager
	}
}

// served is the client of a person whose hands are the server's.
type served struct{ client.WithWatch }

func (s served) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return s.WithWatch.Create(ctx, o, append(opts, managerOn(ctx))...)
}

func (s served) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	return s.WithWatch.Update(ctx, o, append(opts, managerOn(ctx))...)
}

func (s served) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	return s.WithWatch.Patch(ctx, o, p, append(opts, managerOn(ctx))...)
}
