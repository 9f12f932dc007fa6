package children

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/terrier-iac/terrier/internal/testkit"
)

const soon = testkit.Patience

// watched starts the watches of the lab's Cluster for a kind, and returns what
// they wake once they have heard of everything.
func (l *lab) watched(apiVersion, kind string) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	l.t.Helper()
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	ctx, cancel := context.WithCancel(l.t.Context())
	l.t.Cleanup(func() { cancel(); q.ShutDown() })
	w := l.cluster.Watches()
	w.Ensure(apiVersion, kind, l.owner.key())
	if err := w.Source().Start(ctx, q); err != nil {
		l.t.Fatal(err)
	}
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		l.t.Fatal(err)
	}
	testkit.Eventually(l.t, soon, "the kind is watched", func(context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.complete(Key{Group: gv.Group, Version: gv.Version, Kind: kind}) {
			return errors.New("it is not")
		}
		return nil
	})
	l.drain(q)
	return q
}

// drain takes out what is in a queue.
func (l *lab) drain(q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	for q.Len() > 0 {
		r, _ := q.Get()
		q.Done(r)
	}
}

// woken waits until a Tenant is.
func (l *lab) woken(q workqueue.TypedRateLimitingInterface[reconcile.Request], why string) {
	l.t.Helper()
	testkit.Eventually(l.t, soon, "the Tenant is woken because "+why, func(context.Context) error {
		if q.Len() == 0 {
			return errors.New("it is not")
		}
		return nil
	})
	r, _ := q.Get()
	defer q.Done(r)
	if r.NamespacedName != l.owner.key() {
		l.t.Errorf("%s is woken because %s, want %s", r, why, l.owner.key())
	}
}

// settled waits until the watch has heard of what was written last.
func (l *lab) settled(key Key, live Live) {
	l.t.Helper()
	testkit.Eventually(l.t, soon, "the watch has heard of "+key.String(), func(context.Context) error {
		if v, ok := l.cluster.Watches().Version(key); !ok || v != live.ResourceVersion {
			return fmt.Errorf("it knows %q, want %s", v, live.ResourceVersion)
		}
		return nil
	})
}

// An object that did not change costs nothing; one that did wakes its Tenant,
// whatever says whose it is.
func TestWhatDidNotChangeIsRecalled(t *testing.T) {
	for name, policy := range map[string]func(*Write){"by owner": func(*Write) {}, "by labels": retained} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			q := l.watched("v1", "ConfigMap")
			key := l.key("ConfigMap", "c")
			live := l.write(l.want(l.configMap("c", map[string]string{"a": "1"}), policy))
			l.settled(key, live)
			l.drain(q)
			l.asked()
			recalled, ok := l.cluster.Recall(key, l.owner)
			if !ok || !recalled.Owned || recalled.UID != live.UID || recalled.State != Ready || recalled.Object != nil {
				t.Errorf("Recall() = %+v, %v, want what was written, without the object", recalled, ok)
			}
			if got := l.asked(); got != "" {
				t.Errorf("Recall() took the requests %q, want none", got)
			}
			l.patchAs("them", key, `{"data":{"b":"2"}}`)
			l.woken(q, "its object changed")
			if _, ok := l.cluster.Recall(key, l.owner); ok {
				t.Errorf("Recall() of what has changed gave something")
			}
			l.patchAs("them", key, `{"metadata":{"labels":{"kubernetes-tenants.org/tenant":null},"ownerReferences":null}}`)
			l.woken(q, "its object was taken from it")
			if v, ok := l.cluster.Watches().Version(key); ok {
				t.Errorf("Version() of what is nobody's = %s, want none", v)
			}
			l.settled(key, l.write(l.want(l.configMap("c", map[string]string{"a": "1"}), policy)))
			l.drain(q)
			if err := l.Client.Delete(t.Context(), l.live(key)); err != nil {
				t.Fatal(err)
			}
			l.woken(q, "its object is gone")
		})
	}
}

// A kind that does not exist yet is watched when it does, and the Tenant that
// waits for it is told.
func TestAKindThatComesLater(t *testing.T) {
	l := newLab(t)
	name := fmt.Sprintf("lates%d", time.Now().UnixNano()%1e6)
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	w := l.cluster.Watches()
	if err := w.Source().Start(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	w.Ensure(name+".example.com/v1", "Late", l.owner.key())
	crd := l.Apply(t, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: `+name+`.`+name+`.example.com, namespace: ""}
spec:
  group: `+name+`.example.com
  scope: Namespaced
  names: {plural: `+name+`, singular: late, kind: Late, listKind: LateList}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		if err := l.Client.Delete(ctx, crd[0]); err != nil {
			t.Errorf("deleting the definition: %v", err)
		}
	})
	l.woken(q, "the kind is there")
}

// An object without a tenant costs nothing after its first event.
func TestObjectsOfOthersCostNothing(t *testing.T) {
	w, err := newWatches(Config{REST: &rest.Config{}, HTTP: http.DefaultClient}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const many = 50_000
	s := &store{watches: w, kind: schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, watch: &kindWatch{}, has: map[Key]bool{}}
	for i := range many {
		o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprintf("secret-%d", i), UID: types.UID(fmt.Sprint(i)), ResourceVersion: fmt.Sprint(i),
			Labels: map[string]string{"app": "other"}, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "x"}},
		}}
		if err := s.Update(o); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.has) != 0 || len(w.holders) != 0 || len(w.found) != 0 {
		t.Errorf("of %d objects of others %d keys, %d holders and %d looks are kept, want none", many, len(s.has), len(w.holders), len(w.found))
	}
	if err := s.Update(&corev1.Secret{}); err == nil {
		t.Errorf("Update() took a whole object, want metadata only")
	}
}
