package tenants

import (
	"fmt"
	"testing"
	"time"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

// What was read before a suspension or a dry run deletes no tenant after it: the row
// may have come and gone meanwhile. Its grace period starts again, also when the
// controller was started again, and once only.
func TestDeparturesBeginAnewAfterAPause(t *testing.T) {
	for what, set := range map[string]func(*tenantsv1.TenantRegistry, bool){
		"suspended": func(r *tenantsv1.TenantRegistry, on bool) { r.Spec.Suspend = on },
		"dry run":   func(r *tenantsv1.TenantRegistry, on bool) { r.Spec.DryRun = on },
	} {
		for _, row := range []string{"missing", "inactive"} {
			t.Run(what+", "+row, func(t *testing.T) {
				var c clock
				o := newOffice(t, c.set)
				o.insert(3)
				o.open("guard: {}")
				o.sync()
				leave := func() {
					if row == "missing" {
						o.delete("a001")
					} else {
						o.set("a001", "https://a001.example.com", "0", "gold")
					}
				}
				leave()
				o.marked("a001-web")
				edit := func(on bool) {
					t.Helper()
					r := o.change(func(r *tenantsv1.TenantRegistry) { set(r, on) })
					o.eventually("the registry has seen it", func() error {
						if seen := o.registry().Status.ObservedGeneration; seen != r.Generation {
							return fmt.Errorf("it has seen generation %d, not %d", seen, r.Generation)
						}
						return nil
					})
				}
				edit(true)
				c.pass(72 * time.Hour)
				o.restart()
				resumed := c.now()
				edit(false)
				o.sync()
				tn, there := o.tenants()["a001-web"]
				l := tenantapi.Leaving(&tn)
				if !there || l == nil || l.Since.Before(resumed.Add(-time.Minute)) {
					t.Fatalf("after the pause the tenant is there: %t, and leaves: %+v, want a grace period that began after %s", there, l, resumed)
				}
				c.pass(30 * time.Second)
				o.sync()
				if again := o.tenants()["a001-web"]; tenantapi.Leaving(&again) == nil || !tenantapi.Leaving(&again).Since.Equal(l.Since) {
					t.Errorf("the grace period began once more: %q", o.leaving("a001-web"))
				}
				c.pass(31 * time.Second)
				o.sync()
				o.wantTenants("after the new grace period", "a000-web", "a002-web")
			})
		}
	}
}
