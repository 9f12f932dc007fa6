package children

import (
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// noKinds is a cluster that has no kind, and says when it is asked.
type noKinds struct {
	meta.RESTMapper
	asked func()
}

func (n noKinds) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	n.asked()
	return nil, &meta.NoKindMatchError{GroupKind: kind, SearchedVersions: versions}
}

// A template may name any number of kinds that do not exist. Each costs a few requests,
// and nothing once no Tenant asks for it any more. One that is installed after its Tenants is
// found within a minute.
func TestAKindThatNeverExists(t *testing.T) {
	for name, tt := range map[string]struct {
		wanted time.Duration // how long a Tenant asks for it
		most   int           // requests
	}{
		"that was asked for once":       {0, 20},
		"that is asked for for an hour": {time.Hour, 80},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, requests := time.Now(), 0
				last, longest := began, time.Duration(0)
				var w *Watches
				ask := func() { w.Ensure("example.com/v1", "Gizmo", types.NamespacedName{Namespace: "shop", Name: "acme"}) }
				mapper := noKinds{asked: func() {
					requests++
					last, longest = time.Now(), max(longest, time.Since(last))
					if time.Since(began) < tt.wanted {
						ask()
					}
				}}
				w, err := newWatches(Config{REST: &rest.Config{}, HTTP: http.DefaultClient, Log: slog.New(slog.DiscardHandler)}, mapper)
				if err != nil {
					t.Fatal(err)
				}
				ask() // nothing is started before the controller runs
				kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gizmo"}
				w.run(t.Context(), kind, w.kinds[kind])
				if longest != time.Minute {
					t.Errorf("a kind that is installed meanwhile is found after up to %s, want a minute", longest)
				}
				took := time.Since(began)
				if took < tt.wanted || took > tt.wanted+kindForgotten+2*kindRetryMost || requests > tt.most || len(w.kinds) != 0 {
					t.Errorf("after %s and %d requests %d kinds are known, want none, after at most %d", took, requests, len(w.kinds), tt.most)
				}
			})
		})
	}
}
