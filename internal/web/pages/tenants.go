package pages

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/meaning"
	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// tenantsEvery is how often pages about tenants refresh: only stacks have change
// events.
const tenantsEvery = 10 * time.Second

// Tenants shows the tenants that the visitor may view, their registries and
// templates, and above all what blocks them.
func Tenants(v *Visit) (Page, error) {
	page := Page{Title: "Tenants", Section: "tenants", Template: "tenants", Live: Live{Every: tenantsEvery}}
	if v.Backend.Tenants == nil {
		page.Data = tenantsView{Now: v.Now, Empty: &ui.Empty{Title: "No tenants", Text: "This server does not manage tenants."}}
		return page, nil
	}
	labels := strings.TrimSpace(v.Query.Get("labels"))
	list, err := v.Backend.Tenants.List(v.Context, query.TenantFilter{Selector: labels})
	invalid := problemOf("The list cannot be filtered like that", err)
	if err != nil && labels == "" {
		return page, err
	}
	d := tenantsOf(v, list)
	d.Problem, d.Labels = invalid, labels
	if err := d.sources(v); err != nil {
		return page, err
	}
	if labels := d.idLabels(); v.Backend.Board != nil && len(labels) > 0 {
		found, err := v.Backend.Board.Tally(v.Scope(), tenantIDLabel, labels)
		d.NoStacks = problemOf("Stacks are not counted", err)
		d.stacks(found)
	}
	page.Data = d
	return page, nil
}

// tenantIDLabel is on the objects of a tenant: the uid of its row.
const tenantIDLabel = "terrier.dev/tenant-id"

// tenantsView is what the page shows.
type tenantsView struct {
	Now     time.Time
	Alarms  []alarmView
	Hidden  int // alarms of objects that the visitor may not view
	Problem *Problem

	Text, Labels, Namespace, Registry, Template, State string
	Chips                                              []stateChip
	Namespaces, RegistryNames, TemplateNames           []string
	Filtered                                           bool

	Rows     []tenantRow
	Pager    ui.Pager
	Empty    *ui.Empty
	NoStacks *Problem

	Registries []registryRow
	Templates  []templateRow
}

// alarmView is a problem that needs attention.
type alarmView struct {
	query.Alarm
	Href  string
	Word  string // of the kind
	Means meaning.Situation
}

// stateChip is a state with its count, and a filter of the list.
type stateChip struct {
	ui.Pill
	Count   int
	Href    string
	Current bool
}

type tenantRow struct {
	query.Tenant
	Href, RegistryHref, TemplateHref, StacksHref string

	Pill   ui.Pill
	Stacks int // of its row, that the visitor may view
	Bad    int // of these
}

type registryRow struct {
	query.Registry
	Href string
	Pill ui.Pill
}

type templateRow struct {
	query.Template
	Href, RegistryHref string
	Pill               ui.Pill // of its rollout
	Invalid            bool
}

// tenantPills has every state of a tenant, those that need attention
// first.
var tenantPills = []struct {
	state string
	pill  ui.Pill
}{
	{query.TenantFailed, ui.NewPill(ui.ToneBad, "cross", "Failed")},
	{query.TenantConflicted, ui.NewPill(ui.ToneBad, "alert", "Conflicted")},
	{query.TenantProgressing, ui.NewPill(ui.ToneBusy, "turn", "Progressing")},
	{query.TenantNew, ui.NewPill(ui.ToneIdle, "dot", "New")},
	{query.TenantLeaving, ui.NewPill(ui.ToneWarn, "clock", "Leaving")},
	{query.TenantDeleting, ui.NewPill(ui.ToneWarn, "minus", "Deleting")},
	{query.TenantReady, ui.NewPill(ui.ToneOK, "check", "Ready")},
}

func tenantPill(state string) ui.Pill {
	for _, p := range tenantPills {
		if p.state == state {
			return p.pill
		}
	}
	return ui.NewPill(ui.ToneIdle, "dot", state)
}

// sightOf says in which of some namespaces the visitor may list a resource.
// Each is asked about once.
func sightOf(v *Visit, r access.Resource, namespaces []string) func(namespace string) bool {
	if v.Can(access.Request{Verb: "list", Resource: r}) {
		return func(string) bool { return true }
	}
	v.askTogether(accesses("list", r, namespaces))
	known := map[string]bool{}
	return func(namespace string) bool {
		may, asked := known[namespace]
		if !asked {
			may = namespace != "" && v.Can(access.Request{Verb: "list", Resource: r, Namespace: namespace})
			known[namespace] = may
		}
		return may
	}
}

// namespacesIn are the namespaces of some things, each once.
func namespacesIn[T any](things []T, of func(*T) string) []string {
	var all names
	last := ""
	for i := range things {
		if n := of(&things[i]); n != last { // they come in this order
			all.add(n)
			last = n
		}
	}
	return all.sorted()
}

// tenantsOf reduces a list to what the visitor may view and filters for.
func tenantsOf(v *Visit, list query.TenantList) tenantsView {
	d := tenantsView{
		Now: v.Now, Text: strings.TrimSpace(v.Query.Get("q")), Namespace: v.Query.Get("namespace"),
		Registry: v.Query.Get("registry"), Template: v.Query.Get("template"), State: v.Query.Get("state"),
	}
	d.Filtered = d.Text != "" || d.Namespace != "" || d.Registry != "" || d.Template != "" || d.State != "" || v.Query.Get("labels") != ""
	d.alarms(v, list.Alarms)
	sees := sightOf(v, access.ResourceTenants, namespacesIn(list.Items, func(t *query.Tenant) string { return t.Namespace }))
	counts := map[string]int{}
	chosen := make([]*query.Tenant, 0, len(list.Items))
	var namespaces, registries, templates names
	words := strings.Fields(strings.ToLower(d.Text))
	for i := range list.Items {
		t := &list.Items[i] // they are large
		if !sees(t.Namespace) {
			continue
		}
		namespaces.add(t.Namespace)
		if d.Namespace != "" && t.Namespace != d.Namespace {
			continue
		}
		registries.add(t.Registry)
		templates.add(t.Template)
		if d.Registry != "" && t.Registry != d.Registry || d.Template != "" && t.Template != d.Template || !tenantHas(t, words) {
			continue
		}
		counts[t.State]++
		if d.State == "" || t.State == d.State || d.State == notReady && t.State != query.TenantReady {
			chosen = append(chosen, t)
		}
	}
	d.Namespaces, d.RegistryNames, d.TemplateNames = namespaces.sorted(), registries.sorted(), templates.sorted()
	d.chips(v, counts)
	sortTenants(chosen, v.Query.Get("sort"))
	offset := offsetOf(v, len(chosen), pageRows)
	for _, t := range chosen[offset:min(offset+pageRows, len(chosen))] {
		d.Rows = append(d.Rows, rowOfTenant(*t))
	}
	d.Pager = ui.NewPager(v.Path, v.Query, offset, len(d.Rows), pageRows, len(chosen), "tenant")
	switch {
	case len(d.Rows) > 0:
	case d.Filtered:
		d.Empty = &ui.Empty{Title: "No matching tenants", Href: v.Path, Link: "Show all"}
	default:
		d.Empty = &ui.Empty{
			Title:   "No tenants yet",
			Text:    "A tenant is the set of objects that a template creates for one row of a table. Apply a TenantRegistry that reads the table, and a TenantTemplate with the objects for each row. terrier up --quickstart shows both.",
			Command: "kubectl explain tenantregistry.spec",
		}
		if !v.Can(access.Request{Verb: "list", Resource: access.ResourceTenants}) {
			d.Empty = &ui.Empty{Title: "No tenants that you may view", Text: "To view tenants, you need the permission to list them in their namespace. Ask the administrator of the cluster for a role that allows it."}
		}
	}
	return d
}

// notReady filters for all tenants that are not ready.
const notReady = "not-ready"

// tenantHas reports whether all words occur in what is known of a tenant.
func tenantHas(t *query.Tenant, words []string) bool {
	if len(words) == 0 {
		return true
	}
	text := strings.ToLower(strings.Join([]string{t.Namespace + "/" + t.Name, t.UID, t.Template, t.Registry, t.Reason, t.Message, t.Leaving}, "\n"))
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}

func (d *tenantsView) alarms(v *Visit, list []query.Alarm) {
	in := namespacesIn(list, func(a *query.Alarm) string { return a.Namespace })
	registries, templates := sightOf(v, access.ResourceRegistries, in), sightOf(v, access.ResourceTemplates, in)
	for _, a := range list {
		view := alarmView{Alarm: a, Word: "Registry", Means: meaning.OfTenant(a.Reason), Href: registryPath(query.Key{Namespace: a.Namespace, Name: a.Name})}
		sees := registries
		if a.Kind == query.KindTemplate {
			view.Word, view.Href, sees = "Template", templatePath(query.Key{Namespace: a.Namespace, Name: a.Name}), templates
		}
		if a.Name == "" {
			view.Href = "" // of no single object
		}
		if !sees(a.Namespace) {
			d.Hidden++
			continue
		}
		d.Alarms = append(d.Alarms, view)
	}
}

func (d *tenantsView) chips(v *Visit, counts map[string]int) {
	total := 0
	for _, n := range counts {
		total += n
	}
	add := func(state string, p ui.Pill, n int) {
		to := state
		if d.State == state {
			to = ""
		}
		d.Chips = append(d.Chips, stateChip{p, n, ui.With(v.Path, ui.Without(v.Query, "offset"), "state", to), d.State == state})
	}
	add(notReady, ui.NewPill(ui.ToneWarn, "alert", "Not ready"), total-counts[query.TenantReady])
	for _, p := range tenantPills {
		add(p.state, p.pill, counts[p.state])
	}
}

// sortTenants orders what is ordered by name already.
func sortTenants(list []*query.Tenant, by string) {
	if by != "state" && by != "since" {
		return
	}
	rank := func(state string) int {
		for i, p := range tenantPills {
			if p.state == state {
				return i
			}
		}
		return len(tenantPills)
	}
	slices.SortStableFunc(list, func(a, b *query.Tenant) int {
		if by == "state" {
			return cmp.Compare(rank(a.State), rank(b.State))
		}
		return b.Since.Compare(a.Since)
	})
}

func rowOfTenant(t query.Tenant) tenantRow {
	return tenantRow{
		Tenant: t, Pill: tenantPill(t.State), Href: tenantPath(t.Key()),
		RegistryHref: registryPath(query.Key{Namespace: t.Namespace, Name: t.Registry}),
		TemplateHref: templatePath(query.Key{Namespace: t.Namespace, Name: t.Template}),
		StacksHref:   ui.With("/stacks", nil, "labels", tenantIDLabel+"="+tenant.Label(t.UID)),
	}
}

func tenantPath(k query.Key) string   { return ui.PathOf("tenants", k.Namespace, k.Name) }
func registryPath(k query.Key) string { return ui.PathOf("registries", k.Namespace, k.Name) }
func templatePath(k query.Key) string { return ui.PathOf("templates", k.Namespace, k.Name) }

// idLabels are what the stacks of the rows have in common.
func (d *tenantsView) idLabels() []string {
	var out []string
	for _, r := range d.Rows {
		if label := tenant.Label(r.UID); label != "" {
			out = append(out, label)
		}
	}
	return out
}

// stacks counts the stacks of each row.
func (d *tenantsView) stacks(groups []query.BoardGroup) {
	of := map[string]query.BoardGroup{}
	for _, g := range groups {
		of[g.Name] = g
	}
	for i := range d.Rows {
		if label := tenant.Label(d.Rows[i].UID); label != "" {
			g := of[label]
			d.Rows[i].Stacks, d.Rows[i].Bad = g.Total, g.Counts[query.StatusFailed]+g.Counts[query.StatusLocked]
		}
	}
}

// sources lists the registries and templates that the visitor may view.
func (d *tenantsView) sources(v *Visit) error {
	if v.Backend.Estate == nil {
		return nil
	}
	registries, err := v.Backend.Estate.Registries(v.Context, "")
	if err != nil {
		return fmt.Errorf("listing registries: %w", err)
	}
	sees := sightOf(v, access.ResourceRegistries, namespacesIn(registries, func(r *query.Registry) string { return r.Namespace }))
	for _, r := range registries {
		if sees(r.Namespace) && (d.Namespace == "" || d.Namespace == r.Namespace) {
			d.Registries = append(d.Registries, registryRow{r, registryPath(r.Key()), registryPill(r)})
		}
	}
	templates, err := v.Backend.Estate.Templates(v.Context, "")
	if err != nil {
		return fmt.Errorf("listing templates: %w", err)
	}
	sees = sightOf(v, access.ResourceTemplates, namespacesIn(templates, func(t *query.Template) string { return t.Namespace }))
	for _, t := range templates {
		if sees(t.Namespace) && (d.Namespace == "" || d.Namespace == t.Namespace) {
			d.Templates = append(d.Templates, templateRow{
				t, templatePath(t.Key()), registryPath(query.Key{Namespace: t.Namespace, Name: t.Registry}), rolloutPill(t.Phase), t.Valid == "False",
			})
		}
	}
	return nil
}

// registryPill is the status of a registry.
func registryPill(r query.Registry) ui.Pill {
	switch {
	case r.Blocked != nil && !r.Blocked.Allowed:
		return ui.NewPill(ui.ToneBad, "alert", "Deletions blocked")
	case r.Suspended:
		return ui.NewPill(ui.ToneIdle, "pause", "Suspended")
	case r.Ready == "False":
		return ui.NewPill(ui.ToneBad, "cross", "Not read")
	case r.RowErrors > 0:
		return ui.NewPill(ui.ToneWarn, "alert", "Row errors")
	case r.DryRun:
		return ui.NewPill(ui.ToneIdle, "dot", "Dry run")
	case r.Ready == "True":
		return ui.NewPill(ui.ToneOK, "check", "Read")
	default:
		return ui.NewPill(ui.ToneIdle, "clock", "Not read yet")
	}
}

// rolloutPill is the status of a rollout.
func rolloutPill(phase string) ui.Pill {
	switch phase {
	case query.RolloutInProgress:
		return ui.NewPill(ui.ToneBusy, "turn", "Rolling out")
	case query.RolloutFailed:
		return ui.NewPill(ui.ToneBad, "cross", "Stopped")
	case query.RolloutComplete:
		return ui.NewPill(ui.ToneOK, "check", "Complete")
	case query.RolloutIdle:
		return ui.NewPill(ui.ToneIdle, "dot", "Idle")
	default:
		return ui.NewPill(ui.ToneIdle, "dot", phase)
	}
}

// names is a set of names.
type names map[string]bool

func (n *names) add(name string) {
	if *n == nil {
		*n = names{}
	}
	if name != "" {
		(*n)[name] = true
	}
}

func (n names) sorted() []string {
	out := make([]string, 0, len(n))
	for name := range n {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
