package query

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
)

// Of a tenant that goes, what went already is gone, and waits for nothing.
func TestObjectsOfATenantThatGoes(t *testing.T) {
	object := runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap"}`)}
	resource := func(id string, policy tenantsv1.DeletionPolicy, depends ...string) tenantsv1.TResource {
		return tenantsv1.TResource{ID: id, NameTemplate: id, Spec: object, DeletionPolicy: policy, DependIDs: depends}
	}
	o := &tenantsv1.Tenant{}
	o.Spec.ConfigMaps = []tenantsv1.TResource{
		resource("stack", tenantsv1.DeletionDelete), resource("app", tenantsv1.DeletionDelete, "stack"), resource("data", tenantsv1.DeletionRetain, "stack"),
	}
	o.Status.Inventory = []tenantsv1.InventoryItem{{ID: "stack", Version: "v1", Kind: "ConfigMap", Name: "stack"}}
	o.Status.Resources = []tenantsv1.ResourceStatus{{ID: "stack", State: "Deleting", Reason: "WaitsForFinalizers"}}
	states := func() map[string]string {
		t.Helper()
		objects, err := tenantObjects(o)
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]string{}
		for _, v := range objects {
			all[v.ID] = v.State
			if len(v.WaitsFor) > 0 {
				all[v.ID] += " waits"
			}
		}
		return all
	}
	if diff := cmp.Diff(states(), map[string]string{"stack": "Deleting", "app": "Pending waits", "data": "Pending waits"}); diff != "" {
		t.Errorf("of one that stays the objects are (-got +want):\n%s", diff)
	}
	o.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	if diff := cmp.Diff(states(), map[string]string{"stack": "Deleting", "app": ObjectGone, "data": ObjectLetGo}); diff != "" {
		t.Errorf("of one that goes the objects are (-got +want):\n%s", diff)
	}
}
