package packages

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry"
)

// Quota is what a namespace may publish unless its annotations say otherwise. Zero bounds
// nothing.
type Quota struct {
	MiB      int // --registry-quota-size
	Versions int // --registry-quota-versions
}

// The annotations of a namespace that say its quota. 0 bounds nothing.
const (
	annotationSize     = "terrier.dev/registry-quota-size"
	annotationVersions = "terrier.dev/registry-quota-versions"
)

// quotaFor is how long the annotations of a namespace are used without asking again.
const quotaFor = 10 * time.Second

// quotas are those of the namespaces of a cluster.
type quotas struct {
	usual Quota
	find  func(ctx context.Context, name string) (access.Namespace, error)
	log   *slog.Logger
	known cache.Map[string, registry.Quota]
}

// Of is what bounds each namespace.
func (q Quota) Of(find func(context.Context, string) (access.Namespace, error), now func() time.Time, log *slog.Logger) func(context.Context, string) (registry.Quota, error) {
	return newQuotas(q, find, now, log).of
}

func newQuotas(usual Quota, find func(context.Context, string) (access.Namespace, error), now func() time.Time, log *slog.Logger) *quotas {
	return &quotas{usual: usual, find: find, log: log, known: cache.Map[string, registry.Quota]{Size: 10_000, TTL: quotaFor, Now: now}}
}

// of is the quota of a namespace. A name that is no namespace of the cluster has the usual
// one, and so has one that this server may not read.
func (q *quotas) of(ctx context.Context, name string) (registry.Quota, error) {
	return q.known.Load(ctx, name, func(ctx context.Context) (registry.Quota, error) {
		namespace, err := q.find(ctx, name)
		switch fault.Of(err) {
		case fault.None, fault.Missing:
		case fault.Denied:
			q.log.Warn("annotations of a namespace not read: it has the usual quota of the registry; let this server get that namespace (docs/rbac.md)", "namespace", name, "err", err)
		default:
			return registry.Quota{}, fmt.Errorf("reading the quota of the namespace %s: %w", name, err)
		}
		size, err := annotated(namespace, name, annotationSize, q.usual.MiB)
		if err != nil {
			return registry.Quota{}, err
		}
		versions, err := annotated(namespace, name, annotationVersions, q.usual.Versions)
		return registry.Quota{
			Bytes: int64(size) << 20, Versions: versions,
			Raise: fmt.Sprintf("the annotations %s, in MiB, and %s of the namespace, or --registry-quota-size and --registry-quota-versions", annotationSize, annotationVersions),
		}, err
	})
}

// annotated is the number in an annotation of a namespace.
func annotated(of access.Namespace, name, annotation string, usual int) (int, error) {
	text, ok := of.Annotations[annotation]
	if !ok {
		return usual, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > 1<<30 {
		return 0, fault.New(fault.Invalid, "QuotaInvalid", fmt.Errorf("the annotation %s of the namespace %s is %.40q, and has to be a whole number: correct it, or ask the operator of the cluster", annotation, name, text))
	}
	return n, nil
}
