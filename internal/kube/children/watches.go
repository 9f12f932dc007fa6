package children

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// wakesApart is the least time between two reconciles of a Tenant for events of
// its objects.
const wakesApart = time.Second

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Watches are metadata-only watches of the kinds that tenants use. They keep
// nothing of objects that belong to no tenant.
type Watches struct {
	client     metadata.Interface
	mapper     meta.RESTMapper
	namespaces []string
	log        *slog.Logger

	mu      sync.Mutex
	ctx     context.Context // set when the controller runs
	queue   queue
	kinds   map[schema.GroupVersionKind]*kindWatch
	found   map[Key]seen   // objects as Terrier read or wrote them last
	holders map[Key]heldBy // objects of tenants by the last event
	woken   map[types.NamespacedName]time.Time
	swept   time.Time // when past entries of woken were dropped
}

// seen is an object as it was read or written last, for one Tenant.
type seen struct {
	owner Owner
	live  Live
}

// heldBy is the Tenant of an object, and its version by the last event.
type heldBy struct {
	tenant  types.NamespacedName
	version string
	uid     types.UID
}

type kindWatch struct {
	started bool
	synced  int                           // lists that have arrived
	lists   int                           // lists that are needed: one for each watched namespace
	denied  int                           // lists that are forbidden, or whose kind is gone
	waiting map[types.NamespacedName]bool // Tenants that need the kind, which did not exist when they asked
	asked   time.Time                     // when a Tenant last asked for a kind that did not exist
}

func newWatches(c Config, mapper meta.RESTMapper) (*Watches, error) {
	client, err := metadata.NewForConfigAndClient(c.REST, c.HTTP)
	if err != nil {
		return nil, err
	}
	return &Watches{
		client: client, mapper: mapper, namespaces: c.Namespaces, log: c.Log,
		kinds: map[schema.GroupVersionKind]*kindWatch{}, found: map[Key]seen{}, holders: map[Key]heldBy{}, woken: map[types.NamespacedName]time.Time{},
	}, nil
}

// Ensure watches a kind from now on; if the kind is created later, t is woken. It
// does not wait.
func (w *Watches) Ensure(apiVersion, kind string, t types.NamespacedName) {
	gvk := schema.FromAPIVersionAndKind(apiVersion, kind)
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.kinds[gvk]
	if k == nil {
		k = &kindWatch{waiting: map[types.NamespacedName]bool{}}
		w.kinds[gvk] = k
		w.start(gvk, k)
	}
	if k.lists == 0 || k.denied > 0 {
		k.waiting[t], k.asked = true, time.Now()
	}
}

// start watches a kind, if the controller runs. w.mu is held.
func (w *Watches) start(gvk schema.GroupVersionKind, k *kindWatch) {
	if w.ctx == nil || k.started {
		return
	}
	k.started = true
	go w.run(w.ctx, gvk, k)
}

// run watches one kind until ctx ends, once the server has it.
func (w *Watches) run(ctx context.Context, gvk schema.GroupVersionKind, k *kindWatch) {
	mapping, err := w.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	late := err != nil
	for pause := kindRetry; err != nil; pause = min(2*pause, kindRetryMost) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		if w.unwanted(gvk, k) {
			return
		}
		mapping, err = w.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	}
	namespaces := w.namespaces
	if len(namespaces) == 0 || mapping.Scope.Name() == meta.RESTScopeNameRoot {
		namespaces = []string{metav1.NamespaceAll}
	}
	w.mu.Lock()
	k.lists = len(namespaces)
	if late {
		w.wakeAll(k)
	}
	clear(k.waiting) // the kind existed when they asked
	w.mu.Unlock()
	var running sync.WaitGroup
	for _, namespace := range namespaces {
		store := &store{watches: w, kind: gvk, watch: k, has: map[Key]bool{}}
		p := &listWatch{watches: w, kind: gvk, watch: k, objects: w.client.Resource(mapping.Resource).Namespace(namespace)}
		lw := &cache.ListWatch{ListWithContextFunc: p.list, WatchFuncWithContext: p.follow}
		r := cache.NewReflectorWithOptions(lw, &metav1.PartialObjectMetadata{}, store, cache.ReflectorOptions{Name: "children", TypeDescription: gvk.String()})
		running.Go(func() { r.RunWithContext(ctx) })
	}
	running.Wait()
}

// unwanted forgets a kind that does not exist, and that no Tenant has asked for lately.
// Templates may name any number of kinds.
func (w *Watches) unwanted(gvk schema.GroupVersionKind, k *kindWatch) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(k.asked) < kindForgotten {
		return false
	}
	delete(w.kinds, gvk)
	return true
}

// Version is the resourceVersion of an object by the last event; ok is false if
// its kind is not watched, or the object belongs to no tenant.
func (w *Watches) Version(key Key) (resourceVersion string, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h, ok := w.holders[key]
	return h.version, ok && w.complete(key)
}

// Unwatched reports whether changes of an object go unseen: the watch of its kind was
// started and has not all objects, since the controller may not watch it, for instance.
func (w *Watches) Unwatched(key Key) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.kinds[schema.GroupVersionKind{Group: key.Group, Version: key.Version, Kind: key.Kind}]
	return k != nil && k.started && !w.complete(key)
}

// Unclaimed reports whether no tenant has an object there, by the watch of its
// kind. An object without a tenant may exist.
func (w *Watches) Unclaimed(key Key) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, claimed := w.holders[key]
	return !claimed && w.complete(key)
}

// complete reports whether all objects of a kind are known. w.mu is held.
func (w *Watches) complete(key Key) bool {
	k := w.kinds[schema.GroupVersionKind{Group: key.Group, Version: key.Version, Kind: key.Kind}]
	return k != nil && k.lists > 0 && k.synced >= k.lists && k.denied == 0
}

// recall is an object as it was read or written last, if it has not changed since.
func (w *Watches) recall(key Key, owner Owner) (Live, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, ok := w.found[key]
	h, held := w.holders[key]
	if !ok || !held || s.owner != owner || s.live.ResourceVersion != h.version || !w.complete(key) {
		return Live{}, false
	}
	return s.live, true
}

// remember caches an object, without its content.
func (w *Watches) remember(key Key, owner Owner, l Live) {
	l.Object, l.Change = nil, Unchanged
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.Tenant.Name == "" {
		delete(w.found, key) // no event would tell that it is gone
		return
	}
	w.found[key] = seen{owner: owner, live: l}
}

func (w *Watches) forget(key Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.found, key)
}

// Source gives a controller of Tenants a request for each change of their objects.
// All watches run while the controller does; it may be used once.
func (w *Watches) Source() source.Source {
	return source.Func(func(ctx context.Context, q queue) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ctx, w.queue = ctx, q
		for gvk, k := range w.kinds {
			w.start(gvk, k)
		}
		return nil
	})
}

// observed notes an object, and wakes its Tenant and its former one, unless
// Terrier itself made the change.
func (w *Watches) observed(key Key, o *metav1.PartialObjectMetadata) (ours bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := heldBy{tenant: holder(o), version: o.ResourceVersion, uid: o.UID}
	before, had := w.holders[key]
	if had && now.tenant == labelled(before.tenant) {
		now.tenant = before.tenant // the annotation with the name was removed
	}
	if had && before == now {
		return true
	}
	if had && before.tenant != now.tenant {
		w.wake(before.tenant)
	}
	if now.tenant.Name == "" {
		delete(w.holders, key)
		delete(w.found, key)
		return false
	}
	w.holders[key] = now
	if w.found[key].live.ResourceVersion != now.version {
		w.wake(now.tenant)
	}
	return true
}

// deleted notes the end of an object.
func (w *Watches) deleted(key Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h, had := w.holders[key]; had {
		w.wake(h.tenant)
	}
	delete(w.holders, key)
	delete(w.found, key)
}

// wakeAll wakes the Tenants that asked for a kind in vain. w.mu is held.
func (w *Watches) wakeAll(k *kindWatch) {
	for t := range k.waiting {
		w.wake(t)
	}
	clear(k.waiting)
}

// wake has a Tenant reconciled: at once, or a moment later if it just was. An
// object that becomes ready sends many events, and few of them matter. w.mu is
// held.
func (w *Watches) wake(t types.NamespacedName) {
	if w.queue == nil || t.Name == "" {
		return
	}
	now, r := time.Now(), reconcile.Request{NamespacedName: t} // the queue's clock
	last := w.woken[t]
	switch next := last.Add(wakesApart); {
	case last.After(now):
		// A wake is planned. The queue merges equal requests, and the planned one may
		// have run early, so it is asked for once more.
		w.queue.AddAfter(r, last.Sub(now))
	case next.After(now):
		w.woken[t] = next
		w.queue.AddAfter(r, next.Sub(now))
	default:
		w.woken[t] = now
		w.queue.Add(r)
	}
	if now.Sub(w.swept) > time.Minute {
		w.swept = now
		maps.DeleteFunc(w.woken, func(_ types.NamespacedName, at time.Time) bool { return now.Sub(at) > wakesApart })
	}
}
