package pages

import (
	"net/url"
	"slices"

	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

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
