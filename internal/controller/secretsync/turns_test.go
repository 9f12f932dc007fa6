package secretsync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"pgregory.net/rapid"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/terrier-iac/terrier/internal/externalsecret"
	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/vault/vaulttest"
)

// holding holds each pass up that reads a Secret of one namespace, until release is closed.
type holding struct {
	client.Client
	namespace       string
	asked, released chan struct{}
	late            error // what follows then; nil for what there is
}

func (h holding) Get(ctx context.Context, at client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if _, ok := o.(*corev1.Secret); ok && at.Namespace == h.namespace {
		h.asked <- struct{}{}
		<-h.released
		if h.late != nil {
			return h.late
		}
	}
	return h.Client.Get(ctx, at, o, options...)
}

// Passes that take long take a few workers from other namespaces, however many objects of one
// namespace have such passes.
func TestSlowPassesLeaveWorkersToOtherNamespaces(t *testing.T) {
	v := vaulttest.StandIn(t)
	v.Write(t, "database", map[string]any{"password": "p"})
	s, hostile := newStage(t, v), testkit.Kube(t)
	s.external("good", "dataFrom: [{extract: {key: database}}]")
	const most = 4 // of eight workers
	const objects = most + 2
	for n := range objects {
		hostile.Apply(t, fmt.Sprintf(slowSecret, n))
	}
	h := holding{s.options.Live, hostile.Namespace, make(chan struct{}, objects), make(chan struct{}), errors.New("it comes late")}
	s.options.Live = h
	r := newReconciler(s.options, s.Client, &guard{live: s.Client, now: s.options.Now, log: s.options.Log})
	pass := func(namespace, name string) ctrl.Result {
		out, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
		if err != nil {
			t.Error(err)
		}
		return out
	}
	var going sync.WaitGroup
	defer going.Wait()
	defer close(h.released)
	for n := range most {
		going.Go(func() { pass(hostile.Namespace, fmt.Sprint("slow-", n)) })
	}
	for range most {
		<-h.asked
	}
	for n := most; n < objects; n++ {
		if out := pass(hostile.Namespace, fmt.Sprint("slow-", n)); out.RequeueAfter != r.turns.Again {
			t.Errorf("the next pass of an object without a place is in %v, want %v", out.RequeueAfter, r.turns.Again)
		}
	}
	pass(s.Namespace, "good")
	s.holds("good", map[string]string{"password": "p"})
	s.condition("good", conditionReady, metav1.ConditionTrue, externalsecret.ReasonSynced, "")
}

// slowSecret is an ExternalSecret.
const slowSecret = `
apiVersion: external-secrets.io/v1
kind: ExternalSecret
metadata: {name: slow-%d}
spec:
  secretStoreRef: {name: slow}
  dataFrom: [{extract: {key: database}}]
`

// Whatever comes and ends in whatever order: no namespace has more than a half of the workers, or
// takes more than its quarter where it would leave less than a quarter, and in each the objects
// get their places in the order in which they came. Each has one without that any time passes.
func TestPlacesGoRound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const workers = 8
		c := newTurns(workers)
		var queue []reconcile.Request
		add := func(r reconcile.Request) {
			if !slices.Contains(queue, r) {
				queue = append(queue, r)
			}
		}
		if err := c.Start(context.Background(), adding{add: add}); err != nil {
			t.Fatal(err)
		}
		going, passes := map[reconcile.Request]func(){}, map[string]int{}
		waiting := map[string][]string{}
		wanted, had := map[reconcile.Request]bool{}, map[reconcile.Request]bool{}
		come := func() {
			at := slices.IndexFunc(queue, func(r reconcile.Request) bool { return going[r] == nil }) // a queue gives out no key twice
			if at < 0 || len(going) == workers {
				return
			}
			r := queue[at]
			queue = slices.Delete(queue, at, at+1)
			leave, ok := c.Enter(r)
			place := slices.Index(waiting[r.Namespace], r.Name)
			if !ok {
				if place < 0 {
					waiting[r.Namespace] = append(waiting[r.Namespace], r.Name)
				}
				if passes[r.Namespace] < workers/4 && place == 0 {
					t.Fatalf("%v is the first in turn, and finds no place beside %v", r, passes)
				}
				return
			}
			before := place
			if place < 0 {
				before = len(waiting[r.Namespace])
			} else {
				waiting[r.Namespace] = slices.Delete(waiting[r.Namespace], place, place+1)
			}
			passes[r.Namespace]++
			going[r], had[r] = leave, true
			if n := passes[r.Namespace]; n > workers/2 || n > workers/4 && len(going) > workers*3/4 || n+before > workers/2 {
				t.Fatalf("%v has a place beside %v, before %d others", r, passes, before)
			}
		}
		end := func(r reconcile.Request) {
			leave := going[r]
			delete(going, r)
			passes[r.Namespace]--
			leave()
		}
		t.Repeat(map[string]func(*rapid.T){
			"comes": func(t *rapid.T) {
				var r reconcile.Request
				r.Namespace = rapid.SampledFrom([]string{"a", "a", "a", "b", "c"}).Draw(t, "namespace")
				r.Name = fmt.Sprint(rapid.IntRange(0, 19).Draw(t, "name"))
				wanted[r] = true
				add(r)
				come()
			},
			"works": func(*rapid.T) { come() },
			"ends": func(t *rapid.T) {
				if len(going) == 0 {
					t.Skip("none goes on")
				}
				all := slices.SortedFunc(maps.Keys(going), func(a, b reconcile.Request) int { return strings.Compare(a.String(), b.String()) })
				end(rapid.SampledFrom(all).Draw(t, "which"))
			},
		})
		for len(queue)+len(going) > 0 {
			for range len(queue) {
				come()
			}
			for r := range going {
				end(r)
				break
			}
		}
		if diff := cmp.Diff(had, wanted); diff != "" || !c.Places.Idle() {
			t.Errorf("nothing is left: %t, and had a pass (-got +want):\n%s", c.Places.Idle(), diff)
		}
	})
}

// adding is a queue of which Add alone is asked.
type adding struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	add func(reconcile.Request)
}

func (a adding) Add(r reconcile.Request) { a.add(r) }

// An object that found no place is woken by the pass that ends, in a controller as it is.
func TestObjectsThatWaitAreWoken(t *testing.T) {
	v := vaulttest.StandIn(t)
	v.Write(t, "database", map[string]any{"password": "p"})
	s := newStage(t, v)
	s.options.Workers = 2 // one of a namespace
	const objects = 4
	h := holding{s.options.Live, s.Namespace, make(chan struct{}, 100), make(chan struct{}), nil}
	s.options.Live = h
	for n := range objects {
		s.external(fmt.Sprint("db-", n), "dataFrom: [{extract: {key: database}}]")
	}
	var r *reconciler
	s.manages(func(mgr ctrl.Manager) error {
		r = newReconciler(s.options, mgr.GetCache(), &guard{live: s.Client, now: s.options.Now, log: s.options.Log})
		r.turns.Again = time.Hour
		return r.setup(mgr)
	})
	release := sync.OnceFunc(func() { close(h.released) })
	t.Cleanup(release)
	<-h.asked
	testkit.Eventually(t, testkit.Patience, "all others wait", func(context.Context) error {
		if n := len(r.turns.Places.Waiting(s.Namespace)); n != objects-1 {
			return fmt.Errorf("%d wait", n)
		}
		return nil
	})
	release()
	testkit.Eventually(t, testkit.Patience, "what waited has its pass", func(context.Context) (err error) {
		for n := range objects {
			err = errors.Join(err, s.holding(fmt.Sprint("db-", n), map[string]string{"password": "p"}))
		}
		return err
	})
}
