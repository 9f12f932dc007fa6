package granted

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Optional is a source of metadata that may be forbidden: then it has no objects, and
// asks again after a while. The controllers work without it, and notice changes later.
type Optional struct {
	Source cache.ListerWatcherWithContext
	Kind   schema.GroupVersionKind
	Retry  time.Duration // of a source that is forbidden; retryOptional if zero
}

// retryOptional is the pause between two requests for what is optional and forbidden.
const retryOptional = 5 * time.Minute

var _ cache.ListerWatcherWithContext = Optional{}

// IsWatchListSemanticsUnSupported tells a reflector to list before it watches.
func (Optional) IsWatchListSemanticsUnSupported() bool { return true }

// List implements cache.ListerWatcher.
func (o Optional) List(options metav1.ListOptions) (runtime.Object, error) {
	return o.ListWithContext(context.Background(), options)
}

// Watch implements cache.ListerWatcher.
func (o Optional) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return o.WatchWithContext(context.Background(), options)
}

// ListWithContext returns nothing if the list is forbidden. A watch from version 0 then
// begins with all objects.
func (o Optional) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list, err := o.Source.ListWithContext(ctx, options)
	if !apierrors.IsForbidden(err) {
		return list, err
	}
	empty := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "0"}}
	empty.SetGroupVersionKind(o.Kind.GroupVersion().WithKind(o.Kind.Kind + "List"))
	return empty, nil
}

// WatchWithContext returns a watch without events if it is forbidden. It ends when the
// next request is due.
func (o Optional) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	events, err := o.Source.WatchWithContext(ctx, options)
	if !apierrors.IsForbidden(err) {
		return events, err
	}
	retry := o.Retry
	if retry == 0 {
		retry = retryOptional
	}
	silent := watch.NewFake()
	go func() {
		defer silent.Stop()
		select {
		case <-time.After(retry):
		case <-ctx.Done():
		}
	}()
	return silent, nil
}
