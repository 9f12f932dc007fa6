package interpreter

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/policy/document"
)

// A stack is of a tenant if the tenant says so: its labels, which its author writes, do not show a
// policy the labels of any other tenant.
func TestTenantsOfStacks(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := tenantsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	d := kinds.All().First()
	kind := d.Kind()
	made := func(name string, status tenantsv1.TenantStatus) *tenantsv1.Tenant {
		return &tenantsv1.Tenant{
			ObjectMeta: metav1.ObjectMeta{Namespace: "tenants", Name: name, Labels: map[string]string{"tier": "prod"}},
			Spec:       tenantsv1.TenantSpec{UID: "7", TemplateRef: "net"}, Status: status,
		}
	}
	template := &tenantsv1.TenantTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "tenants", Name: "net"}, Spec: tenantsv1.TenantTemplateSpec{RegistryID: "shops"}}
	p := New(fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		made("acme", tenantsv1.TenantStatus{Inventory: []tenantsv1.InventoryItem{{ID: "net", Group: kind.Group, Version: kind.Version, Kind: kind.Kind, Namespace: "apps", Name: "network"}}}),
		made("former", tenantsv1.TenantStatus{AppliedResources: []string{kind.Kind + "/apps/network@net"}}), template,
	).Build(), kinds.All(), nil, nil, "", nil)
	of := func(name string) *document.Tenant {
		return &document.Tenant{Name: name, ID: "7", Template: "net", Registry: "shops", Labels: map[string]string{"tier": "prod"}}
	}
	for name, tt := range map[string]struct {
		namespace, name, tenant string
		want                    *document.Tenant
	}{
		"its own":                     {"apps", "network", "acme", of("acme")},
		"its own, of Tenant Operator": {"apps", "network", "former", of("former")},
		"of another namespace":        {"team-b", "network", "acme", nil},
		"of another name":             {"apps", "networks", "acme", nil},
		"of no tenant":                {"apps", "network", "", nil},
		"of one that is not there":    {"apps", "network", "gone", nil},
	} {
		obj := d.New()
		obj.SetNamespace(tt.namespace)
		obj.SetName(tt.name)
		obj.SetLabels(map[string]string{tenantName: tt.tenant, tenantNamespace: "tenants", "terrier.dev/tenant-id": "8"})
		if diff := cmp.Diff(tt.want, p.tenant(t.Context(), kind, obj)); diff != "" {
			t.Errorf("%s: tenant() (-want +got)\n%s", name, diff)
		}
	}
}
