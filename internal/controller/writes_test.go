package controller

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
)

func TestACopyMustKnowWhatWeWrote(t *testing.T) {
	key := types.NamespacedName{Namespace: "apps", Name: "net"}
	for name, tt := range map[string]struct {
		written, copy string
		want          bool
	}{
		"nothing was written yet":       {"", "7", true},
		"the very version":              {"99", "99", true},
		"an older one":                  {"100", "99", false},
		"a newer one":                   {"99", "100", true},
		"a newer one of as many digits": {"101", "102", true},
		"no number is newer":            {"99", "x100", false},
		"nothing is newer than a doubt": {unseen, "100", false},
		"a copy without a version":      {"99", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			var w ownWrites
			if tt.written == unseen {
				w.doubt(key)
			} else if tt.written != "" {
				w.wrote(&v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, ResourceVersion: tt.written}})
			}
			if got := w.covers(key, tt.copy); got != tt.want {
				t.Errorf("covers(%q) after %q is %v, want %v", tt.copy, tt.written, got, tt.want)
			}
			w.forget(key)
			if !w.covers(key, tt.copy) {
				t.Error("what is forgotten still counts")
			}
		})
	}
}

func TestWhatWeWroteIsKnownBeforeTheCacheHearsOfIt(t *testing.T) {
	key := types.NamespacedName{Namespace: "apps", Name: "net"}
	obj := &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "one", ResourceVersion: "7", ManagedFields: []metav1.ManagedFieldsEntry{{}}}}
	var w ownWrites
	if w.copyOf(key, "one") != nil {
		t.Error("there is a copy of what was never written")
	}
	w.wrote(obj)
	got := w.copyOf(key, "one")
	if got == nil || got.GetResourceVersion() != "7" || got.GetManagedFields() != nil {
		t.Fatalf("the copy is %+v", got)
	}
	got.SetLabels(map[string]string{"changed": "by a pass"})
	if again := w.copyOf(key, "one"); again == nil || again.GetLabels() != nil {
		t.Errorf("a pass changed the copy of the next one: %+v", again)
	}
	if w.copyOf(key, "two") != nil {
		t.Error("an object that was made again has the copy of the former one")
	}
	w.doubt(key)
	if w.copyOf(key, "one") != nil {
		t.Error("what is in doubt is still taken for the last")
	}
}
