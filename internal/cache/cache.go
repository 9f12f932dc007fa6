// Package cache keeps values that can be found out again: Map holds a bounded
// number of them for a bounded time, and Flight finds each out once, however
// many callers wait for it. It refuses to hold what cannot be found out again:
// any entry may be gone at the next call. Start at Map.
package cache

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// DefaultSize is how many entries a Map holds that does not say: few, since they may
// be large.
const DefaultSize = 64

// Map holds the entries that were used last. Its zero value is ready; the
// exported fields are set before the first call and not changed.
type Map[K comparable, V any] struct {
	Size int // entries at most; DefaultSize if zero

	// TTL is how long an entry is returned; for ever if zero. Now is the clock,
	// and needed wherever entries expire.
	TTL time.Duration
	Now func() time.Time

	// Weigh says how heavy an entry is, and Weight how much all of them weigh at
	// most. Without them, only the number of entries is bounded.
	Weigh  func(K, V) int
	Weight int

	// Group says to which group an entry belongs, and GroupWeight how much the
	// entries of one group weigh at most, so that none takes the room of all others.
	// Without Group there is only one.
	Group       func(K) string
	GroupWeight int

	// Dropped is called with each entry that leaves, while the map is locked: it must
	// not call the map.
	Dropped func(K, V)

	mu      sync.Mutex
	entries map[K]*list.Element // of *entry[K, V]
	order   list.List           // the entry that was used last is in front
	weight  int
	groups  map[string]int // the weight of each
	deleted int            // calls of Delete and DeleteFunc
	loads   Flight[K, V]
}

type entry[K comparable, V any] struct {
	key    K
	value  V
	weight int
	until  time.Time // zero: for ever
}

// Get returns the value of a key, if it is there and has not expired.
func (m *Map[K, V]) Get(key K) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.entries[key]
	if !ok {
		var none V
		return none, false
	}
	found := e.Value.(*entry[K, V])
	if !found.until.IsZero() && !m.Now().Before(found.until) {
		m.drop(e)
		var none V
		return none, false
	}
	m.order.MoveToFront(e)
	return found.value, true
}

// Put keeps a value. A value that alone is heavier than Weight is not kept, and
// takes the place of no other.
func (m *Map[K, V]) Put(key K, value V) {
	m.PutUntil(key, value, m.expiry(m.now()))
}

// PutUntil keeps a value until a time of its own; for ever if that is zero.
func (m *Map[K, V]) PutUntil(key K, value V, until time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(key, value, until)
}

func (m *Map[K, V]) put(key K, value V, until time.Time) {
	if e, ok := m.entries[key]; ok {
		m.drop(e)
	}
	added := &entry[K, V]{key: key, value: value, until: until}
	if m.Weigh != nil {
		added.weight = m.Weigh(key, value)
		if added.weight > m.Weight || m.Group != nil && added.weight > m.GroupWeight {
			if m.Dropped != nil {
				m.Dropped(key, value)
			}
			return
		}
	}
	if m.entries == nil {
		m.entries, m.groups = map[K]*list.Element{}, map[string]int{}
	}
	m.entries[key] = m.order.PushFront(added)
	m.weight += added.weight
	if m.Group != nil {
		group := m.Group(key)
		m.groups[group] += added.weight
		for e := m.order.Back(); m.groups[group] > m.GroupWeight; {
			before := e.Prev()
			if m.Group(e.Value.(*entry[K, V]).key) == group {
				m.drop(e)
			}
			e = before
		}
	}
	size := m.Size
	if size == 0 {
		size = DefaultSize
	}
	for m.order.Len() > size || m.weight > m.Weight {
		m.drop(m.order.Back())
	}
}

func (m *Map[K, V]) drop(e *list.Element) {
	dropped := m.order.Remove(e).(*entry[K, V])
	delete(m.entries, dropped.key)
	m.weight -= dropped.weight
	if m.Group != nil {
		group := m.Group(dropped.key)
		if m.groups[group] -= dropped.weight; m.groups[group] == 0 {
			delete(m.groups, group)
		}
	}
	if m.Dropped != nil {
		m.Dropped(dropped.key, dropped.value)
	}
}

// DropExpired drops the entries that have expired, also those that nothing asks for.
func (m *Map[K, V]) DropExpired() {
	m.mu.Lock()
	defer m.mu.Unlock()
	var next *list.Element
	for e := m.order.Front(); e != nil; e = next {
		next = e.Next()
		if until := e.Value.(*entry[K, V]).until; !until.IsZero() && !m.Now().Before(until) {
			m.drop(e)
		}
	}
}

// Delete drops the value of a key. A Load that is under way does not bring it
// back, and a later Load does not wait for that one.
func (m *Map[K, V]) Delete(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deleted++
	m.loads.Forget(key)
	if e, ok := m.entries[key]; ok {
		m.drop(e)
	}
}

// DeleteFunc drops the entries for which del returns true. A Load that is under
// way keeps nothing, and a later Load does not wait for it.
func (m *Map[K, V]) DeleteFunc(del func(K, V) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deleted++
	m.loads.ForgetAll()
	var next *list.Element
	for e := m.order.Front(); e != nil; e = next {
		next = e.Next()
		if held := e.Value.(*entry[K, V]); del(held.key, held.value) {
			m.drop(e)
		}
	}
}

// Len is the number of entries, including those that have expired and were not
// asked for since.
func (m *Map[K, V]) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.order.Len()
}

// Load returns the value of a key, which load finds out if it is not there.
// Callers that want the same key at the same time share one call of load; see
// Flight.Do. The value's time begins when load is called. An error is not kept:
// a failure that is an answer belongs into V.
func (m *Map[K, V]) Load(ctx context.Context, key K, load func(context.Context) (V, error)) (V, error) {
	if v, ok := m.Get(key); ok {
		return v, nil
	}
	return m.loads.Do(ctx, key, func(ctx context.Context) (V, error) {
		if v, ok := m.Get(key); ok { // another load ended in between
			return v, nil
		}
		m.mu.Lock()
		deleted := m.deleted
		m.mu.Unlock()
		asked := m.now()
		v, err := load(ctx)
		if err != nil {
			return v, err
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.deleted == deleted {
			m.put(key, v, m.expiry(asked))
		}
		return v, nil
	})
}

func (m *Map[K, V]) now() time.Time {
	if m.TTL == 0 {
		return time.Time{}
	}
	return m.Now()
}

func (m *Map[K, V]) expiry(asked time.Time) time.Time {
	if m.TTL == 0 {
		return time.Time{}
	}
	return asked.Add(m.TTL)
}
