package policies

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/policy"
)

// PerHour is how many resources the stacks of a tenant may destroy in an hour.
type PerHour struct {
	Policy, Tenant string
	Most           int
}

// hours has the destroys that began in this process. Statuses have those of other
// controllers, and those before.
type hours struct {
	mu    sync.Mutex
	began map[string]destroyed // by the UID of the stack; the last of each
}

// destroyed is how many resources a run of a stack destroys, and when it began.
type destroyed struct {
	tenant string
	n      int
	at     time.Time
}

// Began notes that a run begins that destroys n resources of a stack.
func (p *Policies) Began(obj client.Object, n int) {
	if p == nil || n <= 0 {
		return
	}
	s := p.now.Load()
	if s == nil {
		return
	}
	now := p.Now()
	p.hours.mu.Lock()
	defer p.hours.mu.Unlock()
	if p.hours.began == nil {
		p.hours.began = map[string]destroyed{}
	}
	for id, d := range p.hours.began {
		if now.Sub(d.at) >= time.Hour {
			delete(p.hours.began, id)
		}
	}
	id := string(obj.GetUID())
	was := p.hours.began[id]
	d := destroyed{s.spender(p, obj), n, now}
	if now.Sub(was.at) < time.Hour {
		d.n += was.n // both count until an hour after the later one
	}
	p.hours.began[id] = d
}

// Spent says why a plan that destroys n resources has to wait: less may be destroyed in the
// hour. It lists the stacks of the cache, and only of a stack whose policies limit the
// hour and whose plan destroys something.
func (p *Policies) Spent(ctx context.Context, of client.Object, limits []PerHour, n int) (policy.Withheld, error) {
	if p == nil || len(limits) == 0 || n <= 0 {
		return policy.Withheld{}, nil
	}
	tenant, now := limits[0].Tenant, p.Now()
	last, err := p.lastHour(ctx, of, tenant, now)
	if err != nil {
		return policy.Withheld{}, err
	}
	var longest policy.Withheld
	for _, l := range limits {
		if n > l.Most {
			continue // its finding holds the plan, and an approval lets it pass
		}
		sum := 0
		for _, d := range last {
			sum += d.n
		}
		before := sum
		until := now
		for i := 0; sum+n > l.Most && i < len(last); i++ {
			sum -= last[i].n
			until = last[i].at.Add(time.Hour)
		}
		if until.After(longest.Until) && until.After(now) {
			longest = policy.Withheld{Policy: l.Policy, Rule: policy.MaxDestroysPerHour, Until: until, Why: fmt.Sprintf(
				"the stacks of %s destroyed %s within the last hour, the plan destroys %d more, and %d in an hour are allowed", tenant, policy.Count(before, "resource"), n, l.Most)}
		}
	}
	return longest, nil
}

// lastHour are the destroys of a tenant in the last hour, the oldest first.
func (p *Policies) lastHour(ctx context.Context, of client.Object, tenant string, now time.Time) ([]destroyed, error) {
	s := p.now.Load()
	p.hours.mu.Lock()
	known := map[string]destroyed{}
	for id, d := range p.hours.began {
		if d.tenant == tenant && now.Sub(d.at) < time.Hour {
			known[id] = d
		}
	}
	p.hours.mu.Unlock()
	var out []destroyed
	err := p.Dialects.EachStack(ctx, p.cache, func(d dialect.Dialect, obj client.Object) error {
		id := string(obj.GetUID())
		if _, ok := known[id]; ok || s.spender(p, obj) != tenant {
			return nil
		}
		st, _ := d.Decode(obj) // a stack that cannot be read applies nothing
		if a, at := st.Status.Applied, st.Status.AppliedAt; a != nil && a.Changes.Destroy > 0 && now.Sub(at) < time.Hour && !at.After(now) {
			out = append(out, destroyed{tenant, a.Changes.Destroy, at})
		}
		return nil
	})
	for _, d := range known {
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b destroyed) int { return a.at.Compare(b.at) })
	return out, err
}
