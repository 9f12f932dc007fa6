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
