package children

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A Tenant whose objects say much is looked at at once, and then once a second.
func TestManyEventsAreFewPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		w := &Watches{queue: q, woken: map[types.NamespacedName]time.Time{}}
		wake := func(name string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.wake(types.NamespacedName{Namespace: "shop", Name: name})
		}
		looked := map[string]int{}
		take := func() {
			synctest.Wait()
			for q.Len() > 0 {
				r, _ := q.Get()
				looked[r.Name]++
				q.Done(r)
			}
		}
		wake("other")
		for range 25 { // ten a second
			wake("loud")
			take()
			<-time.After(100 * time.Millisecond) // by the clock of the bubble
		}
		take()
		if looked["loud"] != 3 || looked["other"] != 1 {
			t.Errorf("in 2.5 s there were the looks %v, want 3 at the loud one and 1 at the other", looked)
		}
		<-time.After(wakesApart) // by the clock of the bubble
		take()
		if looked["loud"] != 4 {
			t.Errorf("%d looks, want 4: the last event came after the third", looked["loud"])
		}
		<-time.After(time.Hour) // by the clock of the bubble
		wake("other")
		take()
		if looked["other"] != 2 || len(w.woken) != 1 {
			t.Errorf("%d looks at the other, want 2; %d times are kept, want 1", looked["other"], len(w.woken))
		}
		q.ShutDown()
	})
}
