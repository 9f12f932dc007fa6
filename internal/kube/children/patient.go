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

// How often the server is asked whether it has a kind by now, and whether a kind
// may be listed by now.
const (
	kindRetry = 10 * time.Second
	mayRetry  = time.Minute
)

// patient lists and watches one kind. Where that is forbidden, or the kind is
// gone, it asks again now and then until the answer is another one: a reflector
// would ask all the time, and complain each time.
type patient struct {
	watches *Watches
	kind    schema.GroupVersionKind
	watch   *kindWatch
	objects metadata.ResourceInterface
	blind   bool // used by the reflector's goroutine only
}

func (p *patient) list(ctx context.Context, o metav1.ListOptions) (objects runtime.Object, err error) {
	err = p.until(ctx, func() error {
		objects, err = p.objects.List(ctx, o)
		return err
	})
	return objects, err
}

func (p *patient) follow(ctx context.Context, o metav1.ListOptions) (events watch.Interface, err error) {
	err = p.until(ctx, func() error {
		events, err = p.objects.Watch(ctx, o)
		return err
	})
	return events, err
}

// until asks until the answer is not that one must not, or that there is nothing.
func (p *patient) until(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		pause := kindRetry
		if apierrors.IsForbidden(err) {
			pause = mayRetry
		} else if !apierrors.IsNotFound(err) {
			p.sees(err)
			return err
		}
		p.sees(err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sees notes whether what is heard of the kind is all there is, and says so once.
func (p *patient) sees(err error) {
	blind := apierrors.IsForbidden(err) || apierrors.IsNotFound(err)
	if blind == p.blind || err != nil && !blind {
		return
	}
	p.blind = blind
	if blind {
		p.watches.log.Warn("kind not watched", "kind", p.kind.String(), "err", err) // objects of it are still looked at
	}
	p.watches.mu.Lock()
	defer p.watches.mu.Unlock()
	if blind {
		p.watch.blind++
		return
	}
	p.watch.blind--
	p.watches.wakeAll(p.watch)
}
