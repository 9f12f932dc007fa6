package controller

import (
	"cmp"
	"context"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// newcomerPriority puts the first stack of a tenant that has nothing at work and
// nothing waiting before all that another tenant has just made: turns are fair
// (queue.go), but to ask for one a stack has to be looked at.
const newcomerPriority = wakePriority / 2

// newcomers are the stacks that were put first, one for each tenant.
type newcomers struct {
	mu    sync.Mutex
	first map[string]types.NamespacedName // by tenant
}

// take says whether a stack may go first: no other of its tenant does.
func (n *newcomers) take(tenant string, key types.NamespacedName) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, taken := n.first[tenant]; taken {
		return false
	}
	if n.first == nil {
		n.first = map[string]types.NamespacedName{}
	}
	n.first[tenant] = key
	return true
}

// seen is told that a stack is looked at, whether it is still there or not.
func (n *newcomers) seen(key types.NamespacedName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.first, func(_ string, first types.NamespacedName) bool { return first == key })
}

// idle reports whether a tenant has nothing at work and nothing waiting.
func (q *queue) idle(tenant string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.tenants[tenant] == nil
}

// newcomer looks at a stack that was just made before others, if its tenant has
// nothing here.
func (c *Stacks) newcomer(_ context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	ranked, ok := q.(priorityqueue.PriorityQueue[reconcile.Request])
	if !ok || e.IsInInitialList {
		return
	}
	key := client.ObjectKeyFromObject(e.Object)
	if tenant := c.tenantOf(e.Object); c.queue.idle(tenant) && c.newcomers.take(tenant, key) {
		ranked.AddWithOpts(priorityqueue.AddOpts{Priority: new(newcomerPriority)}, reconcile.Request{NamespacedName: key})
	}
}

// tenantOf is whose a stack is, for fair turns.
func (c *Stacks) tenantOf(o client.Object) string {
	return cmp.Or(o.GetLabels()[c.Config.TenantLabel], o.GetNamespace())
}
