package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/kube/members"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/situation"
	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/web"
	"github.com/terrier-iac/terrier/internal/web/pages"
)

// tenantLists lists tenants, registries and templates from the controllers' cache:
// a thousand tenants are large, and frequent visits must not
// read them from the API server each time. Single objects, and all others, are read from
// the API server.
type tenantLists struct {
	client.WithWatch
	cache client.Reader // set once the controllers are, before the server answers
}

func (l *tenantLists) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	switch list.(type) {
	case *tenantsv1.TenantList, *tenantsv1.TenantRegistryList, *tenantsv1.TenantTemplateList:
		var o client.ListOptions
		o.ApplyOptions(opts)
		// A cache has no pages, and returns all objects at once. They are only read.
		err := l.cache.List(ctx, list, client.InNamespace(o.Namespace), labelled(o.LabelSelector), client.UnsafeDisableDeepCopy)
		if _, early := errors.AsType[*cache.ErrCacheNotStarted](err); !early {
			list.SetContinue("") // the cache marks its lists here as without pages
			return err
		}
	}
	return l.WithWatch.List(ctx, list, opts...)
}

func labelled(s labels.Selector) client.ListOption {
	if s == nil {
		s = labels.Everything()
	}
	return client.MatchingLabelsSelector{Selector: s}
}

// fillPages fills in what the pages show beside stacks: tenants, the queue, and the
// server itself.
func (p *parts) fillPages(o *web.Options, kube client.WithWatch) error {
	p.lists.WithWatch = kube
	tenants := query.NewTenants(query.New(&p.lists, p.kinds, p.records, p.Now), p.plane.Config())
	o.Tenants, o.Estate, o.Queue = tenants, tenants, query.NamedQueue{Queue: p.queue, Kinds: p.kinds}
	c, err := p.settings()
	if err != nil {
		return err
	}
	mirror, err := p.mirror()
	if err != nil {
		return err
	}
	find, err := p.engines()
	if err != nil {
		return err
	}
	probed := sandbox.Probe()
	if p.vaults, err = watchVaults(p); err != nil {
		return err
	}
	o.Overview.Vaults = p.vaults.Statuses
	if p.members != nil {
		o.Overview.Sharing = sharingOf(p.members)
	}
	o.Platform = pages.Platform{
		Started:   p.Now(),
		Isolation: pages.Isolation{Level: probed.Level.String(), Least: sandbox.Level(p.Config.Isolation).String(), Reasons: probed.Reasons},
		Engines:   (&programs{find: find, names: p.engineNames(), now: p.Now}).list,
		Mirror:    pages.Mirror{Dir: mirror, Providers: len(c.MirrorProviders)},
		Settings:  p.limitsShown(p.room()),
		Addresses: []pages.Address{
			{Name: pages.AddressAPI, URL: p.http.url}, {Name: "Artifact registry", URL: "oci://" + strings.TrimPrefix(p.http.url, "https://")},
			{Name: "Kubernetes API", URL: "https://" + p.plane.Address()},
		},
		Checks: append(pages.CheckOf("Kubernetes API", o.Ready), pages.CheckOf("Records", func(ctx context.Context) error {
			_, err := p.blobs.List(ctx, "health/") // the list is empty; only the error matters
			return err
		})...),
		MaxRuns: p.room().Runs,
	}
	if c.BreakGlass.Allowed {
		o.Platform.Glass = cmp.Or(c.BreakGlass.Lasts, time.Hour)
	}
	if a := p.Config.MetricsAddress; a != "" {
		o.Platform.Addresses = append(o.Platform.Addresses, pages.Address{Name: "Metrics", URL: "http://" + a + "/metrics"})
	}
	return nil
}

// sharingOf asks how the controllers share the stacks.
func sharingOf(m *members.Members) func(context.Context) (situation.Sharing, error) {
	return func(ctx context.Context) (situation.Sharing, error) {
		r, err := members.ReportOf(ctx, m)
		out := situation.Sharing{Unowned: r.Unowned, Moving: r.Moving}
		for _, s := range r.Members {
			out.Controllers = append(out.Controllers, situation.Controller{Name: s.ID, URL: s.URL, Leads: s.ID == r.Leader, Shards: s.Shards, Lease: s.Lease, Stale: s.Stale, Seen: s.Seen})
		}
		return out, err
	}
}

// limitsShown are the most important limits, with their flags.
func (p *parts) limitsShown(room schedule.Limits) []pages.Setting {
	mib := func(n int64) string { return fmt.Sprintf("%d MiB", n) }
	all := []pages.Setting{
		{Name: "Runs at once", Value: fmt.Sprint(room.Runs), Flag: "--max-runs"},
		{Name: "Runs of one tenant", Value: fmt.Sprint(room.PerTenant), Flag: "--max-runs-per-tenant"},
		{Name: "Memory for all runs", Value: mib(room.Memory >> 20), Flag: "--memory-for-runs"},
		{Name: "Memory of one run", Value: mib(int64(p.Config.RunMemory)), Flag: "--run-memory"},
		pages.DurationSetting("Time of one run", p.Config.RunTimeout, "--run-timeout"),
		{Name: "Network of runs", Value: p.Config.Network, Flag: "--run-network"},
	}
	if room.PerTenant == 0 {
		all[1].Value = "same as runs at once"
	}
	for _, c := range schedule.Classes() {
		if n := room.PerClass[c]; n > 0 {
			all = append(all, pages.Setting{Name: "Runs of the class " + c.String(), Value: fmt.Sprint(n), Flag: "--max-runs-per-class"})
		}
	}
	if room.Memory == 0 {
		all[2].Value = "no limit"
	}
	return all
}

// programs are the engines of runs. Reading the version of an engine
// starts it, so the answer is cached.
type programs struct {
	find  func(context.Context, string) (engine.Engine, error)
	names []string
	now   func() time.Time

	mu    sync.Mutex
	at    time.Time
	known []pages.Engine
}

const programsKept = 10 * time.Minute

func (p *programs) list(ctx context.Context) []pages.Engine {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.at.IsZero() && p.now().Sub(p.at) < programsKept {
		return p.known
	}
	known := make([]pages.Engine, 0, len(p.names)+1)
	for _, name := range append([]string{""}, p.names...) {
		shown := pages.Engine{Name: name}
		if e, err := p.find(ctx, name); err != nil {
			shown.Trouble = err.Error()
		} else {
			shown.Version, shown.Advice = e.String(), engine.Advisory(e.Version)
		}
		known = append(known, shown)
	}
	if ctx.Err() == nil { // a canceled request does not mean that engines are missing
		p.known, p.at = known, p.now()
	}
	return known
}

// engineNames are the names by which stacks select an engine.
func (o Options) engineNames() []string {
	c := o.asPods()
	if c == nil {
		return engineNames(o.Config.Engines)
	}
	return engineNames(slices.DeleteFunc(slices.Clone(c.Engines), func(e string) bool { return !strings.Contains(e, "=") }))
}

// engineNames are the names of NAME=/PATH.
func engineNames(entries []string) []string {
	var names []string
	for _, e := range entries {
		name, _, _ := strings.Cut(e, "=")
		names = append(names, name)
	}
	return names
}
