// Package pages is what people see in a browser: for each screen a function
// that asks the service and says what to show, and a template that shows it.
// Pages are whole without scripts; what is in static/ makes them live.
//
// It knows nothing of gin or of sessions, and decides nobody's rights: whoever
// calls a Handler has checked the right that the table of routes asks for. Text
// from outside reaches a browser through html/template and nowhere else.
//
// Start reading at Visit and Page, then at Stacks in stacks.go.
package pages

import (
	"context"
	"net/url"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/service"
)

// House is everything that pages ask, answered by the server itself: whoever
// calls has been checked before.
type House struct {
	Stacks  service.StackReader
	Tenants service.TenantReader
	Board   Board
	Details service.StackDetails
	Sources service.SourceReader
	Journal service.Journal
	Estate  service.TenantEstate
	Queue   service.Queue
	Notices service.Notices
	Version string

	Retained service.RetainedStacks // what stacks left that are gone

	Platform Platform
	Checked  *JournalCheck // what was found about Journal
	API      []byte        // the document of the API

	plans  keptPlans   // that were shown last
	graphs keptLayouts // likewise
	pushes keptPushes  // states that people brought and have not stored yet

	forgetting sync.Mutex // of records: the second of two clicks waits for the first
}

// Board is all stacks as they are now.
type Board interface {
	Page(service.Scope, service.BoardQuery) (service.BoardPage, error)
	Tally(scope service.Scope, label string, values []string) ([]service.BoardGroup, error)
	Get(service.Key) (service.Row, bool)
	Namespaces() []string
	Graph(scope service.Scope, key service.Key, depth int) (service.Graph, error)
	Capacity(slots int) (service.CapacityInfo, error)
}

// Visit is one request for a page.
type Visit struct {
	Context context.Context
	House   *House
	User    service.User
	Scopes  func() (service.Scope, error) // the namespaces whose stacks the visitor may list; many questions, for some
	Person  service.Person
	Can     func(service.Access) bool // asks the cluster; its answers are kept for a moment

	// Refused is told what could not be done to one of several; nil where nobody
	// keeps it.
	Refused func(service.Key, error)

	// Forget drops the record of a stack that is gone, once the journal says who
	// had it dropped. An Action has it where such records are kept.
	Forget func(key service.Key, uid string) error

	Path  string            // as the browser has it, without the query
	Names map[string]string // the parts of the path that are variables
	Query url.Values
	Form  url.Values // of an Action
	File  []byte     // that a form brought along
	Now   time.Time

	scope   *service.Scope // once it was asked for
	unknown error
}

// Scope is the namespaces whose stacks the visitor may list, and none if that
// cannot be found out: then the page is not shown, see Unknown.
func (v *Visit) Scope() service.Scope {
	if v.scope == nil && v.unknown == nil && v.Scopes != nil {
		scope, err := v.Scopes()
		v.scope, v.unknown = &scope, err
	}
	if v.scope == nil || v.unknown != nil {
		return service.Scope{}
	}
	return *v.scope
}

// Unknown is why the scope that a page has asked for could not be found out.
func (v *Visit) Unknown() error { return v.unknown }

// Key is the object that the path names.
func (v *Visit) Key() service.Key {
	return service.Key{Namespace: v.Names["namespace"], Name: v.Names["name"]}
}

// Page is what is shown.
type Page struct {
	Title    string
	Section  string // the entry of the menu that it belongs to
	Template string // its file in templates/, without .html
	Data     any
	Live     Live
}

// Live says what makes a page stale. The zero Live is a page that never is.
type Live struct {
	Stacks bool          // any change of a stack that the visitor may see
	Stack  service.Key   // a change of this one
	Every  time.Duration // looked at again this often, for what tells nobody that it changes
	Cursor string        // of the board, from where changes count; from when the page is open if empty
}

// Handler makes a page.
type Handler func(*Visit) (Page, error)

// Action does what a form asks for. The browser is sent on to another page, so
// that going back or reloading repeats nothing.
type Action func(*Visit) (Done, error)

// Done is where the browser goes after an action, and what it is told there.
type Done struct {
	To   string // a path of ours
	Said Said
	Page *Page // shown at once, where there is more to say than a sentence; only of what may be repeated
}

// Said names a sentence about what was done. It travels in the address, so it
// is a name and not the sentence: nobody gets to put words into our mouth.
type Said string
