package rendering

import "sync"

// parsed are texts that were parsed lately: thousands of tenants have the same.
var parsed = &memory{}

// maxRemembered is how many bytes of texts one half of a memory holds.
const maxRemembered = 4 << 20

type compiled struct {
	text *Text
	err  error
}

// memory holds what was used lately. When its newer half is full, the older is
// forgotten; what is asked for in the older moves to the newer.
type memory struct {
	mu           sync.Mutex
	newer, older map[string]compiled
	size         int
}

func (m *memory) get(text string) (compiled, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c, ok := m.newer[text]; ok {
		return c, true
	}
	c, ok := m.older[text]
	if ok {
		m.add(text, c)
	}
	return c, ok
}

func (m *memory) put(text string, c compiled) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.newer[text]; !ok {
		m.add(text, c)
	}
}

func (m *memory) add(text string, c compiled) {
	const overhead = 1 << 10 // of a tree, at the least
	if m.size += len(text) + overhead; m.newer == nil || m.size > maxRemembered {
		m.newer, m.older, m.size = map[string]compiled{}, m.newer, len(text)+overhead
	}
	m.newer[text] = c
}
