package pages

import (
	"container/list"
	"sync"
)

// What is kept of plans between visits. A parsed document takes several times
// the bytes that it has as text.
const (
	plansKept      = 32
	planBytesKept  = 64 << 20 // of documents as text
	planBytesLarge = planBytesKept / 2
)

// keptPlans are the plans that were shown last, parsed and masked: turning pages
// and searching costs no parsing. The zero value is ready.
type keptPlans struct {
	mu    sync.Mutex
	plans map[planID]*list.Element // of *keptPlan
	order list.List                // used last first
	bytes int
}

// planID names a plan: a digest alone may be that of another stack's.
type planID struct{ uid, digest string }

type keptPlan struct {
	id   planID
	once sync.Once
	plan *parsedPlan
	err  error
	held int // bytes counted
}

// get returns a plan, read by read if it is not kept. Several who ask at once
// wait for one reading.
func (k *keptPlans) get(id planID, read func() ([]byte, error)) (*parsedPlan, error) {
	p := k.find(id)
	p.once.Do(func() {
		var raw []byte
		if raw, p.err = read(); p.err == nil {
			p.plan, p.err = parsePlan(raw)
		}
	})
	k.settle(p)
	return p.plan, p.err
}

func (k *keptPlans) find(id planID) *keptPlan {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e, ok := k.plans[id]; ok {
		k.order.MoveToFront(e)
		return e.Value.(*keptPlan)
	}
	if k.plans == nil {
		k.plans = map[planID]*list.Element{}
	}
	p := &keptPlan{id: id}
	k.plans[id] = k.order.PushFront(p)
	return p
}

// settle counts a plan that was read and drops what there is no room for; one
// that could not be read is not kept.
func (k *keptPlans) settle(p *keptPlan) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e, ok := k.plans[p.id]
	if !ok || e.Value != any(p) {
		return
	}
	if p.err != nil || p.plan.bytes > planBytesLarge {
		k.drop(e)
		return
	}
	k.bytes += p.plan.bytes - p.held
	p.held = p.plan.bytes
	for k.bytes > planBytesKept || k.order.Len() > plansKept {
		k.drop(k.order.Back())
	}
}

func (k *keptPlans) drop(e *list.Element) {
	p := e.Value.(*keptPlan)
	k.order.Remove(e)
	delete(k.plans, p.id)
	k.bytes -= p.held
	p.held = 0
}
