package access

// Scope is the namespaces whose stacks somebody may see. The zero Scope is none.
type Scope struct {
	All bool
	In  map[string]bool

	// Unasked is how many namespaces nobody has been asked about yet. None of
	// them is in the scope, and some of them may be later: until it is zero,
	// what is counted in the scope is not all.
	Unasked int
}

// Has reports whether namespace is in s.
func (s Scope) Has(namespace string) bool { return s.All || s.In[namespace] }

// Everything is the Scope of who may see all.
var Everything = Scope{All: true}
