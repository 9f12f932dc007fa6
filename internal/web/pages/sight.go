package pages

import (
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// sightEvery is how often a page refreshes while the permissions of the visitor
// are still being checked.
const sightEvery = time.Second

// Lists reports whether the visitor may list the stacks of one namespace, also
// while the permissions in other namespaces are still being checked.
func (v *Visit) Lists(namespace string) bool {
	scope := v.Scope()
	return scope.Has(namespace) || scope.Unasked > 0 && v.Can(access.Request{Verb: "list", Resource: access.ResourceStacks, Namespace: namespace})
}

// accesses are one permission in each of some namespaces.
func accesses(verb string, r access.Resource, namespaces []string) []access.Request {
	var out []access.Request
	for _, n := range namespaces {
		out = append(out, access.Request{Verb: verb, Resource: r, Namespace: n})
	}
	return out
}

// askedTogether is how many permissions a page asks for at once.
const askedTogether = 16

// askTogether asks for several permissions at once, so that later calls of Can
// find the answer in the cache.
func (v *Visit) askTogether(rights []access.Request) {
	if v.Can == nil || len(rights) == 0 {
		return
	}
	var all sync.WaitGroup
	next := make(chan access.Request)
	for range min(askedTogether, len(rights)) {
		all.Go(func() {
			for a := range next {
				v.Can(a)
			}
		})
	}
	for _, a := range rights {
		next <- a
	}
	close(next)
	all.Wait()
}

// Unasked is how many namespaces the page leaves out because the permission to
// list their stacks was not checked yet; zero for a page that has
// not asked for the scope.
func (v *Visit) Unasked() int {
	if v.scope == nil {
		return 0
	}
	return v.scope.Unasked
}

// Here is the address of the page.
func (v *Visit) Here() string { return ui.With(v.Path, v.Query, "") }

// filling makes a page that is not complete yet refresh soon, if it refreshes
// at all.
func (v *Visit) filling(l Live) Live {
	if l != (Live{}) && v.Unasked() > 0 && (l.Every == 0 || l.Every > sightEvery) {
		l.Every = sightEvery
	}
	return l
}
