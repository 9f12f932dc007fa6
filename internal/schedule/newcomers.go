package schedule

import (
	"maps"
	"sync"
)

// Newcomers are the objects that were reconciled before others because they are
// the first of their tenants, one for each tenant. The zero value is ready to
// use.
type Newcomers struct {
	mu    sync.Mutex
	first map[string]Key // by tenant
}

// Take reports whether an object may go first: no other of its tenant does.
func (n *Newcomers) Take(tenant string, key Key) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, taken := n.first[tenant]; taken {
		return false
	}
	if n.first == nil {
		n.first = map[string]Key{}
	}
	n.first[tenant] = key
	return true
}

// Reconciled says that an object is reconciled now, whether it still exists or
// not.
func (n *Newcomers) Reconciled(key Key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.first, func(_ string, first Key) bool { return first == key })
}
