package children

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// lab is a namespace with a Tenant, and a Cluster whose requests are written down.
type lab struct {
	*testkit.Cluster
	t       *testing.T
	cluster *Cluster
	owner   Owner

	made testkit.Requests
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{Cluster: testkit.Kube(t, tenantsv1.AddToScheme), t: t}
	l.owner = l.tenant("acme")
	l.restart()
	return l
}

// restart makes a Cluster that has seen nothing yet.
func (l *lab) restart() {
	l.t.Helper()
	var err error
	if l.cluster, err = New(Config{REST: l.made.Of(l.Config), Namespaces: []string{l.Namespace}}); err != nil {
		l.t.Fatal(err)
	}
}

// asked are the methods of the requests for objects of the namespace since it was
// last called.
func (l *lab) asked() string {
	var all []string
	for _, r := range l.made.Take() {
		if strings.Contains(r.Path, "/namespaces/"+l.Namespace+"/") {
			all = append(all, r.Method)
		}
	}
	return strings.Join(all, " ")
}

// tenant makes a Tenant.
func (l *lab) tenant(name string) Owner {
	l.t.Helper()
	o := &tenantsv1.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: name}, Spec: tenantsv1.TenantSpec{UID: name, TemplateRef: "web"}}
	if err := l.Client.Create(l.t.Context(), o); err != nil {
		l.t.Fatal(err)
	}
	return Owner{APIVersion: tenantsv1.GroupVersion.String(), Kind: tenantsv1.TenantKind, Namespace: l.Namespace, Name: name, UID: string(o.UID), TenantID: name}
}

// want is the write of a manifest, with the defaults of the API.
func (l *lab) want(manifest string, change ...func(*Write)) Write {
	l.t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &u.Object); err != nil {
		l.t.Fatal(err)
	}
	if u.GetNamespace() == "" {
		u.SetNamespace(l.Namespace)
	}
	data, err := u.MarshalJSON() // numbers become int64, as rendering leaves them
	if err != nil {
		l.t.Fatal(err)
	}
	if err := u.UnmarshalJSON(data); err != nil {
		l.t.Fatal(err)
	}
	w := Write{Object: u.Object, Patch: tenant.Apply, Creation: tenant.WhenNeeded, Deletion: tenant.Delete, Owner: l.owner}
	for _, c := range change {
		c(&w)
	}
	return w
}

func by(p tenant.PatchStrategy) func(*Write) { return func(w *Write) { w.Patch = p } }
func force(w *Write)                         { w.Force = true }
func once(w *Write)                          { w.Creation = tenant.Once }
func retained(w *Write)                      { w.Deletion = tenant.Retain }
func ignoring(paths ...string) func(*Write)  { return func(w *Write) { w.IgnoreFields = paths } }

// write writes what must work.
func (l *lab) write(w Write) Live {
	l.t.Helper()
	live, err := l.cluster.Write(l.t.Context(), w)
	if err != nil {
		l.t.Fatalf("Write(%s): %v", tenant.RefOf(w.Object), err)
	}
	return live
}

// live reads an object behind the back of the Cluster.
func (l *lab) live(key Key) *unstructured.Unstructured {
	l.t.Helper()
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(key.APIVersion())
	u.SetKind(key.Kind)
	if err := l.Client.Get(l.t.Context(), types.NamespacedName{Namespace: key.Namespace, Name: key.Name}, u); err != nil {
		l.t.Fatalf("reading %s: %v", key, err)
	}
	return u
}

// patchAs is a JSON merge patch by who.
func (l *lab) patchAs(who string, key Key, patch string) {
	l.t.Helper()
	if err := l.Client.Patch(l.t.Context(), l.live(key), client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner(who)); err != nil {
		l.t.Fatalf("patching %s: %v", key, err)
	}
}

// owners are the owners of an object as Kind/name, those that control it with a star.
func owners(u *unstructured.Unstructured) []string {
	var all []string
	for _, r := range u.GetOwnerReferences() {
		star := ""
		if r.Controller != nil && *r.Controller {
			star = "*"
		}
		all = append(all, r.Kind+"/"+r.Name+star)
	}
	return all
}

// marks are the labels and annotations that say whose an object is.
func marks(u *unstructured.Unstructured) []string {
	all := []string{}
	for k, v := range u.GetLabels() {
		all = append(all, k+"="+v)
	}
	for k, v := range u.GetAnnotations() {
		all = append(all, k+"="+v)
	}
	slices.Sort(all)
	return all
}

// owned makes a foreign ConfigMap that another object owns, and controls if
// controller.
func (l *lab) owned(name string, controller bool) {
	l.t.Helper()
	parent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: name + "-parent"}}
	if err := l.Client.Create(l.t.Context(), parent); err != nil {
		l.t.Fatal(err)
	}
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: l.Namespace, Name: name,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: parent.Name, UID: parent.UID, Controller: &controller}},
	}, Data: map[string]string{"theirs": "1"}}
	if err := l.Client.Create(l.t.Context(), child, client.FieldOwner("their-controller")); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) configMap(name string, data map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata:\n", name)
	for _, k := range slices.Sorted(maps.Keys(data)) {
		fmt.Fprintf(&b, "  %s: %q\n", k, data[k])
	}
	return b.String()
}

func (l *lab) key(kind, name string) Key {
	switch kind {
	case "Deployment":
		return Key{Group: "apps", Version: "v1", Kind: kind, Namespace: l.Namespace, Name: name}
	default:
		return Key{Version: "v1", Kind: kind, Namespace: l.Namespace, Name: name}
	}
}
