package mirror

import (
	"errors"
	"slices"
	"sync"
)

// errLeft says that no client waits any longer for a download that has not begun.
var errLeft = errors.New("no client waits for the download")

// slots are the downloads that go on at once. No tenant and no upstream has all of them,
// and a free one is for the tenant that has the fewest. A download that has not begun ends
// when its last client has left.
type slots struct {
	all      int // of them
	ofTenant int // that one tenant has at most
	ofHost   int // that one upstream has at most; more, so that one tenant does not take all of an upstream

	mu      sync.Mutex
	taken   int
	tenants map[string]int   // slots that are taken for a tenant
	hosts   map[string]int   // slots that are taken for an upstream
	wanted  map[string]*want // that clients wait for, by the key of the archive
	queue   []*want          // that have no slot yet, the oldest first
}

// want is an archive that clients wait for.
type want struct {
	host    string
	tenant  string         // whose slot it has
	clients map[string]int // that wait, by tenant
	slot    chan bool      // whether it gets a slot
}

func newSlots(all int) *slots {
	return &slots{all: all, ofTenant: (all + 1) / 2, ofHost: all - all/4, tenants: map[string]int{}, hosts: map[string]int{}, wanted: map[string]*want{}}
}

// enter says that a client waits for an archive, until it leaves.
func (s *slots) enter(key, host, tenant string) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.wanted[key]
	if w == nil {
		w = &want{host: host, clients: map[string]int{}, slot: make(chan bool, 1)}
		s.wanted[key] = w
	}
	w.clients[tenant]++
	s.grant() // a download of this tenant may begin where the others have their share
	return func() { s.leave(key, w, tenant) }
}

func (s *slots) leave(key string, w *want, tenant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.clients[tenant]--; w.clients[tenant] == 0 {
		delete(w.clients, tenant)
	}
	if len(w.clients) > 0 {
		return
	}
	delete(s.wanted, key)
	if s.unqueue(w) {
		w.slot <- false
	}
}

// take waits for a slot for an archive, until over is called.
func (s *slots) take(key string) (over func(), err error) {
	s.mu.Lock()
	w := s.wanted[key]
	if w == nil {
		s.mu.Unlock()
		return nil, errLeft
	}
	s.queue = append(s.queue, w)
	s.grant()
	s.mu.Unlock()
	if !<-w.slot {
		return nil, errLeft
	}
	return func() { s.free(w) }, nil
}

func (s *slots) free(w *want) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken--
	less(s.tenants, w.tenant)
	less(s.hosts, w.host)
	s.grant()
}

func less(counts map[string]int, key string) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}

// grant gives free slots to those in the queue: to the tenant with the fewest slots first, and
// then to the oldest. mu is held.
func (s *slots) grant() {
	for s.taken < s.all {
		var next *want
		fewest, whose := s.ofTenant, ""
		for _, w := range s.queue {
			if s.hosts[w.host] >= s.ofHost {
				continue
			}
			for tenant := range w.clients {
				if s.tenants[tenant] < fewest {
					next, fewest, whose = w, s.tenants[tenant], tenant
				}
			}
		}
		if next == nil {
			return
		}
		s.unqueue(next)
		next.tenant = whose
		s.taken++
		s.tenants[whose]++
		s.hosts[next.host]++
		next.slot <- true
	}
}

// unqueue reports whether an archive was in the queue, and removes it; mu is held.
func (s *slots) unqueue(w *want) bool {
	i := slices.Index(s.queue, w)
	if i < 0 {
		return false
	}
	s.queue = slices.Delete(s.queue, i, i+1)
	return true
}
