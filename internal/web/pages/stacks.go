package pages

import (
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// pageRows is how many rows of a list are on one page.
const pageRows = 100

// Stacks lists all stacks that the visitor may view.
func Stacks(v *Visit) (Page, error) {
	q := boardQuery(v.Query)
	if q.Sort == "" {
		q.Sort = "status" // what needs a user comes first
	}
	found, err := v.page(q)
	if err != nil && fault.Of(err) != fault.Invalid {
		return Page{}, err
	}
	view := stacksView(v, q, found)
	if len(found.Items) == 0 && v.Unasked() > 0 {
		view.Empty = &ui.Empty{Title: "No matches so far", Text: "No stack matches in the namespaces whose permissions were checked so far."}
	}
	view.Problem = problemOf("The list cannot be filtered like that", err)
	view.Namespaces = namespacesOf(v)
	return Page{Title: "Stacks", Section: "stacks", Template: "stacks", Live: Live{Stacks: true, Cursor: found.Cursor}, Data: view}, nil
}

// page asks the board; a server without one answers with an error.
func (v *Visit) page(q query.BoardQuery) (query.BoardPage, error) {
	if v.Backend.Board == nil {
		return query.BoardPage{}, fault.New(fault.Later, "NotReady", errors.New("this server does not watch the stacks"))
	}
	return v.Backend.Board.Page(v.Scope(), q)
}

// row is one stack of the board.
func (v *Visit) row(k query.Key) (query.Row, bool) {
	if v.Backend.Board == nil {
		return query.Row{}, false
	}
	return v.Backend.Board.Get(k)
}

// boardQuery reads the query of the address. Invalid values are ignored: users type
// addresses.
func boardQuery(q url.Values) query.BoardQuery {
	out := query.BoardQuery{
		Text: strings.TrimSpace(q.Get("q")), Namespace: strings.TrimSpace(q.Get("namespace")), Tenant: strings.TrimSpace(q.Get("tenant")),
		Selector: strings.TrimSpace(q.Get("labels")), Group: strings.TrimSpace(q.Get("group")), Limit: pageRows,
	}
	for _, s := range q["status"] {
		if slices.Contains(query.Statuses(), query.Status(s)) {
			out.Statuses = append(out.Statuses, query.Status(s))
		}
	}
	if s := q.Get("sort"); slices.Contains(sorts, strings.TrimPrefix(s, "-")) {
		out.Sort = s
	}
	if n, err := strconv.Atoi(q.Get("offset")); err == nil && n > 0 {
		out.Offset = n
	}
	return out
}

// sorts are what the list can be ordered by.
var sorts = []string{"name", "status", "since", "applied"}

// namespacesOf are the namespaces with stacks that the visitor may see, for the
// filter to offer.
func namespacesOf(v *Visit) []string {
	const offered = 500
	var out []string
	for _, n := range v.Backend.Board.Namespaces() {
		if v.Scope().HasAny(n) && len(out) < offered {
			out = append(out, n)
		}
	}
	return out
}

// stackList is what the page of all stacks shows.
type stackList struct {
	Query      query.BoardQuery
	Kept       []field // what the search form carries along
	Chips      []chip
	Tokens     []token // the active filters, each with a link that removes it
	Namespaces []string
	Filtered   bool
	Columns    []column
	Groups     []rowGroup
	Pager      ui.Pager
	Empty      *ui.Empty
	Problem    *Problem
	Here       string // the address of the page, to come back to
}

type field struct{ Name, Value string }

// chip is a filter with how many it would find.
type chip struct {
	Pill    ui.Pill
	Count   int
	Href    string
	Current bool
}

type token struct{ Name, Value, Off string }

// Width is how many columns the table has, with the one that selects rows.
func (l stackList) Width() int { return len(l.Columns) + 1 }

// rowGroup is rows under a common heading; without grouping there is one, and
// it has no name.
type rowGroup struct {
	Named bool
	Name  string
	Total int
	Only  string // the address of the list of these alone
	Pills []chip
	Rows  []stackRow
}

// stacksView makes the view of what was found.
func stacksView(v *Visit, q query.BoardQuery, found query.BoardPage) stackList {
	path, params := v.Path, v.Query
	l := stackList{
		Query: q, Chips: statusChips(path, params, q, found.Counts), Tokens: tokens(path, params, q),
		Filtered: q.Text != "" || q.Namespace != "" || q.Tenant != "" || q.Selector != "" || len(q.Statuses) > 0,
		Columns:  columnsOf(path, params, q.Sort, found.Items),
		Groups:   groups(path, params, q.Group, found, v.Now),
		Pager:    ui.NewPager(path, params, q.Offset, len(found.Items), pageRows, found.Total, "row"),
		Here:     ui.With(path, params, ""),
	}
	for _, s := range q.Statuses {
		l.Kept = append(l.Kept, field{"status", string(s)})
	}
	if params.Get("sort") != "" {
		l.Kept = append(l.Kept, field{"sort", q.Sort})
	}
	if len(found.Items) == 0 {
		l.Empty = noStacks(path, l.Filtered || q.Offset > 0)
	}
	return l
}

func noStacks(path string, filtered bool) *ui.Empty {
	if filtered {
		return &ui.Empty{Title: "No matching stacks", Text: "No stack that you may view matches all filters.", Href: path, Link: "Show all stacks"}
	}
	return &ui.Empty{
		Title:   "There are no stacks yet",
		Text:    "A stack is a Terraform object: a module, its variables and the location of its state. This page lists a stack as soon as you apply one. If you expected stacks here, ask for the permission to list terraforms in their namespace.",
		Command: firstStack,
	}
}

// firstStack is the smallest stack that there is; a test reads it.
const firstStack = `kubectl apply -f - <<EOF
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata:
  name: hello
spec:
  interval: 10m
  values:
    hcl: |
      resource "terraform_data" "greeting" {
        input = "hello world"
      }
EOF`

// statusChips count by status, and filter.
func statusChips(path string, params url.Values, q query.BoardQuery, counts map[query.Status]int) []chip {
	all := 0
	for _, n := range counts {
		all += n
	}
	params = ui.Without(params, "offset")
	out := []chip{{Pill: ui.Pill{Word: "All"}, Count: all, Href: ui.With(path, params, "status"), Current: len(q.Statuses) == 0}}
	for _, s := range query.Statuses() {
		c := chip{Pill: statusPill(s), Count: counts[s], Current: slices.Contains(q.Statuses, s)}
		c.Href = ui.With(path, params, "status", string(s))
		if c.Current {
			c.Href = ui.With(path, params, "status") // once more takes it off
		}
		out = append(out, c)
	}
	return out
}

func tokens(path string, params url.Values, q query.BoardQuery) []token {
	var out []token
	for _, t := range []struct{ name, param, value string }{
		{"Search", "q", q.Text}, {"Namespace", "namespace", q.Namespace}, {"Tenant", "tenant", q.Tenant}, {"Labels", "labels", q.Selector}, {"Grouped by", "group", q.Group},
	} {
		if t.value != "" {
			out = append(out, token{t.name, t.value, ui.With(path, ui.Without(params, "offset"), t.param)})
		}
	}
	return out
}
