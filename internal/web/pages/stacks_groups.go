package pages

import (
	"net/url"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// groups puts rows under the headings of their groups. The rows come in the
// order of the groups.
func groups(path string, params url.Values, by string, found query.BoardPage, now time.Time) []rowGroup {
	if by == "" || len(found.Groups) == 0 {
		g := rowGroup{Rows: make([]stackRow, 0, len(found.Items))}
		for i := range found.Items {
			g.Rows = append(g.Rows, listed(&found.Items[i], now))
		}
		return []rowGroup{g}
	}
	var out []rowGroup
	for i := range found.Items {
		r := &found.Items[i]
		name := groupOf(by, r)
		if len(out) == 0 || out[len(out)-1].Name != name {
			out = append(out, rowGroup{Named: true, Name: name, Only: onlyGroup(path, params, by, name)})
		}
		g := &out[len(out)-1]
		g.Rows = append(g.Rows, listed(r, now))
	}
	for i := range out {
		for _, g := range found.Groups {
			if g.Name != out[i].Name {
				continue
			}
			out[i].Total = g.Total
			for _, s := range query.Statuses() {
				if g.Counts[s] > 0 {
					out[i].Pills = append(out[i].Pills, chip{Pill: statusPill(s), Count: g.Counts[s]})
				}
			}
		}
	}
	return out
}

// onlyGroup is the address of the list of one group alone.
func onlyGroup(path string, params url.Values, by, name string) string {
	params = ui.Without(params, "offset", "group")
	switch key, isLabel := strings.CutPrefix(by, "label:"); {
	case !isLabel:
		return ui.With(path, params, by, name)
	case name == "":
		return ui.With(path, params, "labels", "!"+key)
	default:
		return ui.With(path, params, "labels", key+"="+name)
	}
}

// groupOf is the group of a row, as the board names it.
func groupOf(by string, r *query.Row) string {
	switch key, isLabel := strings.CutPrefix(by, "label:"); {
	case isLabel:
		return r.Labels[key]
	case by == "tenant":
		return r.Tenant
	default:
		return r.Namespace
	}
}
