package children

import (
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// answers is a mapper that gives one error after another.
type answers struct {
	meta.RESTMapper
	all []error
}

func (a *answers) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	err := a.all[0]
	a.all = a.all[1:]
	return nil, err
}

// A kind counts as one that the cluster does not have only if its API says so: an object of
// a kind that is gone is gone as well, and leaves the inventory of its tenant.
func TestAnAPIThatDoesNotAnswerHasItsKinds(t *testing.T) {
	gv, kind := schema.GroupVersion{Group: "metrics.example.com", Version: "v1"}, schema.GroupKind{Group: "metrics.example.com", Kind: "Gauge"}
	discovery := func(err error) error {
		return new(apiutil.ErrResourceDiscoveryFailed(map[schema.GroupVersion]error{gv: err}))
	}
	leftOut := discovery(&meta.NoResourceMatchError{PartialResource: gv.WithResource("")})
	down := discovery(apierrors.NewGenericServerResponse(http.StatusServiceUnavailable, "get", gv.WithResource("").GroupResource(), "", "", 0, false))
	unknown := &meta.NoKindMatchError{GroupKind: kind, SearchedVersions: []string{"v1"}}
	for name, tt := range map[string]struct {
		answers []error
		gone    bool
		left    int // answers that are not asked for
	}{
		"an API that the discovery of all leaves out, and that does not answer": {[]error{leftOut, down}, false, 0},
		"an API that the discovery of all leaves out, and that is not there":    {[]error{leftOut, unknown}, true, 0},
		"an API that does not answer":                                           {[]error{down, unknown}, false, 1},
		"a kind that its API does not have":                                     {[]error{unknown, down}, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			a := &answers{all: tt.answers}
			_, err := sureMapper{a}.RESTMapping(kind, "v1")
			if err == nil || meta.IsNoMatchError(err) != tt.gone || len(a.all) != tt.left {
				t.Errorf("RESTMapping() = %v, with %d answers left, want gone = %t and %d", err, len(a.all), tt.gone, tt.left)
			}
		})
	}
}
