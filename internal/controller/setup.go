package controller

import (
	"context"
	"sync"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/terrier-iac/terrier/internal/input"
	"github.com/terrier-iac/terrier/internal/review"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Indexes of stacks by what they refer to.
const (
	indexDependsOn = "terrier.dependsOn" // namespace/name
	indexRefers    = "terrier.refers"    // Kind/namespace/name of a source, Secret or ConfigMap
)

// wakePriority puts a stack that is called by name before those that are looked
// at because something changed, or because the controller has just started: it
// has a slot that is held for it, or one to give back.
const wakePriority = 100

// How soon a look that failed, because the API server did for instance, is made
// again: at first, and at last. However long the server was away, no stack waits
// for longer than the latter once it is back.
const (
	firstRetry = 5 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// requests is the controller's work queue, for those who wake a stack by name.
type requests struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

func (r *requests) add(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	request := reconcile.Request{NamespacedName: key}
	switch q := r.queue.(type) {
	case nil: // every stack is looked at in the beginning
	case priorityqueue.PriorityQueue[reconcile.Request]:
		q.AddWithOpts(priorityqueue.AddOpts{Priority: new(wakePriority)}, request)
	default:
		q.Add(request)
	}
}

// Setup makes mgr run the controller. Ended delivers the stacks whose runs
// ended.
func (c *Stacks) Setup(mgr ctrl.Manager, ended <-chan string, workers int) error {
	gvk, err := c.Live.GroupVersionKindFor(c.Dialect.New())
	if err != nil {
		return err
	}
	c.kind = gvk.GroupKind().String()
	if c.metrics, err = newMetrics(c.Metrics, c.Config.StackMetrics); err != nil {
		return err
	}
	c.listenToSchedule()
	c.reviews = review.NewPool(c.ask)
	ctx := context.Background() // all this is done before the manager starts
	if err := c.countRuns(ctx); err != nil {
		return err
	}
	for name, keys := range map[string]func(client.Object) []string{indexDependsOn: c.dependsOnKeys, indexRefers: c.refersKeys, indexState: c.stateKeys} {
		if err := mgr.GetFieldIndexer().IndexField(ctx, c.Dialect.New(), name, keys); err != nil {
			return err
		}
	}
	b := ctrl.NewControllerManagedBy(mgr).Named("stacks").
		For(c.Dialect.New(), builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, c.labelsChanged(), finalizersChanged{}, c.memoryLost()))).
		Watches(c.Dialect.New(), handler.EnqueueRequestsFromMapFunc(c.neighbours)).
		Watches(c.Dialect.New(), handler.Funcs{CreateFunc: c.newcomer, UpdateFunc: c.answered}).
		WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(c.referring("Secret")), builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(c.referring("ConfigMap")), builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		WatchesRawSource(source.Func(func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			c.requests.mu.Lock()
			c.requests.queue = q
			c.requests.mu.Unlock()
			go c.listen(ctx, ended)
			return nil
		})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		})
	for _, kind := range []string{sourcev1.GitRepositoryKind, sourcev1.OCIRepositoryKind, sourcev1.BucketKind} {
		obj, err := newSource(kind)
		if err != nil {
			return err
		}
		b = b.Watches(obj, handler.EnqueueRequestsFromMapFunc(c.referring(kind)), builder.WithPredicates(artifactChanged()))
	}
	for _, beside := range []manager.RunnableFunc{c.Sweep, c.reviews.Run} {
		if err := mgr.Add(beside); err != nil {
			return err
		}
	}
	return b.Complete(c)
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
			c.Queue.Ended(id)
			if e := c.index.find(id); e != nil {
				c.requests.add(e.key)
			}
		}
	}
}

// dependsOnKeys are the stacks that obj depends on.
func (c *Stacks) dependsOnKeys(obj client.Object) []string {
	var keys []string
	for _, ref := range c.references(obj).DependsOn {
		keys = append(keys, ref.Namespace+"/"+ref.Name)
	}
	return keys
}

// refersKeys are the objects that obj is made from, and the one it writes.
func (c *Stacks) refersKeys(obj client.Object) []string {
	refs := c.references(obj)
	all := refs.Reads
	for _, ref := range []*stack.Ref{refs.Source, refs.Writes} {
		if ref != nil {
			all = append(all, *ref)
		}
	}
	var keys []string
	for _, ref := range all {
		keys = append(keys, ref.Kind+"/"+ref.Namespace+"/"+ref.Name)
	}
	return keys
}

// references are what an object refers to.
func (c *Stacks) references(obj client.Object) input.Refs {
	st, _ := c.Dialect.Decode(obj) // an error is the object's own to report
	return input.References(st.Configuration, obj.GetNamespace())
}

// referring maps an object of a kind to the stacks that refer to it.
func (c *Stacks) referring(kind string) handler.MapFunc {
	return func(ctx context.Context, obj client.Object) []reconcile.Request {
		return c.indexed(ctx, indexRefers, kind+"/"+client.ObjectKeyFromObject(obj).String())
	}
}

// neighbours maps a stack to those that wait for it: its dependants, and when
// it goes, the dependencies that it kept.
func (c *Stacks) neighbours(ctx context.Context, obj client.Object) []reconcile.Request {
	out := c.indexed(ctx, indexDependsOn, client.ObjectKeyFromObject(obj).String())
	if obj.GetDeletionTimestamp().IsZero() {
		return out
	}
	for _, ref := range c.references(obj).DependsOn {
		out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}})
	}
	return out
}

func (c *Stacks) indexed(ctx context.Context, index, value string) []reconcile.Request {
	list := c.Dialect.NewList()
	if err := c.Client.List(ctx, list, client.MatchingFields{index: value}); err != nil {
		c.Log.Error("stacks not woken", "by", value, "err", err) // they look again by themselves
		return nil
	}
	var out []reconcile.Request
	_ = meta.EachListItem(list, func(o runtime.Object) error {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o.(client.Object))})
		return nil
	})
	return out
}

// artifactChanged lets a source wake its stacks only when its artifact changed.
func artifactChanged() predicate.Predicate {
	digest := func(o client.Object) string {
		if s, ok := o.(sourceObject); ok && s.GetArtifact() != nil {
			return s.GetArtifact().Revision + s.GetArtifact().Digest
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
