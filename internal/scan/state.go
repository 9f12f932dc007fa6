package scan

import "fmt"

// isState reports whether a document is a state of Terraform or OpenTofu.
func isState(n *node) bool {
	return n != nil && n.get("terraform_version") != nil && (n.get("lineage") != nil || n.get("resources") != nil && n.get("version") != nil)
}

// stateScanner scans one state.
type stateScanner struct{ *scanner }

// state scans a state: what its provider marks as sensitive, and what looks like a secret.
// An encrypted state is a document without these, and holds nothing in plain text.
func (s stateScanner) state(n *node) {
	p := place{kind: State}
	if outputs := n.get("outputs"); outputs != nil {
		for _, e := range outputs.entries {
			below := p.below("output").below(e.key)
			if e.value.get("sensitive").isTrue() {
				s.sensitive(below, e.value.get("value"))
				continue
			}
			s.named(below, e.key, e.value.get("value"))
		}
	}
	resources := n.get("resources")
	if resources == nil {
		return
	}
	for _, r := range resources.items {
		address := r.get("type").string() + "." + r.get("name").string()
		if r.get("mode").string() == "data" {
			address = "data." + address
		}
		if module := r.get("module").string(); module != "" {
			address = module + "." + address
		}
		instances := r.get("instances")
		if instances == nil {
			continue
		}
		for _, i := range instances.items {
			below := p
			below.path = address
			if key := i.get("index_key"); key != nil && key.text != "" {
				below.path += "[" + key.text + "]"
			}
			s.instance(below, i)
		}
	}
}

// instance scans the attributes of one instance.
func (s stateScanner) instance(p place, i *node) {
	attributes := i.get("attributes")
	if attributes == nil {
		return
	}
	hidden := map[*node]bool{}
	if marks := i.get("sensitive_attributes"); marks != nil {
		for _, mark := range marks.items {
			below, at := p, attributes
			for _, step := range mark.items {
				below, at = follow(below, at, step)
			}
			if at != nil && !hidden[at] {
				hidden[at] = true
				s.sensitive(below, at)
			}
		}
	}
	s.unmarked(p, attributes, hidden)
}

// follow goes one step of a path to a sensitive attribute.
func follow(p place, n, step *node) (place, *node) {
	key := step.get("value")
	if n == nil || key == nil {
		return p, nil
	}
	if key.kind == object { // {"value": "key", "type": "string"}
		key = key.get("value")
	}
	if key == nil {
		return p, nil
	}
	if n.kind == list {
		var index int
		if _, err := fmt.Sscan(key.text, &index); err != nil || index < 0 || index >= len(n.items) {
			return p, nil
		}
		return p.below("[" + key.text + "]"), n.items[index]
	}
	return p.below(key.text), n.get(key.text)
}

// sensitive adds one finding for a value that is marked, if it holds anything.
func (s stateScanner) sensitive(p place, n *node) {
	if held := first(n); held != nil {
		s.add(p, RuleSensitive, Mask, held.at.line, held.at.line)
	}
}

// first is the first text or number of a value that is not empty.
func first(n *node) *node {
	if n == nil {
		return nil
	}
	if (n.kind == text || n.kind == number) && n.text != "" {
		return n
	}
	for _, e := range n.entries {
		if held := first(e.value); held != nil {
			return held
		}
	}
	for _, item := range n.items {
		if held := first(item); held != nil {
			return held
		}
	}
	return nil
}

// unmarked scans attributes that are not marked, by their names and values.
func (s stateScanner) unmarked(p place, n *node, hidden map[*node]bool) {
	if hidden[n] {
		return
	}
	for _, e := range n.entries {
		if !hidden[e.value] {
			s.named(p.below(e.key), e.key, e.value, hidden)
		}
	}
	for i, item := range n.items {
		s.unmarked(p.below(fmt.Sprintf("[%d]", i)), item, hidden)
	}
}

// named scans the value of one name, and what it holds.
func (s stateScanner) named(p place, name string, n *node, hidden ...map[*node]bool) {
	if n == nil {
		return
	}
	if n.kind == text {
		s.check(p, name, n.text, n.at)
		return
	}
	known := map[*node]bool{}
	if len(hidden) > 0 {
		known = hidden[0]
	}
	s.unmarked(p, n, known)
}
