package pages

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// Tenant shows one tenant: its objects by dependency, their status, and what they
// are waiting for.
func Tenant(v *Visit) (Page, error) {
	if v.Backend.Tenants == nil {
		return Page{}, errNoTenants
	}
	d, err := v.Backend.Tenants.Describe(v.Context, v.Key())
	if err != nil {
		return Page{}, err
	}
	view := tenantOf(v, d)
	return Page{
		Title: d.Name + " · tenant", Section: "tenants", Template: "tenant", Live: Live{Stacks: true, Every: tenantsEvery}, Data: view,
	}, nil
}

var errNoTenants = fault.New(fault.Missing, query.ReasonNoTenants, errors.New("this server does not manage tenants"))

// tenantView is what the page shows.
type tenantView struct {
	query.TenantDetail
	Now                                    time.Time
	Pill                                   ui.Pill
	RegistryHref, TemplateHref, StacksHref string

	Tree    []*objectView // those that need no other, with those that need them below
	Going   []*objectView // that the template no longer has
	Told    told
	Failing int
}

// objectView is one object of a tenant.
type objectView struct {
	query.TenantObject
	Pill  ui.Pill
	Also  []string // further ones that it depends on, besides the one that it stands below
	Below []*objectView
	Stack *stackView
}

// branch is a part of the tree, as the template that draws it calls itself.
type branch struct {
	Now     time.Time
	Objects []*objectView
}

// stackView is the stack that an object is.
type stackView struct {
	Href   string // empty if the visitor may not view it
	Pill   ui.Pill
	Unseen string

	Since   time.Time
	Message string
	Pending string // the pending plan, and its changes
	Applied *query.PlanInfo
	Drift   string
}

// objectPill is the status of an object of a tenant.
func objectPill(state string) ui.Pill {
	switch state {
	case query.ObjectReady:
		return ui.NewPill(ui.ToneOK, "check", "Ready")
	case query.ObjectLeftOut:
		return ui.NewPill(ui.ToneIdle, "minus", "Omitted")
	case query.ObjectGone:
		return ui.NewPill(ui.ToneIdle, "check", "Deleted")
	case query.ObjectLetGo:
		return ui.NewPill(ui.ToneIdle, "check", "Released")
	case query.ObjectPending:
		return ui.NewPill(ui.ToneIdle, "clock", "Pending")
	case query.ObjectRemoving, "Deleting":
		return ui.NewPill(ui.ToneWarn, "minus", "Deleting")
	case "Kept":
		return ui.NewPill(ui.ToneWarn, "lock", "Kept")
	case "Progressing":
		return ui.NewPill(ui.ToneBusy, "turn", "Progressing")
	case "Failed":
		return ui.NewPill(ui.ToneBad, "cross", "Failed")
	case "Conflicted":
		return ui.NewPill(ui.ToneBad, "alert", "Conflicted")
	case "Skipped":
		return ui.NewPill(ui.ToneWarn, "pause", "Skipped")
	default:
		return ui.NewPill(ui.ToneIdle, "dot", state)
	}
}

func tenantOf(v *Visit, d query.TenantDetail) tenantView {
	row := rowOfTenant(d.Tenant)
	view := tenantView{
		TenantDetail: d, Now: v.Now, Pill: row.Pill, RegistryHref: row.RegistryHref, TemplateHref: row.TemplateHref, StacksHref: row.StacksHref,
		Told: toldOf(v.Now, d.Conditions, d.Events, d.Unseen),
	}
	var wanted []*objectView
	for _, o := range d.Objects {
		n := &objectView{TenantObject: o, Pill: objectPill(o.State), Stack: stackOfObject(v, o)}
		if n.Pill.Tone == ui.ToneBad {
			view.Failing++
		}
		if o.State == query.ObjectRemoving {
			view.Going = append(view.Going, n)
		} else {
			wanted = append(wanted, n)
		}
	}
	view.Tree = treeOf(wanted)
	return view
}

// treeOf puts each object below the dependency that is created
// last: the object waits for that one. Objects come in the order of creation.
func treeOf(list []*objectView) []*objectView {
	at := map[string]int{}
	for i, o := range list {
		at[o.ID] = i
	}
	var roots []*objectView
	for i, o := range list {
		parent := -1
		for _, id := range o.DependsOn {
			// A cycle has no order of creation; a later object is never a parent.
			if j, ok := at[id]; ok && j < i && j > parent {
				parent = j
			}
		}
		for _, id := range o.DependsOn {
			if j, ok := at[id]; !ok || j != parent {
				o.Also = append(o.Also, id)
			}
		}
		if parent < 0 {
			roots = append(roots, o)
		} else {
			list[parent].Below = append(list[parent].Below, o)
		}
	}
	return roots
}

// stackOfObject is the stack that an object is, nil if it is none. A visitor who may
// not list the stacks of its namespace learns only that there is one.
func stackOfObject(v *Visit, o query.TenantObject) *stackView {
	switch {
	case o.Stack == nil && o.StackUnseen == "":
		return nil
	case o.Stack != nil && !v.Lists(o.Namespace, o.Stack.Kind), o.Stack == nil && !v.Lists(o.Namespace, ""):
		return &stackView{Unseen: "you may not list the stacks of the namespace " + o.Namespace}
	case o.Stack == nil:
		return &stackView{Unseen: o.StackUnseen}
	}
	s := o.Stack
	out := &stackView{
		Href: stackPath(s.Key()), Pill: ui.NewPill(ui.ToneIdle, "dot", cmp.Or(s.Phase, "Unknown")),
		Since: s.Since, Message: s.Message, Applied: s.Applied,
	}
	if v.Backend.Board != nil {
		if row, ok := v.Backend.Board.Get(s.Key()); ok {
			out.Pill = statusPill(row.Status)
		}
	}
	if s.Pending != "" {
		out.Pending = s.Pending
		if s.Plan != nil {
			out.Pending += ": " + plan.Summarize(s.Plan.Changes)
		}
	}
	if s.Drift != nil {
		out.Drift = s.Drift.Changes.String()
	}
	return out
}

// told is the conditions and events of an object.
type told struct {
	Now        time.Time
	Conditions []query.Condition
	Events     []query.Event
	Unseen     []string
}

func toldOf(now time.Time, conditions []query.Condition, events []query.Event, unseen []string) told {
	conditions = slices.SortedFunc(slices.Values(conditions), func(a, b query.Condition) int { return strings.Compare(a.Type, b.Type) })
	return told{now, conditions, events, unseen}
}
