package schedule

import "cmp"

// ranking ranks the tenants that wait in a class; it is a heap.
type ranking struct {
	class   Class
	tenants []*tenant
}

func (h *ranking) Len() int { return len(h.tenants) }

func (h *ranking) Less(i, j int) bool {
	a, b := h.tenants[i], h.tenants[j]
	return cmp.Or(cmp.Compare(a.running, b.running), cmp.Compare(a.moved, b.moved)) < 0
}

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
