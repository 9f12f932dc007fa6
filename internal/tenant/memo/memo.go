// Package memo caches compiled texts, since thousands of tenants have the same
// ones. It is bounded: a text that was dropped is compiled again. The compiled form
// must follow from the text alone.
package memo

import "sync"

// Memory holds what was used lately, for any number of goroutines. When its newer
// half is full, the older is forgotten; what is asked for in the older moves to
// the newer. The zero value is empty, and each half holds Half bytes of texts.
type Memory[V any] struct {
	mu           sync.Mutex
	newer, older map[string]V
	size         int
}

// Half is how many bytes of texts one half of a memory holds.
const Half = 4 << 20

// overhead is what a text weighs besides its bytes.
const overhead = 1 << 10

// Of returns what is remembered of a text, or what compile makes of it. Two
// goroutines may compile the same text at the same time.
func (m *Memory[V]) Of(text string, compile func() V) V {
	v, ok := m.get(text)
	if !ok {
		v = compile()
		m.put(text, v)
	}
	return v
}

func (m *Memory[V]) get(text string) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v, ok := m.newer[text]; ok {
		return v, true
	}
	v, ok := m.older[text]
	if ok {
		m.add(text, v)
	}
	return v, ok
}

func (m *Memory[V]) put(text string, v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.newer[text]; !ok {
		m.add(text, v)
	}
}

func (m *Memory[V]) add(text string, v V) {
	if m.size += len(text) + overhead; m.newer == nil || m.size > Half {
		m.newer, m.older, m.size = map[string]V{}, m.newer, len(text)+overhead
	}
	m.newer[text] = v
}
