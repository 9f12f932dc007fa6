package pages

import (
	"slices"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// Approvals lists the pending plans: first those that the visitor may approve, then
// the others, each with the reason.
func Approvals(v *Visit) (Page, error) {
	q := boardQuery(v.Query)
	q.Statuses, q.Sort = []query.Status{query.StatusPending, query.StatusDrifted}, "since" // plans that fix drift need an approval, too
	found, err := v.page(q)
	if err != nil {
		return Page{}, err
	}
	view := approvalsView(found.Items, newStackRights(v, found.Items).whyNot)
	view.Query, view.Empty = q, noApprovals
	if q.Text != "" || q.Namespace != "" {
		view.Empty = ui.Empty{Title: "No matching approvals", Href: v.Path, Link: "Show all approvals"}
	}
	view.Pager = ui.NewPager(v.Path, v.Query, q.Offset, len(found.Items), pageRows, found.Total, "plan")
	return Page{Title: "Approvals", Section: "approvals", Template: "approvals", Live: Live{Stacks: true, Cursor: found.Cursor}, Data: view}, nil
}

// stackRights asks for the right to change stacks once for all of a kind, else once
// for each namespace, and for single stacks only where that is refused.
type stackRights struct {
	visit *Visit
	known map[query.Key]string // why the visitor may not change stacks; without a name of a namespace, without both of all
}

// newStackRights asks about the namespaces of rows.
func newStackRights(v *Visit, rows []query.Row) stackRights {
	r := stackRights{visit: v, known: map[query.Key]string{}}
	var asks []access.Request
	for _, row := range rows {
		if in := (query.Key{Namespace: row.Namespace, Kind: row.Kind}); r.of(query.Key{Kind: row.Kind}) != "" {
			if one := ofStack("patch", access.ResourceStacks, in); !slices.Contains(asks, one) {
				asks = append(asks, one)
			}
		}
	}
	v.askTogether(asks)
	return r
}

// of is mayChange, asked once.
func (r stackRights) of(k query.Key) string {
	why, asked := r.known[k]
	if !asked {
		why = mayChange(r.visit, k)
		r.known[k] = why
	}
	return why
}

// whyNot says why the visitor may not change a stack; empty if they may.
func (r stackRights) whyNot(k query.Key) string {
	if r.of(query.Key{Kind: k.Kind}) == "" || r.of(query.Key{Namespace: k.Namespace, Kind: k.Kind}) == "" {
		return ""
	}
	return mayChange(r.visit, k)
}

// noApprovals is shown where no plan needs an approval.
var noApprovals = ui.Empty{
	Title: "No pending approvals", Text: "A stack with approvePlan: auto applies its plans without an approval, and so does a stack of scripts without terrier.dev/approval=manual. To approve each plan of a stack yourself, clear that field, or set that annotation. Its next plan with changes is listed here.",
	Command: `kubectl patch terraforms.infra.contrib.fluxcd.io NAME -n NAMESPACE --type merge -p '{"spec":{"approvePlan":""}}'`,
}

type approvalList struct {
	Query  query.BoardQuery
	Empty  ui.Empty
	Mine   []approval
	Others []approval
	Pager  ui.Pager
}

// approval is one pending plan.
type approval struct {
	Row    query.Row
	Href   string
	Plan   query.PlanInfo
	Decide Decide
	Why    string // the cause of the plan
}

func approvalsView(rows []query.Row, whyNot func(query.Key) string) approvalList {
	var out approvalList
	for _, r := range rows {
		if r.Pending == "" || r.Status == query.StatusDrifted && undecidable(r.Stack) != "" {
			continue // the Drift page lists stacks in mode driftOnly
		}
		d := decideOf(r.Stack, whyNot(r.Key()), "approvals")
		a := approval{Row: r, Href: stackPath(r.Key()), Plan: d.Plan, Decide: d, Why: planCause(r.Stack, d.Plan)}
		if a.Plan.At.IsZero() {
			a.Plan.At = r.Since
		}
		if d.Why == "" {
			out.Mine = append(out.Mine, a)
		} else {
			out.Others = append(out.Others, a)
		}
	}
	return out
}

// planCause is the purpose of a plan.
func planCause(s query.Stack, p query.PlanInfo) string {
	switch {
	case p.Destroy:
		return "destroys all resources"
	case s.Untracked != nil:
		return "imports untracked resources"
	case p.Drift:
		return "fixes drift"
	case s.Applied == nil:
		return "creates the stack"
	case s.Applied.Revision != p.Revision && p.Revision != "":
		return "applies a new revision"
	case s.Mode == stack.PlanOnly:
		return "plan only"
	default:
		return "applies a change of the stack or its inputs"
	}
}
