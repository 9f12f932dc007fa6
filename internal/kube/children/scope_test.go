package children

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/tenant"
)

// A Tenant can own what is in its namespace. Everything else says by labels whose it
// is: an owner in another namespace does not exist there, and the server would
// delete its objects.
func TestOnlyTheSameNamespaceIsOwned(t *testing.T) {
	l := newLab(t)
	other := newLab(t).Namespace
	for name, manifest := range map[string]string{
		"another namespace": "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: " + other + "}}",
		"a namespace":       "{apiVersion: v1, kind: Namespace, metadata: {name: " + l.Namespace + "-more}}",
		"a cluster role":    "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: " + l.Namespace + "}, rules: []}",
	} {
		for _, strategy := range strategies {
			w := l.want(manifest, by(strategy))
			if name != "another namespace" {
				delete(w.Object["metadata"].(map[string]any), "namespace")
			}
			live := l.write(w)
			u := l.live(tenant.RefOf(w.Object))
			if got := owners(u); len(got) > 0 || !live.Owned {
				t.Errorf("%s by %s: its owners are %q and it is the Tenant's: %v, want none and true", name, strategy, got, live.Owned)
			}
			want := []string{"kubernetes-tenants.org/tenant-namespace=" + l.Namespace, "kubernetes-tenants.org/tenant=acme"}
			got := slices.DeleteFunc(marks(u), func(m string) bool { return !slices.Contains(want, m) })
			if diff := cmp.Diff(got, want); diff != "" {
				t.Errorf("%s by %s: its marks (-got +want):\n%s", name, strategy, diff)
			}
			if err := l.cluster.Delete(t.Context(), tenant.RefOf(w.Object), live.UID); err != nil {
				t.Fatal(err)
			}
			if name == "a namespace" {
				break // it takes its time to go
			}
		}
	}
}
