package infra

import (
	"fmt"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
)

// list writes which resources exist. Without a new inventory the object keeps
// the one that it has, unless its spec asks for none any more.
func list(obj *v1alpha2.Terraform, inv *dialect.Inventory) {
	st := &obj.Status
	switch {
	case !obj.Spec.EnableInventory:
		st.Inventory, st.Terrier.Inventory = nil, nil
		return
	case inv == nil:
		return
	}
	st.Inventory = &v1alpha2.Inventory{Entries: []v1alpha2.Resource{}}
	for _, it := range inv.Items {
		st.Inventory.Entries = append(st.Inventory.Entries, v1alpha2.Resource{Name: it.Name, Type: it.Type, Identifier: it.ID})
	}
	t := &v1alpha2.InventoryStatus{Of: inv.Of, More: inv.More}
	switch {
	case inv.Sealed:
		t.Incomplete = "the state is encrypted, so that its resources cannot be listed"
	case inv.More > 0:
		t.Incomplete = fmt.Sprintf("the status has room for %d resources, and %d more exist", len(inv.Items), inv.More)
	}
	st.Terrier.Inventory = t
}

// listed identifies the inventory that the object has.
func listed(st *v1alpha2.TerraformStatus) string {
	if st.Inventory == nil || st.Terrier == nil || st.Terrier.Inventory == nil {
		return ""
	}
	return st.Terrier.Inventory.Of
}
