package access

import "maps"

// Scope is the namespaces whose stacks a user may see. The zero Scope is none.
type Scope struct {
	All bool
	In  map[string]bool

	// Unasked is how many namespaces the cluster has not been asked about yet.
	// None of them is in the scope, and some of them may be later: until it is
	// zero, a count within the scope is too low.
	Unasked int
	// Others are the scopes of the other kinds of stack than the first, by kind.
	Others map[string]Scope

	everything bool // of every kind
}

// Of is the scope of a kind of stack, as query.Key has it.
func (s Scope) Of(kind string) Scope {
	if kind == "" || s.everything {
		return s
	}
	return s.Others[kind]
}

// Has reports whether namespace is in s.
func (s Scope) Has(namespace string) bool { return s.All || s.In[namespace] }

// HasAny reports whether the user may list stacks of some kind in a namespace.
func (s Scope) HasAny(namespace string) bool {
	if s.Has(namespace) {
		return true
	}
	for _, other := range s.Others {
		if other.Has(namespace) {
			return true
		}
	}
	return false
}

// None reports whether the user may list no stack at all, once that is known.
func (s Scope) None() bool {
	none := !s.All && len(s.In) == 0 && s.Unasked == 0
	for _, other := range s.Others {
		none = none && other.None()
	}
	return none
}

// Same reports whether two scopes have the same namespaces.
func (s Scope) Same(other Scope) bool {
	return s.All == other.All && s.everything == other.everything && maps.Equal(s.In, other.In) && maps.EqualFunc(s.Others, other.Others, Scope.Same)
}

// Everything is the Scope of a user who may see all namespaces and all kinds.
var Everything = Scope{All: true, everything: true}
