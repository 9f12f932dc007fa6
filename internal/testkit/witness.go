package testkit

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1alpha2 "github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit/history"
)

// Witness sees every version of the stacks, states and locks of a namespace.
type Witness struct {
	cluster  *Cluster
	platform *Platform
	tb       testing.TB
	client   client.WithWatch
	stop     context.CancelFunc
	watching sync.WaitGroup

	mu     sync.Mutex
	others []string          // UIDs of stacks of another kind, see Others
	seen   map[string]string // UID → resource version
	gone   map[string]bool   // by UID, of the stacks and Secrets that were seen
	h      history.History
}

// Witness begins to watch the namespace, which runs of p change, until the test
// ends.
func (c *Cluster) Witness(tb testing.TB, p *Platform) *Witness {
	tb.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, infrav1alpha2.AddToScheme} {
		if err := add(scheme); err != nil {
			tb.Fatal(err)
		}
	}
	w := &Witness{cluster: c, platform: p, tb: tb, seen: map[string]string{}, gone: map[string]bool{}}
	var err error
	if w.client, err = client.NewWithWatch(c.Config, client.Options{Scheme: scheme}); err != nil {
		tb.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background()) // the test's own ends before its cleanup
	w.stop = stop
	for _, list := range []client.ObjectList{&infrav1alpha2.TerraformList{}, &corev1.SecretList{}, &coordinationv1.LeaseList{}} {
		// From here on and not from when the watch begins: a test goes on at once.
		known := map[types.UID]client.Object{}
		var last string
		Eventually(tb, Patience, "the witness watches", func(ctx context.Context) error {
			var err error
			last, err = w.begin(ctx, list, known)
			return err
		})
		w.watching.Go(func() { w.follow(ctx, list, last, known) })
	}
	tb.Cleanup(w.close)
	return w
}

// Others are stacks of another kind, which the witness does not watch: their runs may be
// the cause of what is deleted.
func Others(c *Cluster, uids ...string) {
	c.witness.mu.Lock()
	defer c.witness.mu.Unlock()
	c.witness.others = append(c.witness.others, uids...)
}

func (w *Witness) close() {
	w.stop()
	w.watching.Wait()
}

// begin sees what there is of one kind, and returns the version from which to go on.
func (w *Witness) begin(ctx context.Context, kind client.ObjectList, known map[types.UID]client.Object) (string, error) {
	list := kind.DeepCopyObject().(client.ObjectList)
	if err := w.client.List(ctx, list, client.InNamespace(w.cluster.Namespace)); err != nil {
		return "", err
	}
	return list.GetResourceVersion(), meta.EachListItem(list, func(o runtime.Object) error {
		is := o.DeepCopyObject().(client.Object)
		known[is.GetUID()] = is
		w.see(is, false)
		return nil
	})
}

// follow watches objects of one kind, from a version on. A watch that ends, because the
// server does, goes on from the version that was seen last.
func (w *Witness) follow(ctx context.Context, kind client.ObjectList, last string, known map[types.UID]client.Object) {
	hole := false
	for ctx.Err() == nil {
		events, err := w.client.Watch(ctx, kind, &client.ListOptions{
			Namespace: w.cluster.Namespace, Raw: &metav1.ListOptions{ResourceVersion: last, AllowWatchBookmarks: true},
		})
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			last, hole = "", true
		}
		if err == nil && hole {
			if err = w.missed(ctx, kind, known); err != nil {
				events.Stop()
			}
			hole = err != nil
		}
		if err == nil {
			if last = w.hear(events, last, known); last == "" {
				hole = true
			}
			events.Stop()
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond): // the server may be starting
		}
	}
}

func (w *Witness) hear(events watch.Interface, last string, known map[types.UID]client.Object) string {
	for e := range events.ResultChan() {
		o, ok := e.Object.(client.Object)
		if !ok {
			return "" // an error: what was seen last is too old to go on from
		}
		last = o.GetResourceVersion()
		switch e.Type {
		case watch.Bookmark:
			continue
		case watch.Deleted:
			delete(known, o.GetUID())
		default:
			known[o.GetUID()] = o
		}
		w.see(o, e.Type == watch.Deleted)
	}
	return last
}

// missed notes that versions before now may not have been seen. A watch that begins again
// tells of no deletion before: what was known and is not there any more is gone.
func (w *Witness) missed(ctx context.Context, kind client.ObjectList, known map[types.UID]client.Object) error {
	list := kind.DeepCopyObject().(client.ObjectList)
	if err := w.client.List(ctx, list, client.InNamespace(w.cluster.Namespace)); err != nil {
		return err
	}
	there := map[types.UID]bool{}
	if err := meta.EachListItem(list, func(o runtime.Object) error {
		there[o.(client.Object).GetUID()] = true
		return nil
	}); err != nil {
		return err
	}
	for uid, o := range known {
		if !there[uid] {
			delete(known, uid)
			gone := o.DeepCopyObject().(client.Object)
			gone.SetResourceVersion(o.GetResourceVersion() + ", gone") // a version that was not seen
			w.see(gone, true)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.h.Holes = append(w.h.Holes, time.Now())
	return nil
}

// see adds a version, once.
func (w *Witness) see(o client.Object, gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := string(o.GetUID())
	if w.seen[id] == o.GetResourceVersion() {
		return
	}
	w.seen[id] = o.GetResourceVersion()
	if _, lease := o.(*coordinationv1.Lease); !lease {
		w.gone[id] = gone
	}
	now := time.Now()
	switch o := o.(type) {
	case *infrav1alpha2.Terraform:
		w.h.Stacks = append(w.h.Stacks, stackFact(o, gone, now))
	case *corev1.Secret:
		if s, ok := stateFact(o, gone, now); ok {
			w.h.States = append(w.h.States, s)
		}
	case *coordinationv1.Lease:
		if l, ok := lockFact(o, gone, now); ok {
			w.h.Locks = append(w.h.Locks, l)
		}
	}
}

// Collect reads the reports of the runs, which are removed with the stacks, and the
// destroy runs in the audit log. A run that ended while its controller was restarted
// leaves nothing else. It may be called again, once there are more.
func (w *Witness) Collect() {
	w.tb.Helper()
	runs, destroys := w.platform.reports(w.tb), w.platform.destroys(w.tb)
	w.mu.Lock()
	defer w.mu.Unlock()
	mine, known, collected := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, uid := range w.others {
		mine[uid] = true
	}
	for _, s := range w.h.Stacks {
		mine[s.UID] = true
		if s.Run != nil {
			known[s.Run.ID] = true
		}
	}
	for _, r := range w.h.Runs {
		known[r.ID], collected[r.ID] = true, true
	}
	for _, r := range runs {
		if mine[r.Stack] && !collected[r.ID] {
			w.h.Runs, known[r.ID] = append(w.h.Runs, r), true
		}
	}
	for _, r := range destroys {
		if mine[r.Stack] && !known[r.ID] {
			w.h.Runs = append(w.h.Runs, r)
		}
	}
}

// CatchUp waits until the witness has every stack and every state as it is now, or
// deleted: a watch has a change a moment later than a read, and each watch at its own pace.
// It may be called in a cleanup.
func (w *Witness) CatchUp() {
	w.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	var last error
	if err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		last = w.behind(ctx)
		return last == nil, nil
	}); err != nil {
		w.tb.Fatalf("waiting until the witness has seen it all: %v, at last: %v", err, last)
	}
}

// behind says what of now the witness has not seen.
func (w *Witness) behind(ctx context.Context) error {
	there := map[string]string{}
	for _, list := range []client.ObjectList{&infrav1alpha2.TerraformList{}, &corev1.SecretList{}} {
		if err := w.client.List(ctx, list, client.InNamespace(w.cluster.Namespace)); err != nil {
			return err
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			there[string(o.(client.Object).GetUID())] = o.(client.Object).GetResourceVersion()
			return nil
		}); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for uid, version := range there {
		if w.seen[uid] != version {
			return fmt.Errorf("of the object %s it has seen version %q, and not %s", uid, w.seen[uid], version)
		}
	}
	for uid, gone := range w.gone {
		if there[uid] == "" && !gone {
			return fmt.Errorf("it has not seen that the object %s is gone", uid)
		}
	}
	return nil
}

// Judge asks the validators about everything that was seen, and fails the test
// for what they find. Rest says that nothing is under way.
func (w *Witness) Judge(rest bool) {
	w.tb.Helper()
	calls := w.platform.callsOf(w.tb)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.h.World, w.h.End, w.h.Rest = calls, time.Now(), rest
	for _, p := range history.Check(w.h) {
		w.tb.Error(p)
	}
}
