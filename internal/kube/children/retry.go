package children

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
)

// Pauses between lists of a kind that the server does not have, and of one that it
// forbids to list.
const (
	kindRetry   = 10 * time.Second
	deniedRetry = time.Minute

	// The pause grows up to kindRetryMost for a kind that never existed: a kind that
	// is installed after its Tenants is found by then. A Tenant with an object of it asks
	// every five minutes at least, so that kindForgotten later none has one any more.
	kindRetryMost = time.Minute
	kindForgotten = 15 * time.Minute
)

// listWatch lists and watches one kind. Where that is forbidden, or the kind is
// gone, it tries again after a pause: a reflector alone would ask all the time, and
// log each refusal.
type listWatch struct {
	watches *Watches
	kind    schema.GroupVersionKind
	watch   *kindWatch
	objects metadata.ResourceInterface
	denied  bool // used by the reflector's goroutine only
}

func (p *listWatch) list(ctx context.Context, o metav1.ListOptions) (objects runtime.Object, err error) {
	err = p.until(ctx, func() error {
		objects, err = p.objects.List(ctx, o)
		return err
	})
	return objects, err
}

func (p *listWatch) follow(ctx context.Context, o metav1.ListOptions) (events watch.Interface, err error) {
	err = p.until(ctx, func() error {
		events, err = p.objects.Watch(ctx, o)
		return err
	})
	return events, err
}

// until asks until the server permits it and has the kind.
func (p *listWatch) until(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		pause := kindRetry
		if apierrors.IsForbidden(err) {
			pause = deniedRetry
		} else if !apierrors.IsNotFound(err) {
			p.note(err)
			return err
		}
		p.note(err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// note records whether the kind can be watched, and logs a change of that.
func (p *listWatch) note(err error) {
	denied := apierrors.IsForbidden(err) || apierrors.IsNotFound(err)
	if denied == p.denied || err != nil && !denied {
		return
	}
	p.denied = denied
	if denied {
		p.watches.log.Warn("kind not watched", "kind", p.kind.String(), "err", err) // its objects are still read in each pass
	}
	p.watches.mu.Lock()
	defer p.watches.mu.Unlock()
	if denied {
		p.watch.denied++
		return
	}
	p.watch.denied--
	p.watches.wakeAll(p.watch)
}
