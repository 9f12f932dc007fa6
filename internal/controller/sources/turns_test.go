package sources

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// A server that never answers holds its namespace's share of the workers, and no other
// namespace waits for it. What is deleted or suspended waits for nothing.
func TestAHangingServerKeepsNoOtherNamespaceWaiting(t *testing.T) {
	s := newStage(t)
	s.push("latest", "one")
	asked, end := make(chan struct{}, 10), make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-end:
		}
	}))
	t.Cleanup(hanging.Close)
	t.Cleanup(func() { close(end) })
	other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "other-"}}
	if err := s.Client.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	r := s.reconciler(ociKind())
	create := func(namespace, name, host string, change func(*sourcev1.OCIRepository)) ctrl.Request {
		t.Helper()
		o := &sourcev1.OCIRepository{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: sourcev1.OCIRepositorySpec{
				URL: "oci://" + host + "/net", Interval: metav1.Duration{Duration: time.Hour}, Timeout: &metav1.Duration{Duration: longestTimeout},
			},
		}
		if change != nil {
			change(o)
		}
		if err := s.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
	}
	slow := strings.TrimPrefix(hanging.URL, "http://")
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	for _, name := range []string{"one", "two"} {
		req := create(s.Namespace, name, slow, nil)
		wait.Go(func() { _, _ = r.Reconcile(ctx, req) }) // it ends with its context
		<-asked
	}
	third := create(s.Namespace, "three", slow, nil)
	if got, err := r.Reconcile(t.Context(), third); err != nil || got.RequeueAfter != r.turns.Again || len(asked) > 0 {
		t.Errorf("the third source: Reconcile() = %+v, %v, after %d requests; want it to come again", got, err, len(asked))
	}
	suspended := create(s.Namespace, "suspended", slow, func(o *sourcev1.OCIRepository) { o.Spec.Suspend = true })
	if got, err := r.Reconcile(t.Context(), suspended); err != nil || got.RequeueAfter > 0 {
		t.Errorf("a source that is suspended: Reconcile() = %+v, %v, want it left alone", got, err)
	}
	deleted := create(s.Namespace, "deleted", slow, func(o *sourcev1.OCIRepository) { o.Finalizers = []string{sourcev1.SourceFinalizer} })
	gone := &sourcev1.OCIRepository{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "deleted"}}
	if err := s.Client.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Reconcile(t.Context(), deleted); err != nil || got.RequeueAfter > 0 {
		t.Errorf("a source that is deleted: Reconcile() = %+v, %v, want it released", got, err)
	}
	here := create(other.Name, "net", s.registry, nil)
	got, err := r.Reconcile(t.Context(), here)
	if err != nil || got.RequeueAfter != time.Hour {
		t.Errorf("a source of another namespace: Reconcile() = %+v, %v, want it ready", got, err)
	}
	cancel()
	wait.Wait()
	waited := &sourcev1.OCIRepository{}
	if err := s.Client.Get(t.Context(), third.NamespacedName, waited); err != nil {
		t.Fatal(err)
	}
	waited.Spec.URL = "oci://" + s.registry + "/net"
	if err := s.Client.Update(t.Context(), waited); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Reconcile(t.Context(), third); err != nil || got.RequeueAfter != time.Hour {
		t.Errorf("the third source, once there is a place: Reconcile() = %+v, %v, want it ready", got, err)
	}
	if !r.turns.Places.Idle() {
		t.Error("a namespace is not forgotten")
	}
}

// A source that found no place is woken by the reconcile that ends, in a controller as it is.
func TestSourcesThatWaitAreWoken(t *testing.T) {
	s := newStage(t)
	s.push("latest", "one")
	asked, gate := make(chan struct{}, 100), make(chan struct{})
	behind, err := url.Parse("http://" + s.registry)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(behind)
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-gate
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(slow.Close)
	open := sync.OnceFunc(func() { close(gate) })
	t.Cleanup(open)
	const sources = 4
	for n := range sources {
		o := &sourcev1.OCIRepository{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: fmt.Sprint("net-", n)},
			Spec:       sourcev1.OCIRepositorySpec{URL: "oci://" + strings.TrimPrefix(slow.URL, "http://") + "/net", Interval: metav1.Duration{Duration: time.Hour}},
		}
		if err := s.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	s.options.Workers = 2
	var r *reconciler
	s.manages(func(mgr ctrl.Manager) error {
		r = s.reconciler(ociKind())
		r.client, r.turns = mgr.GetClient(), newTurns(1)
		r.turns.Again = time.Hour
		return r.setup(mgr)
	})
	<-asked
	testkit.Eventually(t, testkit.Patience, "all others wait", func(context.Context) error {
		if n := len(r.turns.Places.Waiting(s.Namespace)); n != sources-1 {
			return fmt.Errorf("%d wait", n)
		}
		return nil
	})
	open()
	testkit.Eventually(t, testkit.Patience, "what waited is ready", func(ctx context.Context) error {
		for n := range sources {
			o := &sourcev1.OCIRepository{}
			if err := s.Client.Get(ctx, types.NamespacedName{Namespace: s.Namespace, Name: fmt.Sprint("net-", n)}, o); err != nil {
				return err
			}
			if o.Status.Artifact == nil {
				return fmt.Errorf("%s has no artifact", o.Name)
			}
		}
		return nil
	})
}

// Whatever comes and goes, a namespace has at most its share, another one is never refused
// while it has less than its own, and no namespace is kept in memory.
func TestShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 2
		s := newTurns(most)
		busy := map[types.NamespacedName]func(){}
		of := map[string]int{}
		sources := rapid.Custom(func(t *rapid.T) types.NamespacedName {
			return types.NamespacedName{Namespace: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "namespace"), Name: rapid.SampledFrom([]string{"1", "2", "3", "4"}).Draw(t, "name")}
		})
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				source := sources.Draw(t, "source")
				if busy[source] != nil { // a queue gives a source to one worker
					return
				}
				done, ok := s.Enter(ctrl.Request{NamespacedName: source})
				if ok != (of[source.Namespace] < most) || ok != (done != nil) {
					t.Fatalf("Enter(%s) = %t, beside %d others", source, ok, of[source.Namespace])
				}
				if ok {
					busy[source] = done
					of[source.Namespace]++
				}
			},
			"end": func(t *rapid.T) {
				source := sources.Draw(t, "source")
				if done := busy[source]; done != nil {
					done()
					delete(busy, source)
					of[source.Namespace]--
				}
			},
			"leave": func(t *rapid.T) { s.Withdraw(ctrl.Request{NamespacedName: sources.Draw(t, "source")}) },
		})
		for source, done := range busy {
			done()
			s.Withdraw(ctrl.Request{NamespacedName: source})
		}
		for _, namespace := range []string{"a", "b"} {
			for _, name := range []string{"1", "2", "3", "4"} {
				s.Withdraw(ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
			}
		}
		if !s.Places.Idle() {
			t.Fatal("a namespace is not forgotten")
		}
	})
}

func TestTimeouts(t *testing.T) {
	for says, want := range map[time.Duration]time.Duration{
		0: time.Minute, -time.Second: time.Minute, time.Second: time.Second, 10 * time.Minute: 10 * time.Minute, 1000 * time.Hour: 10 * time.Minute,
	} {
		if got := (fields{timeout: &metav1.Duration{Duration: says}}).within(); got != want {
			t.Errorf("with a timeout of %v a source has %v, want %v", says, got, want)
		}
	}
	if got := (fields{}).within(); got != time.Minute {
		t.Errorf("without a timeout a source has %v, want a minute", got)
	}
}
