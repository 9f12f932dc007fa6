package app

import (
	"context"
	"os"

	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
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
	objects, err := children.New(children.Config{REST: p.rest(), Namespaces: watched, Log: p.log, Now: p.Now})
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
		Live: live, Children: objects, Rows: pools, Events: p.events(mgr, tenantsv1.FieldManager), Audit: p.journal, Metrics: p.metrics,
		Key: p.key, SQLiteDirs: dirs, Namespaces: p.tenantNamespaces(),
		RegistryWorkers: p.Config.RegistryWorkers, TemplateWorkers: p.Config.TemplateWorkers, TenantWorkers: p.Config.TenantWorkers,
		Now: p.Now, Log: p.log,
	})
}

// tenantNamespaces are the namespaces that tenants may write to besides their
// own: all of them on one machine, none in a cluster.
func (p *parts) tenantNamespaces() []string {
	if p.Config.TenantNamespaces == nil && p.Cluster == nil {
		return []string{"*"}
	}
	return p.Config.TenantNamespaces
}

// sqliteDirs are the directories below which registries may read files. On one
// machine these are the current and the data directory by default; in a
// cluster none.
func (p *parts) sqliteDirs() ([]string, error) {
	if p.Config.SQLiteDirs != nil || p.Cluster != nil {
		return p.Config.SQLiteDirs, nil
	}
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	return []string{here, p.Config.DataDir}, nil
}
