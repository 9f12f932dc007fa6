package children

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/terrier-iac/terrier/internal/tenant"
)

const policy = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: p}
spec:
  podSelector: {matchLabels: {app: web}}
  policyTypes: [Ingress]
  ingress: [{ports: [{port: 80}]}]
`

// A list without keys has one owner: an addition of another manager to an element is
// seen, although all that we ask for is still there.
func TestEditInsideAListIsSeen(t *testing.T) {
	l := newLab(t)
	key := Key{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy", Namespace: l.Namespace, Name: "p"}
	w := l.want(policy)
	l.write(w)
	l.patchAs("kubectl-edit", key, `{"spec":{"ingress":[{"ports":[{"port":80,"endPort":9000,"protocol":"TCP"}]}]}}`)
	_, err := l.cluster.Write(t.Context(), w)
	conflict, ok := errors.AsType[*ConflictError](err)
	if !ok || !slices.Equal(conflict.Managers, []string{"kubectl-edit"}) {
		t.Fatalf("Write() = %v, want a conflict with kubectl-edit", err)
	}
	w.Force = true
	if got := l.write(w).Change; got != Updated {
		t.Errorf("Write() with Force is %q, want %q", got, Updated)
	}
	ingress, _, _ := unstructured.NestedSlice(l.live(key).Object, "spec", "ingress")
	want := []any{map[string]any{"ports": []any{map[string]any{"port": int64(80), "protocol": "TCP"}}}}
	if diff := cmp.Diff(ingress, want); diff != "" {
		t.Errorf("ingress (-got +want):\n%s", diff)
	}
}

// Elements that others add to a list with keys do no harm, and are no reason to
// write.
func TestElementsOfOthersAreLeft(t *testing.T) {
	l := newLab(t)
	key, w := l.key("Deployment", "web"), l.want(deployment)
	l.write(w)
	l.Apply(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template: {spec: {containers: [{name: sidecar, image: registry.example/mesh}]}}
`)
	l.asked()
	if got := l.write(w).Change; got != Unchanged || l.asked() != "GET" {
		t.Errorf("Write() is %q, want no write", got)
	}
	containers, _, _ := unstructured.NestedSlice(l.live(key).Object, "spec", "template", "spec", "containers")
	if len(containers) != 2 {
		t.Errorf("there are %d containers, want ours and the sidecar", len(containers))
	}
}

// An empty map says something: emptyDir: {} is a volume.
func TestEmptyMapIsWritten(t *testing.T) {
	live := map[string]any{"spec": map[string]any{"volumes": []any{map[string]any{"name": "v", "configMap": map[string]any{}}}}}
	want := map[string]any{"spec": map[string]any{"volumes": []any{map[string]any{"name": "v", "emptyDir": map[string]any{}}}}}
	if got := differing(want, live); len(got) != 1 {
		t.Errorf("differing() = %v, want the volumes", got)
	}
	if got := differing(map[string]any{"spec": map[string]any{"a": map[string]any{}}}, live); len(got) != 1 {
		t.Errorf("differing() = %v, want spec.a", got)
	}
}

// An atomic map belongs to one manager as a whole, also the keys that it does not
// have.
func TestMergeIntoAMapThatIsOneValue(t *testing.T) {
	l := newLab(t)
	key := l.key("Service", "s")
	manifest := "{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {selector: {app: a}, ports: [{port: 80}]}}"
	l.write(l.want(manifest, by(tenant.Merge)))
	l.patchAs("them", key, `{"spec":{"selector":{"app":"b"}}}`)
	_, err := l.cluster.Write(t.Context(), l.want("{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {selector: {tier: web}, ports: [{port: 80}]}}", by(tenant.Merge)))
	conflict, ok := errors.AsType[*ConflictError](err)
	if !ok || !slices.Equal(conflict.Fields, []string{".spec.selector.tier"}) {
		t.Errorf("Write() = %v, want a conflict about .spec.selector.tier", err)
	}
}

// The volume that a controller bound to a claim is no conflict.
func TestReplaceOfABoundClaim(t *testing.T) {
	l := newLab(t)
	manifest := "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: s}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}"
	key := l.key("PersistentVolumeClaim", "s")
	l.write(l.want(manifest, by(tenant.Replace)))
	l.patchAs("kube-controller-manager", key, `{"metadata":{"annotations":{"pv.kubernetes.io/bind-completed":"yes"}},"spec":{"volumeName":"pv-1"}}`)
	w := l.want(manifest, by(tenant.Replace))
	w.Deletion = tenant.Retain
	if got := l.write(w).Change; got != Updated {
		t.Errorf("Write() is %q, want %q", got, Updated)
	}
	u := l.live(key)
	if got, _, _ := unstructured.NestedString(u.Object, "spec", "volumeName"); got != "pv-1" || u.GetAnnotations()["pv.kubernetes.io/bind-completed"] != "yes" {
		t.Errorf("its volume is %q and its annotations are %v, want what the controller set", got, u.GetAnnotations())
	}
}
