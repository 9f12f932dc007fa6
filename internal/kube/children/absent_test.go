package children

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/terrier-iac/terrier/internal/tenant"
)

func absent(w *Write) { w.Absent = true }

// managers say who manages an object, and how.
func managers(u *unstructured.Unstructured) []string {
	var all []string
	for _, e := range u.GetManagedFields() {
		all = append(all, fmt.Sprint(e.Manager, " ", e.Operation, " ", string(e.FieldsV1.GetRawBytes())))
	}
	return all
}

// An object that no cache knows is created by one request, and is the same object
// that it would be after a read.
func TestWhatIsAbsentIsCreatedWithoutARead(t *testing.T) {
	l := newLab(t)
	terraform := func(name string) string {
		return "apiVersion: infra.contrib.fluxcd.io/v1alpha2\nkind: Terraform\nmetadata: {name: " + name + "}\nspec: {interval: 1m, sourceRef: {kind: GitRepository, name: modules}}\n"
	}
	configMap := func(name string) string { return l.configMap(name, map[string]string{"a": "1"}) }
	for name, tt := range map[string]struct {
		manifest func(string) string
		by       tenant.PatchStrategy
		want     string
	}{
		"apply":              {configMap, tenant.Apply, "PATCH"},
		"merge":              {configMap, tenant.Merge, "POST"},
		"replace":            {configMap, tenant.Replace, "POST"},
		"apply a stack":      {terraform, tenant.Apply, "PATCH"},
		"apply with a force": {configMap, tenant.Apply, "PATCH"},
	} {
		t.Run(name, func(t *testing.T) {
			name := strings.ReplaceAll(name, " ", "-")
			looked := l.want(tt.manifest(name+"-looked"), by(tt.by))
			l.write(looked)
			l.asked()
			w := l.want(tt.manifest(name), by(tt.by), absent, func(w *Write) { w.Force = strings.HasSuffix(name, "force") })
			if got := l.write(w); got.Change != Created || !got.Owned || got.Object == nil {
				t.Errorf("Write() = %+v, want that it is made", got)
			}
			if got := l.asked(); got != tt.want {
				t.Errorf("it took %q, want %q", got, tt.want)
			}
			got, want := managers(l.live(tenant.RefOf(w.Object))), managers(l.live(tenant.RefOf(looked.Object)))
			if !slices.Equal(got, want) {
				t.Errorf("it is managed by %q, want %q as after a look", got, want)
			}
			if got := l.write(l.want(tt.manifest(name), by(tt.by))); got.Change != Unchanged {
				t.Errorf("a second write: %s, want that nothing changes", got.Change)
			}
		})
	}
}

// An object that exists after all is treated as if it had been read before: an
// unknown object loses nothing.
func TestWhatIsNotAbsentIsRead(t *testing.T) {
	l := newLab(t)
	other := l.tenant("other")
	ours := map[string]string{"a": "ours", "auto": "1"}
	made := func(name string, change ...func(*Write)) Key {
		w := l.want(l.configMap(name, map[string]string{"a": "theirs"}), change...)
		l.write(w)
		return tenant.RefOf(w.Object)
	}
	for _, strategy := range []tenant.PatchStrategy{tenant.Apply, tenant.Merge, tenant.Replace} {
		t.Run(string(strategy), func(t *testing.T) {
			name := func(of string) string { return of + "-" + string(strategy) }
			refused := func(w Write, want string) {
				t.Helper()
				before := l.live(tenant.RefOf(w.Object))
				_, err := l.cluster.Write(t.Context(), w)
				conflict, ok := errors.AsType[*ConflictError](err)
				if !ok || !strings.Contains(conflict.Error(), want) {
					t.Errorf("Write() = %v, want a conflict that names %s", err, want)
				}
				if after := l.live(tenant.RefOf(w.Object)); after.GetResourceVersion() != before.GetResourceVersion() {
					t.Errorf("the object of somebody else was written: %v", after.Object)
				}
			}
			made(name("tenant"), func(w *Write) { w.Owner = other })
			refused(l.want(l.configMap(name("tenant"), ours), by(strategy), absent, force), "Tenant "+l.Namespace+"/other")
			l.owned(name("controlled"), true)
			refused(l.want(l.configMap(name("controlled"), ours), by(strategy), absent), "ConfigMap "+name("controlled")+"-parent")
			l.owned(name("person"), false)
			l.patchAs("person", l.key("ConfigMap", name("person")), `{"data":{"a":"theirs"}}`)
			refused(l.want(l.configMap(name("person"), ours), by(strategy), absent), "set by person")

			// Forced, it is written, but gets no field that no template asked for.
			w := l.want(l.configMap(name("person"), ours), by(strategy), absent, force, func(w *Write) { w.Defaults = [][]string{{"data", "auto"}} })
			if got := l.write(w); got.Change != Updated || !got.Owned {
				t.Errorf("forced: %s, owned %t, want it written", got.Change, got.Owned)
			}
			data, _, _ := unstructured.NestedStringMap(l.live(tenant.RefOf(w.Object)).Object, "data")
			if data["a"] != "ours" || data["auto"] != "" {
				t.Errorf("forced: its data are %v, want a of ours and no default", data)
			}

			key := made(name("once"), once)
			if got := l.write(l.want(l.configMap(name("once"), ours), by(strategy), absent, once)); got.Change != Unchanged {
				t.Errorf("what was made once: %s, want it left alone", got.Change)
			}
			if err := l.cluster.Orphan(t.Context(), key, string(l.live(key).GetUID()), "TenantDeleted", l.owner, time.Now()); err != nil {
				t.Fatal(err)
			}
			if got := l.write(l.want(l.configMap(name("once"), ours), by(strategy), absent)); got.Change != Adopted || !got.Owned {
				t.Errorf("an orphan: %s, owned %t, want it adopted", got.Change, got.Owned)
			}
		})
	}
}

// What is refused for what it is stays refused, and who may not is told so at once.
func TestWhatIsAbsentMayBeRefused(t *testing.T) {
	l := newLab(t)
	bad := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bad, labels: {a: \"no label\"}}\n"
	if _, err := l.cluster.Write(t.Context(), l.want(bad, absent)); err == nil || !strings.Contains(err.Error(), "no label") {
		t.Errorf("Write() = %v, want that the label is refused", err)
	}
	as, err := l.cluster.As(l.Namespace, "nobody")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := as.Write(t.Context(), l.want(l.configMap("c", nil), absent)); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("Write() as nobody = %v, want that it is forbidden", err)
	}
}
