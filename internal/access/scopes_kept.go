package access

import (
	"container/list"
	"sync"
	"time"
)

// kept holds answers until they are too old to be believed, those that were
// asked for last, and never more than a number of them.
type kept[V any] struct {
	most int
	now  func() time.Time

	mu    sync.Mutex
	order list.List // of *keptAnswer[V]; the one that was used last is in front
	byKey map[string]*list.Element
}

type keptAnswer[V any] struct {
	key   string
	value V
	until time.Time
}

func (k *kept[V]) get(key string) (V, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var none V
	e, ok := k.byKey[key]
	if !ok {
		return none, false
	}
	a := e.Value.(*keptAnswer[V])
	if !k.now().Before(a.until) {
		k.drop(e)
		return none, false
	}
	k.order.MoveToFront(e)
	return a.value, true
}

func (k *kept[V]) put(key string, value V, until time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e, ok := k.byKey[key]; ok {
		k.drop(e)
	}
	if k.byKey == nil {
		k.byKey = map[string]*list.Element{}
	}
	k.byKey[key] = k.order.PushFront(&keptAnswer[V]{key, value, until})
	for k.order.Len() > k.most {
		k.drop(k.order.Back())
	}
}

// hold changes how many answers are kept.
func (k *kept[V]) hold(most int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.most = most
	for k.order.Len() > k.most {
		k.drop(k.order.Back())
	}
}

func (k *kept[V]) drop(e *list.Element) {
	delete(k.byKey, k.order.Remove(e).(*keptAnswer[V]).key)
}
