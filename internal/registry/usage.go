package registry

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plural"
)

// Usage is what a namespace takes of the store.
type Usage struct {
	Namespace string `json:"namespace"`
	Versions  int    `json:"versions"`               // of modules and providers, retracted ones included
	Bytes     int64  `json:"bytes"`                  // of their archives; those of other programs are not known
	Waiting   int64  `json:"waitingBytes,omitempty"` // of packages of providers that are not published yet
	Quota     Quota  `json:"quota,omitzero"`
}

// Quota bounds a namespace. A zero field bounds nothing.
type Quota struct {
	Versions int   `json:"versions,omitempty"`
	Bytes    int64 `json:"bytes,omitempty"`

	Raise string `json:"-"` // what an operator changes to raise it
}

// QuotaExceeded is the reason of the fault of an upload for which a namespace has no quota
// left.
const QuotaExceeded = "QuotaExceeded"

// usage adds up what namespaces have.
type usage struct {
	modules   *modules
	providers *providers
	quota     func(ctx context.Context, namespace string) (Quota, error) // nil: there is none
}

// Usage adds up what a namespace has. It reads the index of each of its modules and providers.
func (r *Registry) Usage(ctx context.Context, namespace string) (Usage, error) {
	q, err := r.usage.limits(ctx, namespace)
	if err != nil {
		return Usage{}, err
	}
	of, err := r.usage.of(ctx, namespace)
	of.Quota = q
	return of, err
}

func (u *usage) limits(ctx context.Context, namespace string) (Quota, error) {
	if u.quota == nil {
		return Quota{}, nil
	}
	return u.quota(ctx, namespace)
}

// indexesAtOnce is how many indexes are read at once.
const indexesAtOnce = 16

func (u *usage) of(ctx context.Context, namespace string) (Usage, error) {
	used := Usage{Namespace: namespace}
	names, err := u.modules.Names(ctx, Modules, namespace)
	if err != nil {
		return used, err
	}
	owner := Providers.Namespace(namespace)
	types, err := u.providers.Names(ctx, Providers, owner)
	if err != nil {
		return used, err
	}
	parts := make([]Usage, len(names)+len(types))
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(indexesAtOnce)
	for i, name := range names {
		group.Go(func() error {
			at, system, _ := strings.Cut(name, "/")
			m := address.Module{Namespace: namespace, Name: at, System: system}
			index, err := u.modules.index.read(within, moduleIndexKey(m), u.modules.listModule(m))
			for _, v := range index.Versions {
				parts[i].Versions++
				parts[i].Bytes += v.Size
			}
			return err
		})
	}
	for i, typ := range types {
		group.Go(func() error {
			p := address.Provider{Namespace: owner, Type: typ}
			index, err := u.providers.index.read(within, providerIndexKey(p), u.providers.listProvider(p))
			part := &parts[len(names)+i]
			for _, v := range index.Versions {
				part.Versions++
				for _, pkg := range v.Packages {
					part.Bytes += pkg.Size
				}
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return used, fmt.Errorf("adding up what the namespace %s has: %w", namespace, err)
	}
	for _, part := range parts {
		used.Versions += part.Versions
		used.Bytes += part.Bytes
	}
	used.Waiting, err = u.providers.waits(ctx, waitingPrefix+owner+"/")
	return used, err
}

// fits refuses what would exceed the quota of a namespace. Uploads that go on at the same
// moment may exceed it together.
func (u *usage) fits(ctx context.Context, namespace string, versions int, bytes int64) error {
	q, err := u.limits(ctx, namespace)
	if err != nil || q.Versions == 0 && q.Bytes == 0 {
		return err
	}
	used, err := u.of(ctx, namespace)
	if err != nil {
		return err
	}
	refused := func(format string, args ...any) error {
		text := fmt.Sprintf(format, args...) + ". Nothing was stored. Retracting a version frees nothing: ask the operator of the registry for a larger quota"
		if q.Raise != "" {
			text += " (" + q.Raise + ")"
		}
		return fault.New(fault.Denied, QuotaExceeded, errors.New(text))
	}
	switch {
	case q.Versions > 0 && versions > 0 && used.Versions+versions > q.Versions:
		return refused("the namespace %s has %s of modules and providers, and its quota is %d", namespace, plural.Count(used.Versions, "version"), q.Versions)
	case q.Bytes > 0 && used.Bytes+used.Waiting+bytes > q.Bytes:
		return refused("the namespace %s has %d MiB in the registry, %d MiB of them not published yet; %d MiB more exceed its quota of %d MiB", namespace, (used.Bytes+used.Waiting)>>20, used.Waiting>>20, (bytes+1<<20-1)>>20, q.Bytes>>20)
	}
	return nil
}
