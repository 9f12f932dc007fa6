package packages

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/fault"
)

// existing says which namespaces the cluster has.
type existing struct {
	find  func(ctx context.Context, name string) (access.Namespace, error)
	log   *slog.Logger
	known cache.Map[string, struct{}] // those that were found a moment ago
}

func newExisting(find func(context.Context, string) (access.Namespace, error), now func() time.Time, log *slog.Logger) *existing {
	return &existing{find: find, log: log, known: cache.Map[string, struct{}]{Size: 10_000, TTL: quotaFor, Now: now}}
}

// check is Missing if the cluster has no namespace of this name. One that this server may not
// read counts as one that is there: whether the user may publish in it is known already.
func (e *existing) check(ctx context.Context, name string) error {
	_, err := e.known.Load(ctx, name, func(ctx context.Context) (struct{}, error) {
		_, err := e.find(ctx, name)
		switch fault.Of(err) {
		case fault.None:
		case fault.Missing, fault.Invalid: // the API server refuses a name that no namespace can have
			err = fault.New(fault.Missing, "", fmt.Errorf("the cluster has no namespace %.80s, and a namespace of the registry belongs to the one of the cluster with its name: correct the name, or create it with: kubectl create namespace %[1]s", name))
		case fault.Denied:
			e.log.Warn("namespace not read: whether it exists is not checked; let this server get that namespace (docs/rbac.md)", "namespace", name, "err", err)
			err = nil
		default:
			err = fmt.Errorf("reading the namespace %s: %w", name, err)
		}
		return struct{}{}, err
	})
	return err
}
