package controller

import (
	"context"
	"log/slog"
	"path"
	"strings"
	"sync"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/controller/aftersteps"
	"github.com/terrier-iac/terrier/internal/controller/modules"
	"github.com/terrier-iac/terrier/internal/controller/prerequisites"
	"github.com/terrier-iac/terrier/internal/controller/provenance"
	"github.com/terrier-iac/terrier/internal/controller/sources"
	"github.com/terrier-iac/terrier/internal/controller/states"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/graph"
	"github.com/terrier-iac/terrier/internal/input"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/review"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Indexes of stacks by what they refer to.
const (
	indexDependsOn = "terrier.dependsOn" // namespace/name
	indexRefers    = "terrier.refers"    // Kind/namespace/name of a source, Secret or ConfigMap
)

// wakePriority puts a stack that is woken by name before those that are reconciled
// because something changed, or because the controller has just started: it has a
// slot that is held for it, or one to give back.
const wakePriority = 100

// How soon a pass that failed, because the API server did for instance, is made
// again: at first, and at last. However long the server was away, no stack waits
// for longer than the latter once it is back.
const (
	firstRetry = 5 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// wakeQueues are the work queues of the controllers, by the kind of their objects,
// for those who wake a stack by name.
type wakeQueues struct {
	mu     sync.Mutex
	queues map[string]workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// serve has the stacks of a kind added to a queue from now on.
func (wq *wakeQueues) serve(kind string, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	wq.mu.Lock()
	defer wq.mu.Unlock()
	if wq.queues == nil {
		wq.queues = map[string]workqueue.TypedRateLimitingInterface[reconcile.Request]{}
	}
	wq.queues[kind] = q
}

func (wq *wakeQueues) add(of objectRef) { wq.addAt(of, wakePriority) }

// late adds a stack as one that is reconciled because the controller has just started.
func (wq *wakeQueues) late(of objectRef) { wq.addAt(of, handler.LowPriority) }

func (wq *wakeQueues) addAt(of objectRef, priority int) {
	wq.mu.Lock()
	defer wq.mu.Unlock()
	request := reconcile.Request{NamespacedName: of.key}
	switch q := wq.queues[dialect.KindOf(of.dialect)].(type) {
	case nil: // every stack is reconciled in the beginning
	case priorityqueue.PriorityQueue[reconcile.Request]:
		q.AddWithOpts(priorityqueue.AddOpts{Priority: new(priority)}, request)
	default:
		q.Add(request)
	}
}

// Setup makes mgr run the controller of each dialect. Ended delivers the stacks
// whose runs ended.
func (c *Stacks) Setup(mgr ctrl.Manager, ended <-chan string, workers int) error {
	var err error
	if c.metrics, err = newMetrics(c.Metrics, c.Config.StackMetrics, &c.index.budgets); err != nil {
		return err
	}
	if c.Shared {
		if c.Moves == nil {
			return errShared
		}
		c.shards = newShards()
	}
	c.listenToSchedule()
	c.index.budgets.Wake = func(id string) {
		if e := c.index.find(id); e != nil {
			c.wakes.add(e.objectRef)
		}
	}
	c.reviews = review.NewPool(c.ask)
	c.imaging = newImaging(c.Images, c.Now)
	if c.Systems != nil {
		c.prober = prerequisites.NewProber(c.Systems.Ask, c.Now)
	}
	if c.Hosts != nil {
		c.beside = aftersteps.NewQueue(c.Now)
	}
	c.steps = c.assemble()
	ctx := context.Background() // all this is done before the manager starts
	if !c.Shared {              // otherwise the runs of shards are counted when these are taken
		if err := c.countRuns(ctx); err != nil {
			return err
		}
	}
	listen := func(ctx context.Context) error { c.listen(ctx, ended); return nil }
	vacated := func(ctx context.Context) error { c.steps.turns.lingering.listen(ctx, c.Queue); return nil }
	for _, beside := range []kube.Everywhere{c.steps.removals.run, c.reviews.Run, listen, vacated} {
		if err := mgr.Add(beside); err != nil {
			return err
		}
	}
	if c.prober != nil {
		if err := mgr.Add(kube.Everywhere(c.prober.Run)); err != nil {
			return err
		}
	}
	if c.beside != nil {
		if err := mgr.Add(kube.Everywhere(c.beside.Run)); err != nil {
			return err
		}
	}
	if c.imaging != nil {
		if err := mgr.Add(kube.Everywhere(c.imaging.run)); err != nil {
			return err
		}
	}
	for i, d := range c.Dialects.All() {
		name := "stacks"
		if i > 0 {
			name += "-" + strings.ToLower(d.Kind().Kind)
		}
		if err := c.setupKind(ctx, mgr, d, name, workers); err != nil {
			return err
		}
	}
	return nil
}

// setupKind makes mgr run the controller of one dialect.
func (c *Stacks) setupKind(ctx context.Context, mgr ctrl.Manager, d dialect.Dialect, name string, workers int) error {
	w := c.steps.watches
	for index, keys := range map[string]func(client.Object) []string{indexDependsOn: w.dependsOnKeys, indexRefers: w.refersKeys, states.Index: w.stateKeys} {
		if err := mgr.GetFieldIndexer().IndexField(ctx, d.New(), index, keys); err != nil {
			return err
		}
	}
	b := ctrl.NewControllerManagedBy(mgr).Named(name).
		For(d.New(), builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, w.labelsChanged(), finalizersChanged{}, w.statusLost()))).
		Watches(d.New(), handler.Funcs{CreateFunc: w.newcomer, UpdateFunc: w.answered, DeleteFunc: w.gone}).
		WatchesRawSource(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			c.wakes.serve(dialect.KindOf(d), q)
			return nil
		})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers, NeedLeaderElection: new(false), // whatever shares stacks divides them
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		})
	for _, kind := range input.WatchedKinds() {
		obj := &metav1.PartialObjectMetadata{}
		obj.SetGroupVersionKind(schema.FromAPIVersionAndKind(path.Dir(kind), path.Base(kind)))
		b = b.WatchesMetadata(obj, handler.EnqueueRequestsFromMapFunc(w.referring(d, path.Base(kind))), builder.WithPredicates(predicate.ResourceVersionChangedPredicate{}))
	}
	for _, of := range c.Dialects.All() {
		b = b.Watches(of.New(), handler.EnqueueRequestsFromMapFunc(w.neighbours(d)))
	}
	for _, kind := range []string{sourcev1.GitRepositoryKind, sourcev1.OCIRepositoryKind, sourcev1.BucketKind} {
		obj, err := sources.New(kind)
		if err != nil {
			return err
		}
		b = b.Watches(obj, handler.EnqueueRequestsFromMapFunc(w.referring(d, kind)), builder.WithPredicates(artifactChanged()))
	}
	return b.Complete(reconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		return c.reconcile(ctx, objectRef{d, req.NamespacedName})
	}))
}

// StateAnswered has the stacks reconciled whose state is in a place, since its server answers
// again.
func (c *Stacks) StateAnswered(ctx context.Context, place string) {
	err := c.Dialects.EachStack(ctx, c.Client, func(d dialect.Dialect, obj client.Object) error {
		c.wakes.add(objectRef{d, client.ObjectKeyFromObject(obj)})
		return nil
	}, client.MatchingFields{states.Index: place})
	if err != nil {
		c.Log.Warn("stacks not woken whose state can be read again", "state", place, "err", err) // they try again by themselves
	}
}

// listen wakes the stacks whose runs ended, until ctx ends.
func (c *Stacks) listen(ctx context.Context, ended <-chan string) {
	for {
		select {
		case <-ctx.Done():
			return
		case id, ok := <-ended:
			if !ok {
				return
			}
			if _, beside := runner.SplitKey(id); beside != "" {
				continue // it takes no part in the life of the stack
			}
			c.steps.turns.lingering.ended(c.Queue, id)
			if e := c.index.find(id); e != nil {
				c.wakes.add(e.objectRef)
			}
		}
	}
}

// watches says which stacks a change wakes.
type watches struct {
	cache     client.Client
	config    Config
	dialects  dialect.Registry
	log       *slog.Logger
	queue     Queue
	index     *index
	metrics   *metrics
	newcomers *schedule.Newcomers
	turns     *turns
	cycles    *graph.Cycles

	// What objects say, by UID and version. A change of one object is asked about by each
	// index and each watch, some ten times: a thousand statuses that are written at once
	// would be decoded ten thousand times.
	read *cache.Map[objectVersion, readObject]
}

// objectVersion is one version of one object.
type objectVersion struct {
	id      types.UID
	version string
}

// readObject is what one version of an object says.
type readObject struct {
	dialect.Stack
	err error
}

// dependsOnKeys are the stacks that obj depends on. The cache asks for them with each version of
// an object before a pass can read that version, so that cycles are those of the cache.
func (wt *watches) dependsOnKeys(obj client.Object) []string {
	var keys []string
	for _, of := range wt.dependenciesOf(obj) {
		keys = append(keys, of.String())
	}
	wt.cycles.Set(wt.refOf(obj).String(), string(obj.GetUID()), keys)
	return keys
}

func (wt *watches) refOf(obj client.Object) objectRef {
	return objectRef{wt.dialects.For(obj), client.ObjectKeyFromObject(obj)}
}

// gone forgets what a stack depended on that the cache has no more.
func (wt *watches) gone(_ context.Context, e event.DeleteEvent, _ workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	wt.cycles.Forget(wt.refOf(e.Object).String(), string(e.Object.GetUID()))
}

// refersKeys are the objects that obj is made from, those that it waits for, and the one it writes.
func (wt *watches) refersKeys(obj client.Object) []string {
	refs := wt.references(obj)
	all := refs.Reads
	for _, ref := range []*stack.Ref{refs.Source, refs.Writes} {
		if ref != nil {
			all = append(all, *ref)
		}
	}
	keys := prerequisites.Awaited(wt.decoded(obj).Configuration.Prerequisites, wt.dialects, wt.dialects.For(obj), obj.GetNamespace())
	for _, ref := range all {
		keys = append(keys, ref.Kind+"/"+ref.Namespace+"/"+ref.Name)
	}
	return keys
}

// RootModules returns the directories of the root modules that stacks have in a source,
// of those stacks that are not suspended. The cache has the indexes of Setup.
func RootModules(ctx context.Context, cache client.Reader, dialects dialect.Registry, kind string, of client.ObjectKey) ([]string, error) {
	var dirs []string
	err := dialects.EachStack(ctx, cache, func(d dialect.Dialect, obj client.Object) error {
		st, err := d.Decode(obj)
		ref := st.Configuration.Source
		if err == nil && !st.Spec.Suspended && ref != nil && ref.Kind == kind && keyOf(*ref, obj) == of {
			dirs = append(dirs, modules.Below(st.Configuration.Path))
		}
		return nil // a stack that cannot be read is stalled by its spec
	}, client.MatchingFields{indexRefers: kind + "/" + of.String()})
	return dirs, err
}

// stateKeys is where the state of obj is, if two stacks could mean one place.
func (wt *watches) stateKeys(obj client.Object) []string {
	if place := states.Place(wt.decoded(obj).Configuration, obj.GetNamespace()); place != "" {
		return []string{place}
	}
	return nil
}

// references are what an object refers to.
func (wt *watches) references(obj client.Object) input.Refs {
	return input.References(wt.decoded(obj).Configuration, obj.GetNamespace())
}

// dependenciesOf are the stacks that an object depends on.
func (wt *watches) dependenciesOf(obj client.Object) []objectRef {
	var all []objectRef
	for _, ref := range wt.references(obj).DependsOn {
		d := wt.dialects.Meant(ref.Kind, wt.dialects.For(obj))
		all = append(all, objectRef{d, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}})
	}
	return all
}

// decoded is what an object says, as far as it can be read: an error is the
// object's own to report. The caller does not change it.
func (wt *watches) decoded(obj client.Object) dialect.Stack {
	st, _ := wt.decode(obj)
	return st
}

// decode decodes an object of the cache, once for each of its versions.
func (wt *watches) decode(obj client.Object) (dialect.Stack, error) {
	key := objectVersion{obj.GetUID(), obj.GetResourceVersion()}
	if r, ok := wt.read.Get(key); ok {
		return r.Stack, r.err
	}
	st, err := wt.dialects.For(obj).Decode(obj)
	if key.id != "" && key.version != "" { // else the server has not seen it
		wt.read.Put(key, readObject{st, err})
	}
	return st, err
}

// referring maps an object of a kind to the stacks of a dialect that refer to it.
func (wt *watches) referring(d dialect.Dialect, kind string) handler.MapFunc {
	return func(ctx context.Context, obj client.Object) []reconcile.Request {
		return wt.indexed(ctx, d, indexRefers, kind+"/"+client.ObjectKeyFromObject(obj).String())
	}
}

// neighbours maps a stack to those of a dialect that wait for it: its dependants,
// those that read its outputs, and when it goes, the dependencies that it kept.
func (wt *watches) neighbours(d dialect.Dialect) handler.MapFunc {
	return func(ctx context.Context, obj client.Object) []reconcile.Request {
		it := objectRef{wt.dialects.For(obj), client.ObjectKeyFromObject(obj)}.String()
		out := append(wt.indexed(ctx, d, indexDependsOn, it), wt.indexed(ctx, d, indexRefers, it)...)
		if to := wt.references(obj).Writes; to != nil && wt.config.ReadAs != "" { // Secrets need not be watched
			out = append(out, wt.indexed(ctx, d, indexRefers, to.Kind+"/"+to.Namespace+"/"+to.Name)...)
		}
		if obj.GetDeletionTimestamp().IsZero() {
			return out
		}
		for _, of := range wt.dependenciesOf(obj) {
			if dialect.KindOf(of.dialect) == dialect.KindOf(d) {
				out = append(out, reconcile.Request{NamespacedName: of.key})
			}
		}
		return out
	}
}

// indexed are the stacks of a dialect that an index has under a value.
func (wt *watches) indexed(ctx context.Context, d dialect.Dialect, index, value string) []reconcile.Request {
	list := d.NewList()
	if err := wt.cache.List(ctx, list, client.MatchingFields{index: value}); err != nil {
		wt.log.Error("stacks not woken", "by", value, "err", err) // they are reconciled at their interval
		return nil
	}
	var out []reconcile.Request
	_ = meta.EachListItem(list, func(o runtime.Object) error {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o.(client.Object))})
		return nil
	})
	return out
}

// artifactChanged lets a source wake its stacks only when its artifact changed, or what is
// known of the signature on it.
func artifactChanged() predicate.Predicate {
	digest := func(o client.Object) string {
		if s, ok := o.(sources.Object); ok && s.GetArtifact() != nil {
			return s.GetArtifact().Revision + s.GetArtifact().Digest + provenance.State(s)
		}
		return ""
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return digest(e.Object) != "" },
		UpdateFunc: func(e event.UpdateEvent) bool { return digest(e.ObjectOld) != digest(e.ObjectNew) },
	}
}

// finalizersChanged notices that another finalizer went from a deleted object.
type finalizersChanged struct{ predicate.Funcs }

func (finalizersChanged) Update(e event.UpdateEvent) bool {
	return len(e.ObjectOld.GetFinalizers()) != len(e.ObjectNew.GetFinalizers())
}
