package pages

import (
	"cmp"
	"net/url"
	"strings"
	"time"

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
	return anyRow(rows, func(r *query.Row) bool { return r.Tenant != "" && r.Tenant != r.Namespace })
}

func hasDelta(rows []query.Row) bool {
	return anyRow(rows, func(r *query.Row) bool { return r.Plan != nil || r.Drift != nil })
}

func hasWhy(rows []query.Row) bool {
	return anyRow(rows, func(r *query.Row) bool { return whyNotReady(r) != "" })
}

// anyRow looks at rows without copying them, for they are large.
func anyRow(rows []query.Row, is func(*query.Row) bool) bool {
	for i := range rows {
		if is(&rows[i]) {
			return true
		}
	}
	return false
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

// stackRow is a row as the page shows it. It has what the cells need and no more, and
// embeds nothing: a template looks up a promoted field each time with an effort that a
// list of a hundred rows feels.
type stackRow struct {
	Key, Namespace, Name, Kind string

	Pill         ui.Pill
	DriftsAsWell bool // it has drifted, and its status is another one
	FailingCheck bool // a check block fails
	MayDrift     int  // attributes that drifted, and that a rule lets drift
	Href         string
	Tenant       string
	TenantHref   string         // the list of its tenant's stacks
	Module       string         // where its module comes from, short
	ModuleFull   string         // the same in full
	Revision     string         // that was applied
	Delta        *stack.Changes // of the pending plan, or of the drift; nil if there is neither
	Lasts        string         // before how long it has its status; empty if its age says enough
	Since        ui.Moment
	Why          string // why it is not ready, cut
	Next         ui.Moment
	Every        time.Duration
}

// lasting are the words before how long a stack has a status that needs a user.
var lasting = map[query.Status]string{
	query.StatusFailed: "failing for", query.StatusLocked: "locked for", query.StatusPending: "pending for", query.StatusDrifted: "drifted for",
}

// whyLength is how much of a message the list shows; the stack's page has it all.
const whyLength = 160

func listed(r *query.Row, now time.Time) stackRow {
	k := r.Key()
	s := stackRow{
		Key: k.String(), Namespace: r.Namespace, Name: r.Name, Kind: r.Kind, Pill: statusPill(r.Status), Href: stackPath(k), Tenant: r.Tenant,
		DriftsAsWell: r.Drift != nil && r.Status != query.StatusDrifted, FailingCheck: r.FailingCheckBlocks != nil,
		MayDrift: r.Tolerated.Total(),
		Module:   sourceText(&r.Stack, true), ModuleFull: sourceText(&r.Stack, false), Revision: r.Revision,
		Lasts: lasting[r.Status], Since: ui.Moment{Now: now, At: r.Since}, Why: whyNotReady(r), Next: ui.Moment{Now: now, At: r.NextAttempt}, Every: r.Every,
	}
	if r.Tenant != "" {
		s.TenantHref = ui.With("/stacks", nil, "tenant", r.Tenant)
	}
	if r.Plan != nil || r.Drift != nil {
		s.Delta = r.Delta
	}
	if s.Lasts != "" {
		s.Since.At = r.StatusSince()
	}
	return s
}

// whyNotReady is why a stack is not ready, cut; empty if it is.
func whyNotReady(r *query.Row) string {
	switch {
	case r.Phase == string(stack.BreakGlassSession):
		return "A break-glass session is open"
	case r.Status != query.StatusReady && r.Status != query.StatusSuspended:
		return ui.Cut(whyLength, cmp.Or(lastFailure(r), r.Message, r.WaitingFor))
	default:
		return ""
	}
}

// lastFailure is why a stack is shown as failed or locked, while it is
// retried and its own message only says that.
func lastFailure(r *query.Row) string {
	again := r.Status == query.StatusFailed || r.Status == query.StatusLocked
	if again && r.Failures > 0 && r.Ready != "True" && r.Ready != "False" {
		return r.FailedWith
	}
	return ""
}

// sourceText is where a stack's module comes from: its source, the revision, and
// the path in it.
func sourceText(s *query.Stack, short bool) string {
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
