package children

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// metered is a Cluster of the lab whose watches see its namespace only. It returns
// how many requests for ConfigMaps are made from now on, and the bytes of their
// answers.
func (l *lab) metered(config *rest.Config, log *slog.Logger) (cost func() (requests, bytes int64)) {
	l.t.Helper()
	var made testkit.Requests
	var err error
	if l.cluster, err = New(Config{REST: made.Of(config), Namespaces: []string{l.Namespace}, Log: log}); err != nil {
		l.t.Fatal(err)
	}
	return func() (requests, bytes int64) {
		for _, r := range made.Take() {
			if strings.HasSuffix(r.Path, "/configmaps") {
				requests, bytes = requests+1, bytes+r.Bytes()
			}
		}
		return requests, bytes
	}
}

// Of objects without a tenant only metadata are received, nothing is stored, and no
// tenant is reconciled. A list of it costs one request, whatever there is.
func TestWhatOthersHaveIsCheapToWatch(t *testing.T) {
	l := newLab(t)
	const many, size = 200, 8 << 10
	for i := range many {
		c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: fmt.Sprint("c", i)}, Data: map[string]string{"a": strings.Repeat("x", size)}}
		if err := l.Client.Create(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	ours := l.write(l.want(l.configMap("ours", map[string]string{"a": "1"})))
	cost := l.metered(l.Config, nil) // as after a restart: it has heard of nothing
	l.watched("v1", "ConfigMap")
	w := l.cluster.Watches()
	if v, ok := w.Version(l.key("ConfigMap", "ours")); !ok || v != ours.ResourceVersion {
		t.Errorf("after a restart the version is %q, %v, want %q", v, ok, ours.ResourceVersion)
	}
	requests, bytes := cost()
	if bytes > many*size/8 {
		t.Errorf("%d objects of %d bytes cost %d bytes, want their metadata only", many, size, bytes)
	}
	t.Logf("%d objects of others: %d requests, %d bytes", many, requests, bytes)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.holders) != 1 {
		t.Errorf("%d objects are kept, want ours only", len(w.holders))
	}
}

// A kind that may not be watched is complained of once, and not asked for again and
// again; its objects are read every time.
func TestForbiddenWatchIsQuiet(t *testing.T) {
	l := newLab(t)
	var complaints atomic.Int64
	log := slog.New(slog.NewTextHandler(writer(func(p []byte) { complaints.Add(1) }), nil))
	config := rest.CopyConfig(l.Config)
	config.Impersonate.UserName = "system:serviceaccount:" + l.Namespace + ":nobody"
	config.Impersonate.Groups = []string{"system:serviceaccounts", "system:authenticated"} // who may discover
	cost := l.metered(config, log)
	w := l.cluster.Watches()
	w.Ensure("v1", "ConfigMap", l.owner.key())
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	if err := w.Source().Start(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, soon, "the watch is refused", func(context.Context) error {
		if complaints.Load() == 0 {
			return errors.New("nobody complains")
		}
		return nil
	})
	if got, _ := cost(); got != 1 {
		t.Errorf("it was asked %d times, want once and then not for a while", got)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if k := w.kinds[schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}]; k.denied == 0 || w.complete(Key{Version: "v1", Kind: "ConfigMap"}) {
		t.Errorf("the watch is taken to be complete, want it denied")
	}
}

// writer tells of every line of a log.
type writer func([]byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

// Watches end with what they were started for.
func TestWatchesEnd(t *testing.T) {
	l := newLab(t)
	key := l.key("ConfigMap", "c")
	l.write(l.want(l.configMap("c", map[string]string{"a": "1"}))) // opens the connection, which stays
	before := goleak.IgnoreCurrent()
	ctx, cancel := context.WithCancel(t.Context())
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	w := l.cluster.Watches()
	w.Ensure("v1", "ConfigMap", l.owner.key())
	w.Ensure("example.com/v1", "Nothing", l.owner.key())
	if err := w.Source().Start(ctx, q); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, soon, "the object is heard of", func(context.Context) error {
		if _, ok := w.Version(key); !ok {
			return errors.New("it is not")
		}
		return nil
	})
	cancel()
	q.ShutDown()
	goleak.VerifyNone(t, before)
}
