package tenants

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

// told waits until events were told so often, and no others of the same kind.
func (o *office) told(when string, want map[string]int) {
	o.t.Helper()
	o.eventually(when+" the right things are told", func() error {
		for _, reason := range []string{"TemplateApplied", "DataUpdated", "TenantUpdated"} {
			if n := o.heard.count(reason); n != want[reason] {
				return fmt.Errorf("%s was told %d times, want %d", reason, n, want[reason])
			}
		}
		return nil
	})
}

// A tenant is told what it was given: the template, the row, or both. Nothing is
// told of one that is made, and of a row that was only written again.
func TestWhatATenantIsGivenIsTold(t *testing.T) {
	o := newOffice(t)
	o.insert(2)
	o.open()
	o.sync()
	o.told("at first", nil)
	o.set("a000", "https://a000.example.com", "1", "silver")
	o.sync()
	o.told("with another row", map[string]int{"DataUpdated": 1})
	o.template("serviceAccountName: other")
	o.told("with another template", map[string]int{"DataUpdated": 1, "TemplateApplied": 2})

	var s corev1.Secret
	o.get(tenantapi.RowSecret("a000-web"), &s)
	if err := o.Client.Delete(t.Context(), &s); err != nil {
		t.Fatal(err)
	}
	o.eventually("the row is back", func() error {
		return o.Client.Get(t.Context(), client.ObjectKeyFromObject(&s), &corev1.Secret{})
	})
	o.told("with the same row", map[string]int{"DataUpdated": 1, "TemplateApplied": 2})

	suspend := func(yes bool) {
		t.Helper()
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"suspend":%t}}`, yes))
		if err := o.Client.Patch(t.Context(), o.registry(), patch); err != nil {
			t.Fatal(err)
		}
	}
	suspend(true)
	o.wantCondition(o.ofRegistry, "Ready", "False", reasonSuspended)
	o.template("serviceAccountName: another")
	o.wantCondition(o.ofTemplate, "Applied", "False", reasonNotAllReady)
	o.set("a000", "https://a000.example.com", "1", "bronze")
	suspend(false)
	o.told("with both", map[string]int{"DataUpdated": 1, "TemplateApplied": 3, "TenantUpdated": 1})
}

// While the cache shows a Tenant as it was before its last change, the same change is
// made again. It gives nothing.
func TestAChangeIsTakenForOneOnce(t *testing.T) {
	m := &remembered{given: map[string]given{}}
	stale := &tenantsv1.Tenant{ObjectMeta: metav1.ObjectMeta{
		Name: "acme", UID: "1", Annotations: map[string]string{tenantsv1.AnnotationTemplateGeneration: "1", tenantsv1.AnnotationRow: "old"},
	}}
	differ := func(when string, n tenant.Change, row any, want bool) {
		t.Helper()
		if before, after := m.give(stale, n, row); (before != after) != want {
			t.Errorf("%s: before %+v, after %+v", when, before, after)
		}
	}
	differ("another template", tenant.Change{Generation: 2}, nil, true)
	differ("the same template, and the row is written again", tenant.Change{Generation: 2}, "old", false)
	differ("another row", tenant.Change{}, "new", true)
	differ("both once more", tenant.Change{Generation: 2}, "new", false)
	differ("the template is back", tenant.Change{Generation: 1}, nil, true)
	differ("its row asks for its deletion", tenant.Change{Leaving: &tenant.Leaving{}}, nil, true)
	differ("its row asks again", tenant.Change{Leaving: &tenant.Leaving{}}, nil, false)
	differ("it stays", tenant.Change{Stay: true}, nil, true)
	stale.UID = "2"
	differ("another Tenant of the name", tenant.Change{Generation: 2}, nil, true)
	m.onlyOf(nil)
	if len(m.given) != 0 {
		t.Errorf("Tenants that are gone are remembered: %v", m.given)
	}
}

// Making a tenant is told when it begins and when all of it is there, and nothing
// more: not while it is settled, and not when an object is not ready for a while.
func TestMakingATenantIsTold(t *testing.T) {
	l := newLab(t)
	wantTold := func(when string, applying, success, partial int) {
		t.Helper()
		for reason, want := range map[string]int{"TemplateResourcesApplying": applying, "TemplateAppliedSuccess": success, "TemplateAppliedPartial": partial} {
			if n := l.heard.count(" " + reason + ":"); n != want {
				t.Errorf("%s %s was told %d times, want %d:\n%s", when, reason, n, want, strings.Join(l.heard.all, "\n"))
			}
		}
	}
	l.tenant("deployments:" + deployment("app", 1))
	l.look()
	l.look()
	wantTold("at first", 1, 0, 0)
	l.available("acme-app")
	l.look()
	l.look()
	wantTold("when it is ready", 1, 1, 0)
	l.status("Deployment", "acme-app", map[string]any{"observedGeneration": l.child("Deployment", "acme-app").GetGeneration(), "replicas": int64(1), "unavailableReplicas": int64(1)})
	l.look()
	l.wantStates("unwell", "app Progressing NotReady")
	l.available("acme-app")
	l.look()
	wantTold("after it was unwell", 1, 1, 0)
	l.tenant("deployments:" + deployment("app", 1) + "configMaps:" + configMap("config") + refusedService(`"no address"`))
	l.look()
	l.wantStates("with an object that is refused", "web Failed ApplyFailed")
	wantTold("with an object that is refused", 1, 1, 1)
	l.tenant("deployments:" + deployment("app", 1) + "configMaps:" + configMap("config"))
	l.look()
	l.look()
	wantTold("without it", 1, 2, 1)
}
