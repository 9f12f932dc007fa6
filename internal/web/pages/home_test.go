package pages

import (
	"context"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/schedule"
)

// counted are figures of two hours ago.
type counted struct{}

func (counted) Over(scope access.Scope, p query.Period) ([]query.Figure, time.Time) {
	var out []query.Figure
	for i := p.Count - 1; i >= 0; i-- {
		out = append(out, query.Figure{Start: now.Truncate(p.Bucket).Add(-time.Duration(i) * p.Bucket)})
	}
	f := &out[len(out)-2]
	f.Checks, f.Plans, f.Applies, f.Failed, f.PlanTime, f.ApplyTime, f.Drifted, f.Failing = 40, 3, 2, 1, 43*1500, 2*90_000, 2, 1
	return out, f.Start
}

// guarded has a registry whose deletions are blocked.
type guarded struct {
	query.TenantReader
	lists int
}

func (g *guarded) List(context.Context, query.TenantFilter) (query.TenantList, error) {
	g.lists++
	return query.TenantList{
		Alarms: []query.Alarm{{Kind: "TenantRegistry", Namespace: "apps", Name: "customers", Reason: "DeletionBlocked", Message: "12 tenants would go " + hostile, Since: now.Add(-2 * time.Hour)}},
		Items:  []query.Tenant{{Namespace: "apps", Name: "acme", State: query.TenantReady}, {Namespace: "apps", Name: "bolt", State: query.TenantFailed}},
	}, nil
}

type busy struct{ query.Queue }

func (busy) Backlog() schedule.Backlog {
	return schedule.Backlog{Running: 3, MaxRuns: 4, Waiting: 7, OldestSince: now.Add(-5 * time.Minute)}
}

func homeVisit(t *testing.T, address string) (*Visit, *guarded) {
	t.Helper()
	e := town()
	e.rows = append(e.rows, row("apps", "retried", query.StatusFailed, func(r *query.Row) {
		r.Since, r.Failures, r.FailsSince = now.Add(-time.Second), 9, now.Add(-15*time.Minute)
	}))
	v, g := visitor(t, e, address), &guarded{}
	v.Backend.Figures, v.Backend.Tenants, v.Backend.Queue = counted{}, g, busy{}
	return v, g
}

// The first page names what needs the visitor, each with its age and a link to the
// place, and draws what runs did.
func TestHomeSaysWhatNeedsTheVisitor(t *testing.T) {
	for _, period := range []string{"", "?period=week", "?period=month", "?period=nonsense"} {
		v, _ := homeVisit(t, "/"+period)
		p, err := Home(v)
		if err != nil {
			t.Fatal(err)
		}
		d := parse(t, v, p)
		text := d.text()
		for _, want := range []string{"customers", "blocked for 2h", "apps/retried", "failing for 15m", "pending for 40m", "drifted for 26h", "3 of 4 in use", "7 runs queued, the oldest for 5m", "Average duration", "1m30s"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the page does not say %q: %s", period, want, text)
			}
		}
		for _, href := range []string{"/registries/apps/customers", "/stacks/apps/retried", "/stacks/apps/checkout/plan?digest=sha256%3Aplan-main-4f1c9ab2d7", "/stacks/net/vpc/drift", "/approvals", "/queue"} {
			if len(d.all(func(n *html.Node) bool { return n.DataAtom == atom.A && attr(n, "href") == href })) == 0 {
				t.Errorf("%s: no link leads to %s", period, href)
			}
		}
		if pictures := d.all(func(n *html.Node) bool { return n.DataAtom == atom.Svg && attr(n, "role") == "img" }); len(pictures) != 4 {
			t.Errorf("%s: %d charts, want 4", period, len(pictures))
		}
	}
}

// Tenants are large: they are counted once for all visits of a moment.
func TestHomeCountsTenantsNowAndThen(t *testing.T) {
	v, g := homeVisit(t, "/")
	for _, later := range []time.Duration{0, time.Second, tenantsEvery - time.Second, tenantsEvery + time.Second} {
		v.Now = now.Add(later)
		if _, err := Home(v); err != nil {
			t.Fatal(err)
		}
	}
	if g.lists != 2 {
		t.Errorf("tenants were listed %d times, want twice", g.lists)
	}
}

// A visitor sees nothing of namespaces whose objects that visitor may not list.
func TestHomeHidesWhatTheVisitorMayNotSee(t *testing.T) {
	v, _ := homeVisit(t, "/")
	v.Scopes, v.Can = scoped(access.Scope{}), func(access.Request) bool { return false }
	p, err := Home(v)
	if err != nil {
		t.Fatal(err)
	}
	text := parse(t, v, p).text()
	for _, hidden := range []string{"customers", "checkout", "retried", "acme"} {
		if strings.Contains(text, hidden) {
			t.Errorf("the page names %q", hidden)
		}
	}
	if !strings.Contains(text, "There are no stacks yet") {
		t.Errorf("the page does not say what to do: %s", text)
	}
}
