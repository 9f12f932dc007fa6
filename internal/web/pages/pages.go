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
	"maps"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/catalog"
	"github.com/terrier-iac/terrier/internal/query/situation"
	"github.com/terrier-iac/terrier/internal/web/login"
)

// Backend is everything that pages ask, answered by the server itself. The caller
// has checked the permissions.
type Backend struct {
	Kinds    query.Kinds // of stacks
	Stacks   query.StackReader
	Tenants  query.TenantReader
	Board    Board
	Details  query.StackDetails
	Sources  query.SourceReader
	AuditLog query.AuditLog
	Estate   query.TenantEstate
	Queue    query.Queue
	Figures  Figures
	Graphs   Graphs
	Notices  query.Notices
	Version  string

	Retained command.RetainedRecords // retained resources of deleted stacks

	Tokens    Tokens        // for the registry; nil without one
	Codes     *login.Codes  // of command lines that get tokens
	LoginLife time.Duration // of these tokens

	Catalog   *catalog.Catalog // of the registry; nil without one
	Authority []byte           // the certificate authority of this server in PEM, if it is one of its own
	Logins    bool             // "tofu login" gets a token here
	Alone     bool             // this server has no pages but those of the registry, and no sessions
	Uses      Uses             // of modules and providers; nil if that is not known

	Platform Platform
	Overview situation.Asked
	Checked  *AuditCheck // the last result of verifying AuditLog
	API      []byte      // the document of the API

	plans  keptPlans  // that were shown last
	graphs layouts    // likewise
	pushes keptPushes // states that were uploaded and not stored yet

	tenants kept[tenantSums]     // what the first page shows
	sources kept[[]query.Source] // likewise

	forgetting sync.Mutex // records: the second of two clicks waits for the first
}

// Board is all stacks as they are now.
type Board interface {
	Page(access.Scope, query.BoardQuery) (query.BoardPage, error)
	Tally(scope access.Scope, label string, values []string) ([]query.BoardGroup, error)
	Get(query.Key) (query.Row, bool)
	Namespaces() []string
	Graph(scope access.Scope, key query.Key, depth int) (query.Graph, error)
	Capacity(slots query.Slots) (query.CapacityInfo, error)
}

// Uses says which stacks use modules and providers, within a scope.
type Uses interface {
	// OfModule is for modules that the registry publishes, whatever name of this server
	// their source has.
	OfModule(context.Context, access.Scope, address.Module) (catalog.UsedBy, error)
	// OfProvider is for providers that the registry publishes, which have no host, and for
	// those of its mirror.
	OfProvider(context.Context, access.Scope, address.Provider) (catalog.UsedBy, error)
}

// Figures are what runs did over time.
type Figures interface {
	Over(access.Scope, query.Period) (figures []query.Figure, since time.Time)
}

// Page is what is shown.
type Page struct {
	Title    string
	Section  string // the entry of the menu that it belongs to
	Template string // its file in templates/, without .html
	Data     any
	Live     Live
	LeadsTo  string // the origin that the answer to a form of the page may lead to, besides ours
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
	To   string // a path of ours, or the address of a command line on the computer of the browser
	Said Said
	Page *Page // shown at once, where one sentence is not enough; only for actions that may be repeated
}

// Said names a sentence about an action. The name travels in the address and
// selects a sentence of ours, so that a link cannot show a text of its own.
type Said string

// sentences are shown after an action; each file of screens adds its own
// by says.
var sentences = map[Said]string{}

// says registers sentences, at the start of the program.
func says(more map[Said]string) struct{} {
	maps.Copy(sentences, more)
	return struct{}{}
}

// Sentence is what s stands for, empty if it is no sentence of ours.
func Sentence(s Said) string { return sentences[s] }
