package children

import (
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A refusal is asked about again after a minute, a kind that is gone after ten
// seconds, and every other answer is the reflector's. Who asked for the kind
// meanwhile is woken by the first good answer.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer q.ShutDown()
		lines := 0
		log := slog.New(slog.NewTextHandler(writer(func([]byte) { lines++ }), nil))
		kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Late"}
		k := &kindWatch{lists: 1, synced: 1, waiting: map[types.NamespacedName]bool{}}
		w, err := newWatches(Config{REST: &rest.Config{}, HTTP: http.DefaultClient, Log: log}, nil)
		if err != nil {
			t.Fatal(err)
		}
		w.queue, w.kinds[kind] = q, k
		p := &listWatch{watches: w, kind: kind, watch: k}

		broken, began := errors.New("connection refused"), time.Now()
		resource := schema.GroupResource{Group: "example.com", Resource: "lates"}
		answers := []error{
			apierrors.NewForbidden(resource, "", nil), apierrors.NewNotFound(resource, ""), apierrors.NewForbidden(resource, "", nil), broken, nil,
		}
		var at []time.Duration
		ask := func() error {
			at = append(at, time.Since(began))
			if len(at) == 2 {
				w.Ensure("example.com/v1", "Late", types.NamespacedName{Namespace: "shop", Name: "acme"})
			}
			answer := answers[0]
			answers = answers[1:]
			return answer
		}
		if err := p.until(t.Context(), ask); !errors.Is(err, broken) {
			t.Errorf("until() = %v, want the answer that is the reflector's", err)
		}
		if want := []time.Duration{0, deniedRetry, deniedRetry + kindRetry, 2*deniedRetry + kindRetry}; !slices.Equal(at, want) {
			t.Errorf("it was asked at %v, want %v", at, want)
		}
		if lines != 1 || q.Len() != 0 || w.complete(Key{Group: "example.com", Version: "v1", Kind: "Late"}) {
			t.Errorf("%d complaints, %d woken, want one complaint, and a kind of which not all is heard", lines, q.Len())
		}
		if err := p.until(t.Context(), ask); err != nil {
			t.Errorf("until() = %v, want nil", err)
		}
		if q.Len() != 1 || k.denied != 0 {
			t.Errorf("%d are woken by a good answer and %d lists are missing, want the one who asked and none", q.Len(), k.denied)
		}
	})
}
