package tenants

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/tenant"
)

// What Tenant Operator wrote down is cleaned up: its keys know no group, so the
// cluster is asked, and what it does not know is told.
func TestKeysOfTenantOperatorAreTakenOver(t *testing.T) {
	l := newLab(t)
	l.tenant("configMaps:" + configMap("config") + "manifests:" + terraform("db"))
	l.look()
	l.tenant("configMaps:" + configMap("config") + "manifests: []")
	left := l.get()
	left.Status = tenantsv1.TenantStatus{AppliedResources: []string{
		"ConfigMap/" + l.Namespace + "/acme-config@config", "Terraform/" + l.Namespace + "/acme-db@db",
		"Gizmo/" + l.Namespace + "/acme-gizmo@gizmo", "nonsense",
	}}
	if err := l.Client.Status().Update(t.Context(), left); err != nil {
		t.Fatal(err)
	}
	l.restart()
	l.look()
	l.wantThere("Terraform", "acme-db", false)
	if s := l.get().Status; len(s.Inventory) != 1 || s.Inventory[0].Kind != "ConfigMap" || s.Inventory[0].UID == "" {
		t.Errorf("the inventory is %+v, want the ConfigMap", s.Inventory)
	}
	for _, name := range []string{"acme-gizmo", "nonsense"} {
		if n := l.heard.count(name); n != 1 {
			t.Errorf("%s was told %d times, want once", name, n)
		}
	}
}

// As long as not every API answers, a kind that is not known is not forgotten.
func TestUnknownKindsAreKeptWhileSomeDoNotAnswer(t *testing.T) {
	l := newLab(t)
	l.tenant("configMaps:" + configMap("config"))
	left := l.get()
	left.Status.AppliedResources = []string{"Gizmo/" + l.Namespace + "/acme-gizmo@gizmo"}
	if err := l.Client.Status().Update(t.Context(), left); err != nil {
		t.Fatal(err)
	}
	known := l.c.observer.kinds
	l.c.observer.kinds = func(name string) ([]kind, bool, error) {
		found, _, err := known(name)
		return found, false, err
	}
	l.look()
	l.look()
	l.wantStates("while an API does not answer", "gizmo Kept KindUnknown")
	l.c.observer.kinds = known
	l.look()
	l.wantStates("when all do", "")
	if n := l.heard.count("KindUnknown"); n != 2 {
		t.Errorf("KindUnknown was told %d times, want when it came and when it went", n)
	}
}

// A kind of the same name in another group, which Terrier may not read, stops no tenant.
func TestAKindThatMayNotBeRead(t *testing.T) {
	l := newLab(t)
	l.tenant("configMaps:" + configMap("config") + configMap("old"))
	l.look()
	l.tenant("configMaps:" + configMap("config"))
	l.line.refuses = "/leases/"
	known := l.c.observer.kinds
	withLeases := func(name string) ([]kind, bool, error) {
		found, complete, err := known(name)
		other := kind{schema.GroupVersionKind{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}, true}
		return append([]kind{other}, found...), complete, err
	}
	recorded := func(key string) {
		t.Helper()
		left := l.get()
		left.Status = tenantsv1.TenantStatus{AppliedResources: []string{key}}
		if err := l.Client.Status().Update(t.Context(), left); err != nil {
			t.Fatal(err)
		}
		l.restart()
		l.c.observer.kinds = withLeases
		l.look()
	}
	recorded("ConfigMap/" + l.Namespace + "/acme-old@old")
	l.wantThere("ConfigMap", "acme-old", false)
	recorded("Gizmo/" + l.Namespace + "/acme-gizmo@gizmo")
	l.wantStates("while it may be of the other kind", "gizmo Kept KindUnknown")
	l.line.refuses = ""
	l.later(lastPause)
	l.look()
	l.wantStates("when that may be read", "")
}

// A Tenant of which nothing was ever written down is cleaned up by its template,
// and only of what is its own.
func TestDeletedBeforeItWasSeen(t *testing.T) {
	l := newLab(t)
	l.tenant("configMaps:" + configMap("config") + configMap("other"))
	l.look()
	left := l.get()
	left.Status = tenantsv1.TenantStatus{}
	if err := l.Client.Status().Update(t.Context(), left); err != nil {
		t.Fatal(err)
	}
	other := l.child("ConfigMap", "acme-other")
	other.SetOwnerReferences(nil)
	other.SetLabels(nil)
	if err := l.Client.Update(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	l.restart()
	l.deleteTenant()
	l.look()
	if !l.gone() {
		t.Fatalf("the tenant is still there: %s", l.states())
	}
	l.wantThere("ConfigMap", "acme-config", false)
	l.wantThere("ConfigMap", "acme-other", true)
}

// A whole installation is taken over without a child being touched.
func TestTakeOverTouchesNoChild(t *testing.T) {
	l := newLab(t)
	l.c.observer.Namespaces = []string{"*"}
	tenants, objects := l.Operator118(t)
	for _, o := range tenants {
		if o.GetKind() != tenantsv1.TenantKind {
			continue
		}
		if _, err := l.c.Reconcile(t.Context(), requestOf(client.ObjectKeyFromObject(o))); err != nil {
			t.Fatalf("taking over %s: %v", o.GetName(), err)
		}
		var got tenantsv1.Tenant
		if err := l.Client.Get(t.Context(), client.ObjectKeyFromObject(o), &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Status.Inventory) == 0 || len(got.Status.Inventory) != len(got.Status.AppliedResources) {
			t.Errorf("%s has %d objects in its inventory, and the keys %v", o.GetName(), len(got.Status.Inventory), got.Status.AppliedResources)
		}
		for _, r := range got.Status.Resources {
			if r.State == string(tenant.Failed) || r.State == string(tenant.Conflicted) {
				t.Errorf("%s: %s is %s: %s", o.GetName(), r.ID, r.State, r.Message)
			}
		}
	}
	for _, before := range objects {
		after := before.DeepCopy()
		if err := l.Client.Get(t.Context(), client.ObjectKeyFromObject(before), after); err != nil {
			t.Errorf("%s %s: %v", before.GetKind(), before.GetName(), err)
			continue
		}
		if after.GetResourceVersion() != before.GetResourceVersion() {
			t.Errorf("%s %s was written", before.GetKind(), before.GetName())
		}
	}
}

func TestKindsOfTheCluster(t *testing.T) {
	l := newLab(t)
	for name, want := range map[string]schema.GroupVersionKind{
		"TenantTemplate": {Group: "operator.kubernetes-tenants.org", Version: "v1", Kind: "TenantTemplate"},
		"NetworkPolicy":  {Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
		"ConfigMap":      {Version: "v1", Kind: "ConfigMap"},
	} {
		found, complete, err := l.c.observer.kinds(name)
		if err != nil || !complete || len(found) != 1 || found[0].GroupVersionKind != want {
			t.Errorf("%s is %v, complete %t, %v, want %v", name, found, complete, err, want)
		}
	}
	if found, _, _ := l.c.observer.kinds("Gizmo"); len(found) > 0 {
		t.Errorf("there is no Gizmo, but %v", found)
	}
}
