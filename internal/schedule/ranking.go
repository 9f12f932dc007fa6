package schedule

import "cmp"

// ranking ranks the tenants that wait in a class; it is a heap.
type ranking struct {
	class   Class
	limits  *Limits
	tenants []*tenant
}

func (h *ranking) Len() int { return len(h.tenants) }

func (h *ranking) Less(i, j int) bool {
	a, b := h.tenants[i], h.tenants[j]
	if h.limits.PerClass[h.class] == 0 {
		return cmp.Or(cmp.Compare(a.running, b.running), cmp.Compare(a.moved, b.moved)) < 0
	}
	// With few slots for a class, a tenant that always has runs of other classes would
	// never have its turn.
	if full := h.limits.full(a); full != h.limits.full(b) {
		return !full
	}
	of, other := a.classes[h.class], b.classes[h.class]
	return cmp.Or(cmp.Compare(of.running, other.running), cmp.Compare(of.moved, other.moved)) < 0
}

// full reports whether a tenant may have no more runs.
func (l *Limits) full(t *tenant) bool { return l.PerTenant > 0 && t.running >= l.PerTenant }

func (h *ranking) Swap(i, j int) {
	h.tenants[i], h.tenants[j] = h.tenants[j], h.tenants[i]
	h.tenants[i].index[h.class], h.tenants[j].index[h.class] = i, j
}

func (h *ranking) Push(x any) {
	t := x.(*tenant)
	t.index[h.class] = len(h.tenants)
	h.tenants = append(h.tenants, t)
}

func (h *ranking) Pop() any {
	last := len(h.tenants) - 1
	t := h.tenants[last]
	h.tenants[last] = nil
	h.tenants = h.tenants[:last]
	return t
}
