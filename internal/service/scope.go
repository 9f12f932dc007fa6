package service

// Scope is the namespaces whose stacks somebody may see. The zero Scope is none.
type Scope struct {
	All bool
	In  map[string]bool
}

// Has reports whether namespace is in s.
func (s Scope) Has(namespace string) bool { return s.All || s.In[namespace] }

// Everything is the Scope of who may see all.
var Everything = Scope{All: true}
