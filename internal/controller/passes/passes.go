// Package passes bounds how many passes over the objects of one namespace go on at once, for
// controllers whose passes wait for servers that users choose. An object that finds no place
// leaves its worker to others, and is woken when its turn has come. It knows no kind of object,
// and gives no turn by itself: package share does. Start reading at Turns.
package passes

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/terrier-iac/terrier/internal/share"
)

// again is for a wake that was lost.
const again = time.Minute

// Turns are the places for the passes of one controller. New makes them.
type Turns struct {
	Places *share.Places[reconcile.Request]
	Again  time.Duration // after which an object that waits asks by itself

	queue atomic.Pointer[workqueue.TypedRateLimitingInterface[reconcile.Request]]
}

// New returns places within bounds.
func New(b share.Bounds) *Turns {
	return &Turns{Places: share.New[reconcile.Request](b), Again: again}
}

// Start is a source of the controller: objects that wait are woken through its queue.
func (t *Turns) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	t.queue.Store(&queue)
	return nil
}

// Enter takes a place for a pass, until leave is called. Without one the object waits, and is
// woken when its turn has come.
func (t *Turns) Enter(r reconcile.Request) (leave func(), ok bool) {
	if !t.Places.Enter(r.Namespace, r) {
		return nil, false
	}
	return func() {
		t.Places.End(r.Namespace)
		t.wake(r.Namespace)
	}, true
}

// Withdraw says that an object does not wait any more: it is gone, or suspended.
func (t *Turns) Withdraw(r reconcile.Request) {
	if t.Places.Withdraw(r) {
		t.wake(r.Namespace)
	}
}

// wake wakes the objects whose turn has come by a change in a namespace: also those of others,
// which may have more places now.
func (t *Turns) wake(namespace string) {
	queue := t.queue.Load()
	if queue == nil {
		return
	}
	for _, r := range t.Places.Due(namespace) {
		(*queue).Add(r)
	}
}
