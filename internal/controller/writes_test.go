package controller

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
)

func TestACopyMustKnowWhatWeWrote(t *testing.T) {
	key := objectRef{infra.Dialect{}, types.NamespacedName{Namespace: "apps", Name: "net"}}
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
			var x index
			if tt.written == unseen {
				x.make("one", key).doubt()
			} else if tt.written != "" {
				x.wrote(key, &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: key.key.Namespace, Name: key.key.Name, UID: "one", ResourceVersion: tt.written}})
			}
			if got := x.newest(key).covers(tt.copy); got != tt.want {
				t.Errorf("covers(%q) after %q is %v, want %v", tt.copy, tt.written, got, tt.want)
			}
			x.drop("one")
			if !x.newest(key).covers(tt.copy) {
				t.Error("what is forgotten still counts")
			}
		})
	}
}

func TestWhatWeWroteIsKnownBeforeTheCacheHearsOfIt(t *testing.T) {
	key := objectRef{infra.Dialect{}, types.NamespacedName{Namespace: "apps", Name: "net"}}
	obj := &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: key.key.Namespace, Name: key.key.Name, UID: "one", ResourceVersion: "7", ManagedFields: []metav1.ManagedFieldsEntry{{}}}}
	var x index
	one := x.make("one", key)
	if x.copyOf(one) != nil {
		t.Error("there is a copy of what was never written")
	}
	x.wrote(key, obj)
	got := x.copyOf(one)
	if got == nil || got.GetResourceVersion() != "7" || got.GetManagedFields() != nil {
		t.Fatalf("the copy is %+v", got)
	}
	got.SetLabels(map[string]string{"changed": "by a pass"})
	if again := x.copyOf(one); again == nil || again.GetLabels() != nil {
		t.Errorf("a pass changed the copy of the next one: %+v", again)
	}
	if x.copyOf(x.make("two", key)) != nil {
		t.Error("an object that was made again has the copy of the former one")
	}
	one.doubt()
	if x.copyOf(one) != nil {
		t.Error("what is in doubt is still taken for the last")
	}
}
