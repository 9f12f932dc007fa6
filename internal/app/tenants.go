package app

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/controller/inventories"
	"github.com/terrier-iac/terrier/internal/controller/tenants"
	"github.com/terrier-iac/terrier/internal/kube/children"
	"github.com/terrier-iac/terrier/internal/rows"
)

// setupTenants registers the controllers of registries, templates and tenants,
// if the API server has these kinds: an operator who installs the definitions
// may leave them out.
func (p *parts) setupTenants(mgr ctrl.Manager, live client.Client) error {
	kind := tenantsv1.GroupVersion.WithKind(tenantsv1.RegistryKind)
	if _, err := mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version); meta.IsNoMatchError(err) {
		p.log.Warn("tenants are off: their definitions are not installed", "missing", kind.GroupKind().String())
		return nil
	} else if err != nil {
		return err
	}
	dirs, err := p.sqliteDirs()
	if err != nil {
		return err
	}
	var watched []string
	if p.Cluster != nil {
		watched = p.Cluster.Namespaces
	}
	objects, err := children.New(children.Config{REST: p.plane.rest(), Namespaces: watched, Log: p.log, Now: p.Now})
	if err != nil {
		return err
	}
	pools := rows.New(rows.Options{SQLiteDirs: dirs})
	closing := manager.RunnableFunc(func(ctx context.Context) error {
		<-ctx.Done()
		pools.Close()
		return nil
	})
	if err := mgr.Add(closing); err != nil {
		return err
	}
	return tenants.Setup(mgr, tenants.Options{
		Inventories: inventories.New(mgr.GetClient(), p.cache, p.dir("scratch")),
		Live:        live, Children: objects, Rows: pools, Events: p.alerts.recorder(mgr, tenantsv1.FieldManager, p.Now), Audit: p.audits, Stamps: p.stamping, Metrics: p.meters.Registry,
		Key: p.key, SQLiteDirs: dirs, Namespaces: p.tenantNamespaces(),
		RegistryWorkers: p.Config.RegistryWorkers, TemplateWorkers: p.Config.TemplateWorkers, TenantWorkers: p.Config.TenantWorkers,
		Now: p.Now, Log: p.log,
	})
}
