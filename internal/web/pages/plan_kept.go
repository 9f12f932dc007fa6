package pages

import (
	"context"
	"sync"

	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/web/planview"
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
	ready sync.Once
	plans cache.Map[planID, *planview.Plan]
}

// planID names a plan: a digest alone may be that of another stack's.
type planID struct{ uid, digest string }

// get returns a plan, read by read if it is not kept. Visitors who ask at the same
// time wait for one reading, which does not end with the first of them.
func (k *keptPlans) get(ctx context.Context, id planID, read func(context.Context) ([]byte, error)) (*planview.Plan, error) {
	k.ready.Do(func() { k.plans.Size, k.plans.Weigh, k.plans.Weight = plansKept, weighPlan, planBytesKept })
	return k.plans.Load(ctx, id, func(ctx context.Context) (*planview.Plan, error) {
		raw, err := read(ctx)
		if err != nil {
			return nil, err
		}
		return planview.Parse(raw)
	})
}

// weighPlan counts bytes. A plan that would take the place of all others is not
// kept.
func weighPlan(_ planID, p *planview.Plan) int {
	if p.Bytes > planBytesLarge {
		return planBytesKept + 1
	}
	return p.Bytes
}
