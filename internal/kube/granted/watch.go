package granted

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
)

// retryDenied is the pause between two lists of a namespace that is forbidden.
const retryDenied = 15 * time.Second

// Options are what a Watch needs.
type Options struct {
	Client   metadata.Interface
	Resource schema.GroupVersionResource
	Kind     schema.GroupVersionKind
	Slim     cache.TransformFunc // drops fields that no reader needs
	Log      *slog.Logger
	Retry    time.Duration // of a namespace that is forbidden; 15 seconds if zero, or 5 minutes if it is optional
	Optional bool          // a namespace need not be granted
}

// Watch is the source of an informer of one kind: it lists and watches the
// namespaces in use, each by itself, as if they were one list.
type Watch struct {
	Options
	namespaces *Namespaces

	start sync.Once
	ctx   context.Context // of the first list, as long as the informer runs

	mu     sync.Mutex
	spaces map[string]*space
	events *stream // to the informer; nil before its first list
}

// Watch returns the source of the informer of a kind.
func (n *Namespaces) Watch(o Options) *Watch {
	switch {
	case o.Retry != 0:
	case o.Optional:
		o.Retry = retryOptional
	default:
		o.Retry = retryDenied
	}
	return &Watch{Options: o, namespaces: n, spaces: map[string]*space{}}
}

var _ cache.ListerWatcherWithContext = (*Watch)(nil)

// IsWatchListSemanticsUnSupported tells a reflector to list before it watches.
func (*Watch) IsWatchListSemanticsUnSupported() bool { return true }

// List implements cache.ListerWatcher.
func (w *Watch) List(o metav1.ListOptions) (runtime.Object, error) {
	return w.ListWithContext(context.Background(), o)
}

// Watch implements cache.ListerWatcher.
func (w *Watch) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return w.WatchWithContext(context.Background(), o)
}

// ListWithContext returns the objects of all namespaces once each of them was
// listed, or was forbidden.
func (w *Watch) ListWithContext(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	begun := true
	w.start.Do(func() {
		w.ctx = ctx
		begun = w.namespaces.begin(ctx, w)
	})
	if !begun {
		return nil, ctx.Err()
	}
	w.mu.Lock()
	spaces := slices.Collect(maps.Values(w.spaces))
	w.mu.Unlock()
	for _, s := range spaces {
		select {
		case <-s.settled:
		case <-s.ctx.Done():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	list.SetGroupVersionKind(w.Kind.GroupVersion().WithKind(w.Kind.Kind + "List"))
	for _, s := range w.spaces {
		for _, o := range s.objects {
			list.Items = append(list.Items, *o)
		}
	}
	if w.events != nil {
		w.events.Stop()
	}
	w.events = newStream() // what happens from now on
	return list, nil
}

// WatchWithContext returns the events after the last list.
func (w *Watch) WatchWithContext(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.events == nil || w.events.taken {
		return nil, apierrors.NewResourceExpired("the events of an earlier list are gone")
	}
	w.events.taken = true
	go w.events.run(ctx)
	return w.events, nil
}

// open watches a namespace from now on.
func (w *Watch) open(namespace string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.spaces[namespace] != nil {
		return
	}
	s := &space{watch: w, name: namespace, settled: make(chan struct{}), objects: map[string]*metav1.PartialObjectMetadata{}}
	s.ctx, s.cancel = context.WithCancel(w.ctx)
	w.spaces[namespace] = s
	go s.run()
}

// close forgets a namespace: its objects are deleted for the informer.
func (w *Watch) close(namespace string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.spaces[namespace]
	if s == nil {
		return
	}
	s.cancel()
	delete(w.spaces, namespace)
	for _, o := range s.objects {
		w.emit(watch.Deleted, o)
	}
}

// emit is called holding w.mu.
func (w *Watch) emit(what watch.EventType, o *metav1.PartialObjectMetadata) {
	if w.events != nil {
		w.events.add(watch.Event{Type: what, Object: o.DeepCopy()})
	}
}

// stream is a watch that holds any number of events until they are read.
type stream struct {
	taken bool // of the Watch, under its lock

	mu     sync.Mutex
	queue  []watch.Event
	more   chan struct{} // holds one token while there are events
	out    chan watch.Event
	stop   sync.Once
	halted chan struct{}
}

func newStream() *stream {
	return &stream{more: make(chan struct{}, 1), out: make(chan watch.Event), halted: make(chan struct{})}
}

func (s *stream) Stop()                          { s.stop.Do(func() { close(s.halted) }) }
func (s *stream) ResultChan() <-chan watch.Event { return s.out }

func (s *stream) add(e watch.Event) {
	s.mu.Lock()
	s.queue = append(s.queue, e)
	s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// run hands out the events until the watch is stopped.
func (s *stream) run(ctx context.Context) {
	defer close(s.out)
	for {
		select {
		case <-s.more:
		case <-s.halted:
			return
		case <-ctx.Done():
			return
		}
		s.mu.Lock()
		events := s.queue
		s.queue = nil
		s.mu.Unlock()
		for _, e := range events {
			select {
			case s.out <- e:
			case <-s.halted:
				return
			case <-ctx.Done():
				return
			}
		}
	}
}
