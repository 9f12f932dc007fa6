package pages

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
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

// A reading that failed is not repeated by each visit of a moment, and a visitor who
// leaves does not end it for the others.
func TestWhatHomeKeeps(t *testing.T) {
	var k kept[int]
	reads, failed := 0, errors.New("down")
	look := func(ctx context.Context, after time.Duration, err error) error {
		_, got := k.look(ctx, now.Add(after), time.Minute, func(ctx context.Context) (int, error) {
			reads++
			return reads, errors.Join(err, ctx.Err())
		})
		return got
	}
	for _, after := range []time.Duration{0, failureKept - 1} {
		if err := look(t.Context(), after, failed); !errors.Is(err, failed) || reads != 1 {
			t.Errorf("after %s: %v and %d readings, want the error and one", after, err, reads)
		}
	}
	for _, after := range []time.Duration{failureKept, time.Minute} {
		if err := look(t.Context(), after, nil); err != nil || reads != 2 {
			t.Errorf("after %s: %v and %d readings, want two", after, err, reads)
		}
	}
	started, end, read := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	leaving, leave := context.WithCancel(t.Context())
	var shared kept[int]
	slow := func(ctx context.Context) (int, error) {
		close(started)
		<-end
		return 7, ctx.Err()
	}
	go func() {
		_, err := shared.look(leaving, now, time.Minute, slow)
		read <- err
	}()
	<-started
	leave()
	if err := <-read; !errors.Is(err, context.Canceled) {
		t.Errorf("the visitor who left: %v", err)
	}
	close(end)
	if n, err := shared.look(t.Context(), now, time.Minute, func(context.Context) (int, error) { return 0, failed }); n != 7 || err != nil {
		t.Errorf("the next visitor gets %d, %v, want the reading that began", n, err)
	}
}

// Permissions for sources are checked only where a source fails.
func TestHomeChecksPermissionsForFailingSourcesOnly(t *testing.T) {
	source := func(namespace, ready string) query.Source {
		return query.Source{Kind: "GitRepository", Namespace: namespace, Name: "code", Ready: ready}
	}
	for name, tt := range map[string]struct {
		sources []query.Source
		want    []string
	}{
		"no source fails": {[]query.Source{source("a", "True"), source("b", "True")}, nil},
		"one fails":       {[]query.Source{source("a", "True"), source("b", "False")}, []string{"", "b"}},
	} {
		v, _ := homeVisit(t, "/")
		var mu sync.Mutex
		asked := map[string]bool{}
		v.Can = func(r access.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			if r.Resource == access.ResourceSources {
				asked[r.Namespace] = true
			}
			return false
		}
		v.Backend.Sources = sourcesOf{&county{sources: tt.sources}}
		if _, err := Home(v); err != nil {
			t.Fatal(err)
		}
		if got := slices.Sorted(maps.Keys(asked)); !slices.Equal(got, tt.want) {
			t.Errorf("%s: permissions are checked in %q, want %q", name, got, tt.want)
		}
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
