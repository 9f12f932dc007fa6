// Package browse has the pages of the registry: what is published, a module with its
// documentation, a provider with its platforms and keys, git repositories whose tags become
// versions, and the mirror of providers.
//
// It decides no permissions but which namespaces a list shows: the table of routes has
// checked the others. What authors of modules wrote reaches a browser as text, and their
// Markdown as the nodes of package markdown. Start reading at Registry.
package browse

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/catalog"
	"github.com/terrier-iac/terrier/internal/web/pages"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

const (
	section   = "registry"
	rows      = 50
	listEvery = time.Minute // how often lists refresh
)

// errNone is the answer of a server without a registry.
func errNone() error {
	return fault.New(fault.Missing, "NoRegistry", errors.New("this server has no registry of modules and providers: its operator can start it with --registry"))
}

// tabs are the lists of the registry.
func tabs(current string) ui.Tabs {
	return ui.Tabs{Label: "Registry", Items: []ui.Tab{
		{Name: "Modules and providers", Href: "/registry", Current: current == "published"},
		{Name: "Git repositories", Href: "/registry/repositories", Current: current == "repositories"},
		{Name: "Mirror", Href: "/registry/mirror", Current: current == "mirror"},
	}}
}

// namespaceName is the grammar of the names of namespaces.
var namespaceName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)

// Sight reports which namespaces a user may read, as may says. Names that no namespace of
// Kubernetes can have are in no role, and the registry serves nothing of them either.
func Sight(may func(access.Request) bool) catalog.Sight {
	all := mayAll(may)
	return func(namespace string) bool {
		return namespaceName.MatchString(namespace) && (all || may(access.Request{Verb: "get", Resource: access.ResourceRegistry, Namespace: namespace}))
	}
}

// mayAll reports whether a user may read all namespaces.
func mayAll(may func(access.Request) bool) bool {
	return may(access.Request{Verb: "get", Resource: access.ResourceRegistry})
}

// registryView is what the list shows.
type registryView struct {
	Now             time.Time
	Tabs            ui.Tabs
	Text, Namespace string
	Kind            catalog.Kind
	Sort            catalog.Sort
	Namespaces      []string
	Rows            []entryRow
	Unsorted        bool
	Filtered        bool
	Pager           ui.Pager
	Empty           *ui.Empty
}

// entryRow is a module or a provider in the list.
type entryRow struct {
	catalog.Entry
	Href  string
	Name  string // without the namespace
	Noun  string
	Space string // the list of its namespace
}

// Registry shows which modules and providers are published.
func Registry(v *pages.Visit) (pages.Page, error) {
	if v.Backend.Catalog == nil {
		return pages.Page{}, errNone()
	}
	d := registryView{
		Now: v.Now, Tabs: tabs("published"), Text: strings.TrimSpace(v.Query.Get("q")), Namespace: v.Query.Get("namespace"),
		Kind: catalog.Kind(v.Query.Get("kind")), Sort: catalog.Sort(v.Query.Get("sort")),
	}
	if d.Kind != catalog.Modules && d.Kind != catalog.Providers {
		d.Kind = ""
	}
	if d.Sort != catalog.Newest {
		d.Sort = catalog.ByName
	}
	d.Filtered = d.Text != "" || d.Namespace != "" || d.Kind != ""
	found, err := v.Backend.Catalog.Search(v.Context, Sight(v.Can), catalog.Query{
		Text: d.Text, Kind: d.Kind, Namespace: d.Namespace, Sort: d.Sort, Offset: ui.CountIn(v.Query.Get("offset")), Limit: rows,
	})
	if err != nil {
		return pages.Page{}, err
	}
	d.Namespaces, d.Unsorted = found.Namespaces, found.Unsorted
	for _, e := range found.Items {
		d.Rows = append(d.Rows, rowOf(e))
	}
	d.Pager = ui.NewPager(v.Path, v.Query, found.Offset, len(d.Rows), rows, found.Total, "row")
	d.empty(v, found)
	return pages.Page{Title: "Registry", Section: section, Template: "catalog", Live: pages.Live{Every: listEvery}, Data: d}, nil
}

func (d *registryView) empty(v *pages.Visit, found catalog.Page) {
	switch {
	case len(d.Rows) > 0:
	case d.Filtered:
		d.Empty = &ui.Empty{Title: "No matching modules or providers", Href: v.Path, Link: "Show all"}
	case found.Empty:
		d.Empty = &ui.Empty{
			Title: "Nothing is published yet", Text: "A directory with configuration becomes a version of a module that tofu and terraform install from this server:",
			Command: "terrier module push DIR --namespace NAMESPACE --name NAME --system SYSTEM --version 1.0.0",
		}
	default:
		d.Empty = &ui.Empty{Title: "No modules or providers that you may read", Text: "To read those of a namespace, you need the permission to get terraforms/registry there. Ask the administrator of the cluster for a role that allows it."}
	}
}

func rowOf(e catalog.Entry) entryRow {
	row := entryRow{Entry: e, Noun: "Module", Href: ui.PathOf(append([]string{"registry", string(e.Kind)}, strings.Split(e.Address, "/")...)...)}
	if e.Kind == catalog.Providers {
		row.Noun = "Provider"
	}
	row.Name = strings.TrimPrefix(e.Address, e.Namespace+"/")
	row.Space = ui.With("/registry", url.Values{}, "namespace", e.Namespace)
	return row
}

// usesView is the stacks that use a module or a provider.
type usesView struct {
	Known   bool // this server knows it
	Items   []useRow
	Total   int
	Hidden  int
	Unread  int // stacks whose records this server still reads
	Unknown int // stacks of which no run has found out what they use
	Named   []stackLink
	More    int    // unknown stacks that are not named
	Start   string // the command that starts a run of the first of these
	Pager   ui.Pager
	Problem *pages.Problem
}

// stackLink leads to a stack.
type stackLink struct {
	query.Key
	Href string
}

// useRow is one of these stacks.
type useRow struct {
	catalog.Use
	Href string
	Pill *ui.Pill // of the version; nil if nothing is to be said of it
}

// fill shows a page of the stacks. State says what is to be said of a version.
func (u *usesView) fill(v *pages.Visit, used catalog.UsedBy, err error, state func(version string) *ui.Pill) {
	u.Known = true
	if err != nil {
		u.Problem = pages.ProblemOf("The stacks that use it cannot be shown", err)
		return
	}
	u.Total, u.Hidden = len(used.Items), used.Hidden
	u.Unread, u.Unknown, u.More = used.Unread, used.Unknown, used.Unknown-len(used.UnknownStacks)
	for _, k := range used.UnknownStacks {
		u.Named = append(u.Named, stackLink{k, pages.StackPath(k)})
	}
	if len(u.Named) > 0 {
		u.Start = fmt.Sprintf("terrier replan %s -n %s", u.Named[0].Argument(), u.Named[0].Namespace)
	}
	from := min(ui.CountIn(v.Query.Get("offset")), max(0, len(used.Items)-1)/rows*rows)
	for _, use := range used.Items[from:min(len(used.Items), from+rows)] {
		u.Items = append(u.Items, useRow{use, pages.StackPath(use.Stack), state(use.Version)})
	}
	u.Pager = ui.NewPager(v.Path, v.Query, from, len(u.Items), rows, u.Total, "stack")
}

// chosen is the tab that an address names, or the first one.
func chosen(v *pages.Visit, all []string) string {
	if tab := v.Query.Get("tab"); slices.Contains(all, tab) {
		return tab
	}
	return all[0]
}
