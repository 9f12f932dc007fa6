package pages

import (
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
	rows := runRows(v.Key(), reports, v.Now)
	shown := rows[offset:min(len(rows), offset+pageRows)]
	return stackPage(v, "stack_runs", "Runs", struct {
		Head  stackHead
		Rows  []runRow
		Pager ui.Pager
	}{head, shown, ui.NewPager(v.Path, v.Query, offset, len(shown), pageRows, len(rows), "run")}), nil
}

type runRow struct {
	query.Report
	Pill  ui.Pill
	Href  string
	Log   string
	Took  time.Duration
	Delta *stack.Changes // nil of runs that change and plan nothing
	Why   string
}

func runRows(k query.Key, reports []query.Report, now time.Time) []runRow {
	reports = slices.Clone(reports)
	slices.SortStableFunc(reports, func(a, b query.Report) int { return b.Started.Compare(a.Started) })
	var out []runRow
	for _, r := range reports {
		row := runRow{Report: r, Pill: outcomePill(r.Outcome), Href: runPath(k, r.ID), Log: runPath(k, r.ID) + "/log"}
		end := r.Finished
		if end.IsZero() {
			end = now
		}
		if !r.Started.IsZero() {
			row.Took = end.Sub(r.Started)
		}
		if r.Outcome == stack.Succeeded && r.Kind != stack.HealthRun && r.Kind != stack.BreakGlassRun {
			row.Delta = &r.Changes
		}
		if r.Outcome != stack.Succeeded {
			row.Why = ui.Cut(whyLength, r.Message)
		}
		out = append(out, row)
	}
	return out
}
