package granted

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// space is the kind of a Watch in one namespace.
type space struct {
	watch  *Watch
	name   string
	ctx    context.Context
	cancel context.CancelFunc

	settle  sync.Once
	settled chan struct{} // closed once the namespace was listed, or was forbidden
	denied  bool          // used by the goroutine of run only
	dropped bool          // its objects were dropped after they were listed; as denied

	objects map[string]*metav1.PartialObjectMetadata // by name, under the lock of the Watch
}

// run watches the namespace until its context ends.
func (s *space) run() {
	objects := s.watch.Client.Resource(s.watch.Resource).Namespace(s.name)
	lists := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (list runtime.Object, err error) {
			err = s.permitted(ctx, func() error { list, err = objects.List(ctx, o); return err })
			s.dropped = s.dropped && err != nil
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (events watch.Interface, err error) {
			err = s.permitted(ctx, func() error { events, err = objects.Watch(ctx, o); return err })
			dropped := s.dropped && (o.SendInitialEvents == nil || !*o.SendInitialEvents)
			s.dropped = s.dropped && err != nil
			if err != nil || !dropped {
				return events, err
			}
			// This watch tells of changes only: the namespace has to be listed again.
			events.Stop()
			return nil, apierrors.NewResourceExpired("the namespace was forbidden meanwhile")
		},
	}
	r := cache.NewReflectorWithOptions(lists, &metav1.PartialObjectMetadata{}, s, cache.ReflectorOptions{Name: "granted", TypeDescription: s.watch.Kind.String()})
	r.RunWithContext(s.ctx)
}

// permitted asks until the API server permits it: a reflector alone would ask all
// the time, and log each refusal.
func (s *space) permitted(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		if !apierrors.IsForbidden(err) {
			if err == nil && s.denied {
				s.denied = false
				s.watch.Log.Info("a namespace is granted now", "namespace", s.name, "kind", s.watch.Kind.Kind)
			}
			return err
		}
		if !s.denied {
			s.denied = true
			if s.watch.Optional {
				s.watch.Log.Info("changes in this namespace are noticed at the interval of each stack, since this controller may not watch it", "namespace", s.name, "kind", s.watch.Kind.Kind)
			} else {
				s.watch.Log.Warn("no right in a namespace with stacks; bind the ClusterRole of the chart there", "namespace", s.name, "kind", s.watch.Kind.Kind, "err", err)
			}
			// Its objects may have been listed before the right was revoked.
			s.dropped = true
			if err := s.Replace(nil, ""); err != nil {
				return err
			}
		}
		select {
		case <-time.After(s.watch.Retry):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var _ cache.ReflectorStore = (*space)(nil)

func (s *space) Add(o any) error    { return s.put(o) }
func (s *space) Update(o any) error { return s.put(o) }
func (s *space) Resync() error      { return nil }

func (s *space) put(o any) error {
	kept, err := s.slim(o)
	if err != nil {
		return err
	}
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	s.keep(kept)
	return nil
}

// keep is called holding the lock of the Watch.
func (s *space) keep(o *metav1.PartialObjectMetadata) {
	if s.ctx.Err() != nil {
		return // the namespace was closed
	}
	old := s.objects[o.Name]
	s.objects[o.Name] = o
	switch {
	case old == nil:
		s.watch.emit(watch.Added, o)
	case old.UID != o.UID:
		s.watch.emit(watch.Deleted, old)
		s.watch.emit(watch.Added, o)
	case old.ResourceVersion != o.ResourceVersion:
		s.watch.emit(watch.Modified, o)
	}
}

func (s *space) Delete(o any) error {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	m, ok := o.(*metav1.PartialObjectMetadata)
	if !ok {
		return fmt.Errorf("a watch of metadata gave %T", o)
	}
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	s.drop(m.Name)
	return nil
}

// drop is called holding the lock of the Watch.
func (s *space) drop(name string) {
	if old := s.objects[name]; old != nil && s.ctx.Err() == nil {
		delete(s.objects, name)
		s.watch.emit(watch.Deleted, old)
	}
}

// Replace implements cache.ReflectorStore: these are all objects of the namespace.
func (s *space) Replace(all []any, _ string) error {
	kept := make([]*metav1.PartialObjectMetadata, 0, len(all))
	for _, o := range all {
		one, err := s.slim(o)
		if err != nil {
			return err
		}
		kept = append(kept, one)
	}
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	gone := maps.Clone(s.objects)
	for _, o := range kept {
		s.keep(o)
		delete(gone, o.Name)
	}
	for name := range gone {
		s.drop(name)
	}
	s.settle.Do(func() { close(s.settled) })
	return nil
}

// slim is what is kept of an object.
func (s *space) slim(o any) (*metav1.PartialObjectMetadata, error) {
	if s.watch.Slim != nil {
		var err error
		if o, err = s.watch.Slim(o); err != nil {
			return nil, err
		}
	}
	m, ok := o.(*metav1.PartialObjectMetadata)
	if !ok {
		return nil, fmt.Errorf("a watch of metadata gave %T", o)
	}
	m.SetGroupVersionKind(s.watch.Kind)
	return m, nil
}
