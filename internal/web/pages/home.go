package pages

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/web/chart"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// homeEvery is how often the first page refreshes: the queue and the figures have
// no change events.
const homeEvery = 15 * time.Second

// needsShown is how many stacks of one kind the first page names.
const needsShown = 5

// Home shows what needs the visitor, how the stacks are, and what runs did over time.
func Home(v *Visit) (Page, error) {
	if v.Backend.Board == nil {
		return Page{}, fault.New(fault.Later, "NotReady", errors.New("this server does not watch the stacks"))
	}
	all, err := v.page(query.BoardQuery{Limit: 1})
	if err != nil {
		return Page{}, err
	}
	d := homeView{Now: v.Now, Stacks: all.Total}
	if all.Total == 0 && v.Unasked() == 0 {
		d.Empty = noStacks("/stacks", false)
	}
	d.guards(v)
	d.sources(v)
	for _, n := range stackNeeds {
		if err := d.need(v, n, all.Counts[n.status]); err != nil {
			return Page{}, err
		}
	}
	d.Chips = statusChips("/stacks", nil, query.BoardQuery{}, all.Counts)
	d.queue(v)
	d.charts(v)
	return Page{Title: "Home", Section: "home", Template: "home", Live: Live{Stacks: true, Every: homeEvery, Cursor: all.Cursor}, Data: d}, nil
}

// homeView is what the page shows.
type homeView struct {
	Now    time.Time
	Stacks int
	Empty  *ui.Empty
	Needs  []need
	Chips  []chip

	Queue   bool
	Slots   use
	Waiting int
	Oldest  time.Time

	Tenants    []stateChip
	TenantsAll int
	NoTenants  *Problem
	NoSources  *Problem

	Charted bool
	Since   time.Time // when the oldest figure was recorded, if that is later than the period begins
	Periods []planChip
	Charts  []chart.Chart
}

// need is one kind of thing that needs a user.
type need struct {
	Title string
	Pill  ui.Pill
	Word  string // before its age
	Count int
	All   string // the address of the list
	Rows  []needRow
}

// needRow is one of them.
type needRow struct {
	Name  string
	Href  string
	Kind  string
	Text  string
	Delta *query.PlanInfo
	Since time.Time
}

// More is how many are not named.
func (n need) More() int { return n.Count - len(n.Rows) }

// stackNeed is a status of stacks that needs a user.
type stackNeed struct {
	status query.Status
	title  string
	all    string
	row    func(query.Row) needRow
}

// stackNeeds are in the order of the page.
var stackNeeds = []stackNeed{
	{query.StatusFailed, "Failing stacks", "/stacks?status=failed", func(r query.Row) needRow { return needRow{Text: whyNotReady(&r)} }},
	{query.StatusLocked, "Locked states", "/stacks?status=locked", func(r query.Row) needRow { return needRow{Text: whyNotReady(&r)} }},
	{query.StatusPending, "Approvals", "/approvals", func(r query.Row) needRow {
		d := decideOf(r.Stack, "", "")
		return needRow{Href: d.See, Text: planCause(r.Stack, d.Plan), Delta: &d.Plan}
	}},
	{query.StatusDrifted, "Drift", "/drift", func(r query.Row) needRow {
		return needRow{Href: stackPath(r.Key(), tabDrift), Text: headline(r.Message)}
	}},
}

// need adds the stacks of one status, those that have it for the longest time first.
func (d *homeView) need(v *Visit, n stackNeed, count int) error {
	if count == 0 {
		return nil
	}
	found, err := v.page(query.BoardQuery{Statuses: []query.Status{n.status}, Sort: "since", Limit: needsShown})
	if err != nil {
		return err
	}
	out := need{Title: n.title, Pill: statusPill(n.status), Word: lasting[n.status], Count: count, All: n.all}
	for _, r := range found.Items {
		row := n.row(r)
		row.Name, row.Since = r.Key().String(), r.StatusSince()
		if row.Href == "" {
			row.Href = stackPath(r.Key())
		}
		out.Rows = append(out.Rows, row)
	}
	d.Needs = append(d.Needs, out)
	return nil
}

// guards adds what holds registries and templates up, and counts the tenants.
func (d *homeView) guards(v *Visit) {
	if v.Backend.Tenants == nil {
		return
	}
	sums, err := v.Backend.tenants.look(v.Context, v.Now, tenantsEvery, func(ctx context.Context) (tenantSums, error) {
		return sumTenants(ctx, v.Backend.Tenants)
	})
	if fault.Reason(err, "") == query.ReasonNoTenants {
		return
	}
	if d.NoTenants = problemOf("Tenants cannot be shown", err); err != nil {
		return
	}
	var t tenantsView
	t.alarms(v, sums.alarms)
	out := need{Title: "Blocked tenants", Pill: ui.NewPill(ui.ToneBad, "alert", "Blocked"), Word: "blocked for", Count: len(t.Alarms), All: "/tenants"}
	for _, a := range t.Alarms[:min(len(t.Alarms), needsShown)] {
		out.Rows = append(out.Rows, needRow{Name: a.Namespace + "/" + a.Name, Kind: a.Word, Href: a.Href, Text: a.Reason + ": " + headline(a.Message), Since: a.Since})
	}
	if out.Count > 0 {
		d.Needs = append(d.Needs, out)
	}
	d.tenants(v, sums)
}

// sources adds the sources that cannot be fetched, those that most stacks use first.
func (d *homeView) sources(v *Visit) {
	if v.Backend.Sources == nil {
		return
	}
	list, err := v.Backend.sources.look(v.Context, v.Now, sourcesEvery, func(ctx context.Context) ([]query.Source, error) {
		return v.Backend.Sources.List(ctx, access.Everything)
	})
	if d.NoSources = problemOf("Sources cannot be shown", err); err != nil {
		return
	}
	list = slices.DeleteFunc(slices.Clone(list), func(s query.Source) bool { return sourceState(s) != sourceFailing })
	if len(list) == 0 {
		return // no permission needs a check
	}
	sees := sightOf(v, access.ResourceSources, namespacesIn(list, func(s *query.Source) string { return s.Namespace }))
	var failing []sourceRow
	for _, s := range list {
		if sees(s.Namespace) {
			s.UsedBy = slices.DeleteFunc(slices.Clone(s.UsedBy), func(k query.Key) bool { return !v.Scope().Of(k.Kind).Has(k.Namespace) })
			failing = append(failing, rowOfSource(s))
		}
	}
	if len(failing) == 0 {
		return
	}
	sortSources(failing)
	out := need{Title: "Failing sources", Pill: failing[0].Pill, Word: lasting[query.StatusFailed], Count: len(failing), All: ui.With("/sources", nil, "state", sourceFailing)}
	for _, s := range failing[:min(len(failing), needsShown)] {
		text := s.Means
		if text == "" {
			text = headline(s.Message)
		}
		if n := len(s.UsedBy); n > 0 {
			text += " Used by " + query.Count(n, "stack") + "."
		}
		out.Rows = append(out.Rows, needRow{Name: s.Namespace + "/" + s.Name, Kind: s.Kind, Href: s.Href, Text: text, Since: s.Since})
	}
	d.Needs = append(d.Needs, out)
}

func (d *homeView) tenants(v *Visit, sums tenantSums) {
	sees := sightOf(v, access.ResourceTenants, sums.namespaces)
	counts := map[string]int{}
	for namespace, states := range sums.counts {
		if !sees(namespace) {
			continue
		}
		for state, n := range states {
			counts[state] += n
			d.TenantsAll += n
		}
	}
	for _, p := range tenantPills {
		if counts[p.state] > 0 {
			d.Tenants = append(d.Tenants, stateChip{Pill: p.pill, Count: counts[p.state], Href: ui.With("/tenants", nil, "state", p.state)})
		}
	}
}

func (d *homeView) queue(v *Visit) {
	if v.Backend.Queue == nil {
		return
	}
	b := v.Backend.Queue.Backlog()
	d.Queue, d.Slots, d.Waiting, d.Oldest = true, use{b.Running, b.MaxRuns}, b.Waiting, b.OldestSince
}

// periodNames are the periods as a user chooses them.
var periodNames = map[string]string{"day": "24 hours", "week": "7 days", "month": "30 days"}

// charts draws what runs did in the period that the visitor chose.
func (d *homeView) charts(v *Visit) {
	if v.Backend.Figures == nil {
		return
	}
	periods := query.Periods()
	chosen := periods[0]
	for _, p := range periods {
		if p.Name == v.Query.Get("period") {
			chosen = p
		}
	}
	for i, p := range periods {
		to := p.Name
		if i == 0 {
			to = ""
		}
		d.Periods = append(d.Periods, planChip{Label: periodNames[p.Name], Tone: ui.ToneIdle, Href: ui.With(v.Path, nil, "period", to), Current: p.Name == chosen.Name})
	}
	figures, since := v.Backend.Figures.Over(v.Scope(), chosen)
	d.Charted = true
	if len(figures) > 0 && since.After(figures[0].Start) {
		d.Since = since
	}
	d.Charts = chart.Of(figures, chosen)
}

// tenantSums are the numbers of tenants, by namespace and state, and what blocks them.
type tenantSums struct {
	namespaces []string
	counts     map[string]map[string]int
	alarms     []query.Alarm
}

// kept is what was read last, for all visitors: the first page refreshes with every
// change of a stack, and to read all of a kind is expensive. The zero value is ready.
type kept[T any] struct {
	mu    sync.Mutex
	at    time.Time
	value T
	err   error
	reads cache.Flight[struct{}, T]
}

// failureKept is how long an error is returned before the next attempt.
const failureKept = 5 * time.Second

// readLimit bounds one reading: it ends with no visitor.
const readLimit = 20 * time.Second

// look returns the value, and reads it again if it is older than every. Visitors who
// ask at the same time wait for one reading, which does not end with the first of them.
func (k *kept[T]) look(ctx context.Context, now time.Time, every time.Duration, read func(context.Context) (T, error)) (T, error) {
	if value, ok, err := k.recent(now, every); ok {
		return value, err
	}
	return k.reads.Do(ctx, struct{}{}, func(ctx context.Context) (T, error) {
		if value, ok, err := k.recent(now, every); ok { // another reading ended in between
			return value, err
		}
		ctx, cancel := context.WithTimeout(ctx, readLimit)
		defer cancel()
		value, err := read(ctx)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.at, k.value, k.err = now, value, err
		return value, err
	})
}

// recent is what the last reading returned; false if it is too old.
func (k *kept[T]) recent(now time.Time, every time.Duration) (value T, ok bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		every = failureKept
	}
	age := now.Sub(k.at)
	return k.value, !k.at.IsZero() && age >= 0 && age < every, k.err
}

func sumTenants(ctx context.Context, tenants query.TenantReader) (tenantSums, error) {
	list, err := tenants.List(ctx, query.TenantFilter{})
	if err != nil {
		return tenantSums{}, err
	}
	sums := tenantSums{counts: map[string]map[string]int{}, alarms: slices.Clone(list.Alarms)}
	for i := range list.Items {
		t := &list.Items[i] // they are large
		if sums.counts[t.Namespace] == nil {
			sums.counts[t.Namespace] = map[string]int{}
			sums.namespaces = append(sums.namespaces, t.Namespace)
		}
		sums.counts[t.Namespace][t.State]++
	}
	return sums, nil
}
