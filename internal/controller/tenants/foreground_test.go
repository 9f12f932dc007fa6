package tenants

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// deleteInForeground asks for the end of the tenant as kubectl delete --cascade=foreground
// does. The API server of tests has no policy against it, and a garbage collector.
func (l *lab) deleteInForeground() {
	l.t.Helper()
	if err := l.Client.Delete(l.t.Context(), l.get(), client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
		l.t.Fatal(err)
	}
}

// collected waits until the garbage collector has deleted what is tied to the tenant.
func (l *lab) collected() {
	l.t.Helper()
	testkit.Eventually(l.t, testkit.Patience, "the garbage collector is done with the tenant", func(context.Context) error {
		if slices.Contains(l.get().Finalizers, metav1.FinalizerDeleteDependents) {
			return errors.New("it waits for dependents")
		}
		return nil
	})
}

// wantUntied checks that Kubernetes does not delete an object with its tenant, which owns it
// by labels.
func (l *lab) wantUntied(name string) {
	l.t.Helper()
	u := l.child("ConfigMap", name)
	if u == nil {
		l.t.Fatalf("%s is gone", name)
	}
	if len(u.GetOwnerReferences()) > 0 || u.GetLabels()[tenantsv1.LabelTenant] != "acme-web" {
		l.t.Errorf("%s has the owners %v and the labels %v, want no owner, and the tenant in a label", name, u.GetOwnerReferences(), u.GetLabels())
	}
}

// What must outlive its tenant outlives a deletion that Kubernetes makes itself, however the
// policy came about: also where no write of the object brings it there.
func TestWhatIsKeptOutlivesADeletionInTheForeground(t *testing.T) {
	protected := "terrier.dev/deletion-protection: \"true\""
	for name, tt := range map[string]struct {
		first, then string // resources
		annotations []string
		orphan      bool // else the tenant keeps it
	}{
		"retained from the beginning": {configMap("config", "deletionPolicy: Retain"), "", nil, true},
		"retained later":              {configMap("config"), configMap("config", "deletionPolicy: Retain"), nil, true},
		"retained later, and written once": {
			configMap("config", "creationPolicy: Once"), configMap("config", "creationPolicy: Once", "deletionPolicy: Retain"), nil, true,
		},
		"retained later, and its write waits": {
			configMap("config"), configMap("config", "deletionPolicy: Retain", "dependIds: [late]") + configMap("late", "readyWhen: 'false'"), nil, true,
		},
		"of a tenant that is protected later": {configMap("config"), configMap("config"), []string{protected}, false},
		"written once, of a tenant that is protected later": {
			configMap("config", "creationPolicy: Once"), configMap("config", "creationPolicy: Once"), []string{protected}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.tenant("configMaps:" + tt.first)
			l.look()
			if tt.then != "" {
				l.tenant("configMaps:"+tt.then, tt.annotations...)
				l.look()
			}
			l.wantUntied("acme-config")
			l.deleteInForeground()
			l.collected()
			if u := l.child("ConfigMap", "acme-config"); u == nil || u.GetDeletionTimestamp() != nil {
				t.Fatal("Kubernetes has deleted the object")
			}
			l.look()
			if tt.orphan {
				wantOrphan(t, l.child("ConfigMap", "acme-config"), "TenantDeleted")
				return
			}
			wantCondition(t, l, "Ready", "False", "DeletionProtected")
			l.wantThere("ConfigMap", "acme-config", true)
			// Nothing more is written.
			l.line.since()
			l.look()
			if n := l.writesSince(); n > 0 {
				t.Errorf("another pass made %d writes", n)
			}
		})
	}
}

// A tenant that is not protected any more ties its objects again, as Tenant Operator does.
func TestObjectsAreTiedAgainAfterProtection(t *testing.T) {
	l := newLab(t)
	l.tenant("configMaps:"+configMap("config"), "terrier.dev/deletion-protection: \"true\"")
	l.look()
	l.wantUntied("acme-config")
	l.tenant("configMaps:"+configMap("config"), "terrier.dev/deletion-protection: \"false\"")
	l.look()
	if refs := l.child("ConfigMap", "acme-config").GetOwnerReferences(); len(refs) != 1 || refs[0].UID != l.get().UID {
		t.Errorf("the owners are %v, want the tenant", refs)
	}
}

// A deletion in the foreground goes on in the background once Terrier sees it.
func TestADeletionInTheForegroundIsMadeOneInTheBackground(t *testing.T) {
	l := newLab(t)
	l.tenant("configMaps:" + configMap("config"))
	l.look()
	l.finalize("ConfigMap", "acme-config") // Kubernetes waits for it
	l.deleteInForeground()
	l.look()
	if f := l.get().Finalizers; !slices.Equal(f, []string{tenantsv1.TenantFinalizer}) {
		t.Errorf("the finalizers are %v, want Terrier's only", f)
	}
	if n := l.heard.count("Warning ForegroundDeletion"); n != 1 {
		t.Errorf("it was told %d times, want once: %s", n, fmt.Sprint(l.heard.all))
	}
	l.release("ConfigMap", "acme-config")
	l.look()
	if !l.gone() {
		t.Errorf("the tenant is still there: %s", l.states())
	}
}
