package app

import (
	"context"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	authzclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/metadata"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/kube/granted"
)

// crowded are the kinds of which other programs have most objects. Their metadata
// is watched.
var crowded = map[schema.GroupVersionKind]string{
	{Version: "v1", Kind: "Secret"}:    "secrets",
	{Version: "v1", Kind: "ConfigMap"}: "configmaps",
}

// grants makes the informers of a controller that may not watch those kinds in the
// whole cluster. The zero value is of one that may.
type grants struct {
	optional   bool // the controllers need no right to watch those kinds
	named      bool // the operator named the namespaces, each of which has informers of its own
	namespaces granted.Namespaces
	sources    map[schema.GroupVersionKind]*granted.Watch
}

// openGrants asks the API server in which way these kinds can be watched.
func (p *parts) openGrants(ctx context.Context) (*grants, error) {
	g := &grants{sources: map[schema.GroupVersionKind]*granted.Watch{}, optional: p.Config.ReadAsAccount, named: p.namespaces() != nil}
	if g.named {
		return g, nil
	}
	config := p.plane.rest()
	reviews, err := authzclient.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	for gvk, resource := range crowded {
		of := gvk.GroupVersion().WithResource(resource)
		everywhere, err := granted.Everywhere(ctx, reviews.SelfSubjectAccessReviews(), of)
		if err != nil {
			return nil, err
		}
		if !everywhere {
			g.sources[gvk] = g.namespaces.Watch(granted.Options{Client: objects, Resource: of, Kind: gvk, Slim: slim, Log: p.log, Optional: g.optional})
		}
	}
	return g, nil
}

// informer implements cache.Options.NewInformer.
func (g *grants) informer(from toolscache.ListerWatcher, of runtime.Object, every time.Duration, by toolscache.Indexers) toolscache.SharedIndexInformer {
	if m, ok := of.(*metav1.PartialObjectMetadata); ok {
		gvk := m.GroupVersionKind()
		if w := g.sources[gvk]; w != nil {
			from = w
		} else if _, ok := crowded[gvk]; ok && g.named && g.optional {
			from = granted.Optional{Source: toolscache.ToListerWatcherWithContext(from), Kind: gvk}
		}
	}
	return toolscache.NewSharedIndexInformer(from, of, every, by)
}

// follow has the namespaces with our objects watched.
func (g *grants) follow(ctx context.Context, mgr ctrl.Manager, stacks []client.Object) error {
	if len(g.sources) == 0 {
		return nil
	}
	all := append(stacks,
		&sourcev1.GitRepository{}, &sourcev1.OCIRepository{}, &sourcev1.Bucket{},
		&tenantsv1.TenantRegistry{}, &tenantsv1.TenantTemplate{}, &tenantsv1.Tenant{})
	for _, o := range all {
		gvk, err := apiutil.GVKForObject(o, mgr.GetScheme())
		if err != nil {
			return err
		}
		if _, err := mgr.GetRESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version); meta.IsNoMatchError(err) {
			continue // an operator who installs the definitions may leave some out
		} else if err != nil {
			return err
		}
		informer, err := mgr.GetCache().GetInformer(ctx, o)
		if err != nil {
			return err
		}
		if err := g.namespaces.Follow(informer); err != nil {
			return err
		}
	}
	return nil
}
