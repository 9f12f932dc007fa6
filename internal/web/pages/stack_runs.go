package pages

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// StackRuns lists the runs of a stack that are kept, newest first.
func StackRuns(v *Visit) (Page, error) {
	head, err := headOf(v, tabRuns)
	if err != nil {
		return Page{}, err
	}
	reports, err := v.Backend.Stacks.Runs(v.Context, v.Key())
	if err != nil {
		return Page{}, err
	}
	offset, _ := strconv.Atoi(v.Query.Get("offset"))
	offset = min(max(0, offset), len(reports))
	rows := runRows(head.Stack, reports, v.Now)
	shown := rows[offset:min(len(rows), offset+pageRows)]
	askers(v, shown)
	return stackPage(v, "stack_runs", "Runs", struct {
		Head  stackHead
		Rows  []runRow
		Pager ui.Pager
	}{head, shown, ui.NewPager(v.Path, v.Query, offset, len(shown), pageRows, len(rows), "run")}), nil
}

type runRow struct {
	query.Report
	Pill     ui.Pill
	Href     string
	Log      string
	Name     string // of its kind
	Took     time.Duration
	Delta    *stack.Changes // nil of runs that change and plan nothing
	Why      string
	Trigger  string
	Who      string // requested or approved it; empty if no user did, or if that is not known
	Revision string
	cause    stack.Cause
}

func runRows(st query.Stack, reports []query.Report, now time.Time) []runRow {
	reports = slices.Clone(reports)
	slices.SortStableFunc(reports, func(a, b query.Report) int { return b.Started.Compare(a.Started) })
	var out []runRow
	for _, r := range reports {
		c := noteOf(r).Cause
		row := runRow{Report: r, Pill: runPill(r, st), Href: runPath(st.Key(), r.ID), Log: runPath(st.Key(), r.ID) + "/log", Name: turnWord(r.Kind), Trigger: whyOf(c), Revision: c.PlanInputs.Revision, cause: c}
		end := r.Finished
		if end.IsZero() {
			end = now
		}
		if !r.Started.IsZero() {
			row.Took = end.Sub(r.Started)
		}
		if r.Outcome == stack.Succeeded && r.Kind != stack.HealthRun && r.Kind != stack.BreakGlassRun && r.Kind != stack.StepsRun {
			row.Delta = &r.Changes
		}
		if r.Outcome != stack.Succeeded {
			row.Why = ui.Cut(whyLength, r.Message)
		}
		if c.Command != nil {
			row.Who = c.Command.By
		}
		out = append(out, row)
	}
	return out
}

// askersRead is how many entries of the audit log are read to find the users who
// caused the runs of one page.
const askersRead = 500

// askers names the user who requested or approved each run, where the visitor may
// view the audit log.
func askers(v *Visit, rows []runRow) {
	k := v.Key()
	sight := auditSight(v)
	if v.Backend.AuditLog == nil || len(rows) == 0 || !sight.Has(k.Namespace) {
		return
	}
	page, err := v.Backend.AuditLog.Entries(v.Context, sight, query.AuditQuery{
		What: []query.AuditWhat{"approved", "replan-asked", "repair-asked"}, Namespace: k.Namespace, Stack: k.Name, Kind: &k.Kind, Limit: askersRead,
	})
	if err != nil {
		return // the table is complete without the audit log
	}
	plans, requests := map[string]string{}, map[string]string{}
	for _, e := range page.Items {
		if e.Digest != "" && e.What == "approved" {
			plans[e.Digest] = cmp.Or(plans[e.Digest], query.AuditUser(e))
		}
		if request := e.Details["request"]; request != "" {
			requests[request] = cmp.Or(requests[request], query.AuditUser(e))
		}
	}
	for i := range rows {
		c := rows[i].cause
		if c.Plan != nil {
			rows[i].Who = cmp.Or(rows[i].Who, plans[c.Plan.Digest])
		} else if c.Replan != "" {
			rows[i].Who = cmp.Or(rows[i].Who, requests[c.Replan])
		}
	}
}
