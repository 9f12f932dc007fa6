package pages

import (
	"context"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// Visit is one request for a page.
type Visit struct {
	Context context.Context
	Backend *Backend
	User    access.User
	Scopes  func() (access.Scope, error) // the namespaces whose stacks the visitor may list; slow for visitors with many namespaces
	Person  command.Person
	Can     func(access.Request) bool // asks the cluster; the answers are cached for a moment

	// Refused receives the error of one stack among several; nil where it is not
	// recorded.
	Refused func(query.Key, error)

	// Forget deletes the record of a deleted stack, after the audit log names the
	// user. An Action has it where such records exist.
	Forget func(key query.Key, uid string) error

	// Record writes an entry into the audit log, in the name of the visitor. An Action
	// has it.
	Record func(query.AuditEntry) error

	// Revealed records that the visitor asked for the secret values of a state. A
	// page shows them only after that.
	Revealed func(version string) error

	Host  string            // and port of this server, as the browser has it
	Path  string            // as the browser has it, without the query
	Names map[string]string // the parts of the path that are variables
	Query url.Values
	Form  url.Values // of an Action
	File  []byte     // that was uploaded with a form
	Now   time.Time

	scope   *access.Scope // once it was asked for
	unknown error
}

// Scope is the namespaces whose stacks the visitor may list, and none if that
// cannot be found out: then the page is not shown, see Unknown.
func (v *Visit) Scope() access.Scope {
	if v.scope == nil && v.unknown == nil && v.Scopes != nil {
		scope, err := v.Scopes()
		v.scope, v.unknown = &scope, err
	}
	if v.scope == nil || v.unknown != nil {
		return access.Scope{}
	}
	return *v.scope
}

// Unknown is why the scope that a page has asked for could not be found out.
func (v *Visit) Unknown() error { return v.unknown }

// Key is the object that the path names.
func (v *Visit) Key() query.Key {
	return query.Key{Namespace: v.Names["namespace"], Name: v.Names["name"], Kind: v.Names["kind"]}
}

// sightEvery is how often a page refreshes while the permissions of the visitor
// are still being checked.
const sightEvery = time.Second

// Lists reports whether the visitor may list the stacks of a kind in one namespace,
// also while the permissions in other namespaces are still being checked.
func (v *Visit) Lists(namespace, kind string) bool {
	scope := v.Scope().Of(kind)
	return scope.Has(namespace) || scope.Unasked > 0 && v.Can(ofStack("list", access.ResourceStacks, query.Key{Namespace: namespace, Kind: kind}))
}

// ofStack is a permission for a stack, for the stacks of its kind in its namespace
// without a name, and for all of its kind without a namespace.
func ofStack(verb string, r access.Resource, k query.Key) access.Request {
	return access.Request{Verb: verb, Resource: r, Kind: k.Kind, Namespace: k.Namespace, Name: k.Name}
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

// offsetOf is from which row on a list of total rows is shown: what the visitor
// asks for, as far as there are rows.
func offsetOf(v *Visit, total, limit int) int {
	n, err := strconv.Atoi(v.Query.Get("offset"))
	if err != nil || n < 0 || total == 0 {
		return 0
	}
	return min(n, (total-1)/limit*limit)
}
