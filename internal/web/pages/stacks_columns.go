package pages

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// stackColumns are the columns of the list of stacks, in the order of the page.
//
// To add a column, add it here, add its cell to templates/stacks.html, at the same
// place of the row, and add what the cell shows to stackRow. The columns of
// "terrier get" are in internal/cli/stack_columns.go.
var stackColumns = []column{
	{Class: "status", Name: "Status", sort: "status"},
	{Class: "name", Name: "Name", sort: "name"},
	{Class: "tenant", Name: "Tenant", only: hasTenants},
	{Class: "source", Name: "Source"},
	{Class: "changes", Name: "Plan", only: hasDelta},
	{Class: "changed", Name: "Since", sort: "since"},
	{Class: "why", Name: "Why", only: hasWhy},
	{Class: "next", Name: "Next check"},
}

type column struct {
	Class string // of the heading, after "col-", and the cell of the template
	Name  string // its heading

	sort string                 // what the board sorts by for it; empty if it does not
	only func([]query.Row) bool // whether the rows have something for it; nil if always

	Href   string // sorts by the column, or reverses the order
	Sorted string // as aria-sort has it
}

// hasTenants reports whether the tenant of a row is another word than its namespace.
func hasTenants(rows []query.Row) bool {
	return slices.ContainsFunc(rows, func(r query.Row) bool { return r.Tenant != "" && r.Tenant != r.Namespace })
}

func hasDelta(rows []query.Row) bool {
	return slices.ContainsFunc(rows, func(r query.Row) bool { return r.Plan != nil || r.Drift != nil })
}

func hasWhy(rows []query.Row) bool {
	return slices.ContainsFunc(rows, func(r query.Row) bool { return listed(r).Why != "" })
}

// columnsOf are the columns of a list of rows that is sorted by sorted.
func columnsOf(path string, params url.Values, sorted string, rows []query.Row) []column {
	sorted = cmp.Or(sorted, "status")
	var out []column
	for _, c := range stackColumns {
		if c.only != nil && !c.only(rows) {
			continue
		}
		if to := c.sort; to != "" {
			switch sorted {
			case to:
				c.Sorted, to = "ascending", "-"+to
			case "-" + to:
				c.Sorted = "descending"
			}
			c.Href = ui.With(path, ui.Without(params, "offset"), "sort", to)
		}
		out = append(out, c)
	}
	return out
}

type stackRow struct {
	query.Row
	Pill         ui.Pill
	Href         string
	Module       string // where its module comes from, short
	ModuleFull   string // the same in full
	Why          string // why it is not ready, cut
	TenantHref   string // the list of its tenant's stacks
	DriftsAsWell bool   // it has drifted, and its status is another one
	FailingCheck bool   // a check block fails
	Lasts        string // before how long it has its status; empty if its age says enough
}

// lasting are the words before how long a stack has a status that needs a user.
var lasting = map[query.Status]string{
	query.StatusFailed: "failing for", query.StatusLocked: "locked for", query.StatusPending: "pending for", query.StatusDrifted: "drifted for",
}

// whyLength is how much of a message the list shows; the stack's page has it all.
const whyLength = 160

func listed(r query.Row) stackRow {
	s := stackRow{Row: r, Pill: statusPill(r.Status), Href: stackPath(r.Key()), Module: sourceText(r.Stack, true), ModuleFull: sourceText(r.Stack, false)}
	if r.Tenant != "" {
		s.TenantHref = ui.With("/stacks", nil, "tenant", r.Tenant)
	}
	switch {
	case r.Phase == string(stack.BreakGlassSession):
		s.Why = "A break-glass session is open"
	case r.Status != query.StatusReady && r.Status != query.StatusSuspended:
		s.Why = ui.Cut(whyLength, cmp.Or(lastFailure(r), r.Message, r.WaitingFor))
	}
	s.Lasts = lasting[r.Status]
	s.FailingCheck = r.FailingCheckBlocks != nil
	s.DriftsAsWell = r.Drift != nil && r.Status != query.StatusDrifted
	return s
}

// lastFailure is why a stack is shown as failed or locked, while it is
// retried and its own message only says that.
func lastFailure(r query.Row) string {
	again := r.Status == query.StatusFailed || r.Status == query.StatusLocked
	if again && r.Failures > 0 && r.Ready != "True" && r.Ready != "False" {
		return r.FailedWith
	}
	return ""
}

// sourceText is where a stack's module comes from: its source, the revision, and
// the path in it.
func sourceText(s query.Stack, short bool) string {
	text, rev := s.Source, s.Revision
	if short {
		if _, name, ok := strings.Cut(text, "/"); ok {
			text = name
		}
		rev = ui.Revision(rev)
		if i := strings.LastIndex(rev, "@"); i >= 0 {
			rev = rev[i+1:]
		}
	}
	if rev != "" && s.Source != "inline" {
		text += "@" + rev
	}
	if p := strings.TrimPrefix(strings.TrimPrefix(s.Path, "."), "/"); p != "" {
		text += ":" + p
	}
	return text
}
