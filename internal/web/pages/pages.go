// Package pages is what people see in a browser: for each screen a function
// that asks the service and says what to show, and a template that shows it.
// Pages are whole without scripts; what is in static/ makes them live.
//
// The package knows neither gin nor sessions, and decides no permissions: the caller
// of a Handler has checked the permission in the table of routes. Text
// from outside reaches a browser through html/template and nowhere else.
//
// Start reading at Visit and Page, then at Stacks in stacks.go.
package pages

import (
	"context"
	"net/url"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/query"
)

// House is everything that pages ask, answered by the server itself. The caller
// has checked the permissions.
type House struct {
	Stacks  query.StackReader
	Tenants query.TenantReader
	Board   Board
	Details query.StackDetails
	Sources query.SourceReader
	Journal query.Journal
	Estate  query.TenantEstate
	Queue   query.Queue
	Notices query.Notices
	Version string

	Retained command.RetainedStacks // retained resources of deleted stacks

	Platform Platform
	Checked  *JournalCheck // the last result of verifying Journal
	API      []byte        // the document of the API

	plans  keptPlans  // that were shown last
	graphs layouts    // likewise
	pushes keptPushes // states that were uploaded and not stored yet

	forgetting sync.Mutex // records: the second of two clicks waits for the first
}

// Board is all stacks as they are now.
type Board interface {
	Page(access.Scope, query.BoardQuery) (query.BoardPage, error)
	Tally(scope access.Scope, label string, values []string) ([]query.BoardGroup, error)
	Get(query.Key) (query.Row, bool)
	Namespaces() []string
	Graph(scope access.Scope, key query.Key, depth int) (query.Graph, error)
	Capacity(slots int) (query.CapacityInfo, error)
}

// Visit is one request for a page.
type Visit struct {
	Context context.Context
	House   *House
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
	return query.Key{Namespace: v.Names["namespace"], Name: v.Names["name"]}
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
	Stack  query.Key     // a change of this one
	Every  time.Duration // refreshed at this interval, for data without change events
	Cursor string        // of the board, from where changes count; from when the page is open if empty
}

// Handler makes a page.
type Handler func(*Visit) (Page, error)

// Action carries out a form. The browser is sent on to another page, so
// that going back or reloading repeats nothing.
type Action func(*Visit) (Done, error)

// Done is where the browser goes after an action, and the sentence it shows there.
type Done struct {
	To   string // a path of ours
	Said Said
	Page *Page // shown at once, where one sentence is not enough; only for actions that may be repeated
}

// Said names a sentence about an action. The name travels in the address and
// selects a sentence of ours, so that a link cannot show a text of its own.
type Said string
