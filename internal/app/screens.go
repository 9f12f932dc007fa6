package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/web"
	"github.com/terrier-iac/terrier/internal/web/pages"
)

// tenantLists lists tenants and what they come from out of the controllers' cache:
// a thousand tenants hold a thousand templates, and whoever looks at them often
// must not have them read anew each time. One object, and all else, is asked of
// the API server.
type tenantLists struct {
	client.WithWatch
	cache client.Reader // set once the controllers are, before the server answers
}

// List implements client.Reader.
func (l *tenantLists) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	switch list.(type) {
	case *tenantsv1.TenantList, *tenantsv1.TenantRegistryList, *tenantsv1.TenantTemplateList:
		var o client.ListOptions
		o.ApplyOptions(opts)
		// A cache has no pages, and gives all at once. What it gives is only read.
		err := l.cache.List(ctx, list, client.InNamespace(o.Namespace), labelled(o.LabelSelector), client.UnsafeDisableDeepCopy)
		if _, early := errors.AsType[*cache.ErrCacheNotStarted](err); !early {
			list.SetContinue("") // it says that there are no pages in the place where others say that there are more
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

// screens fills in what is shown beside stacks: tenants, the queue, and what the
// server is.
func (p *parts) screens(o *web.Options, kube client.WithWatch) error {
	p.lists.WithWatch = kube
	tenants := query.NewTenants(query.New(&p.lists, p.records, p.Now), p.plane.Config())
	o.Tenants, o.Estate, o.Queue = tenants, tenants, p.queue
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
	o.Platform = pages.Platform{
		Started:   p.Now(),
		Isolation: pages.Isolation{Level: probed.Level.String(), Least: sandbox.Level(p.Config.Isolation).String(), Reasons: probed.Reasons},
		Engines:   (&programs{find: find, names: engineNames(p.Config.Engines), now: p.Now}).list,
		Mirror:    pages.Mirror{Dir: mirror, Providers: len(c.MirrorProviders)},
		Settings:  p.limitsShown(p.room()),
		Addresses: []pages.Address{
			{Name: pages.AddressAPI, URL: p.http.url}, {Name: "Registry of artifacts", URL: "oci://" + strings.TrimPrefix(p.http.url, "https://")},
			{Name: "Kubernetes API", URL: "https://" + p.plane.Address()},
		},
		Checks: append(pages.CheckOf("Kubernetes API", o.Ready), pages.CheckOf("Records", func(ctx context.Context) error {
			_, err := p.blobs.List(ctx, "health/") // nothing is there; that it can be said is what matters
			return err
		})...),
		MaxRuns: p.room().Runs,
	}
	if c.Glass.Allowed {
		o.Platform.Glass = cmp.Or(c.Glass.Lasts, time.Hour)
	}
	if a := p.Config.MetricsAddress; a != "" {
		o.Platform.Addresses = append(o.Platform.Addresses, pages.Address{Name: "Metrics", URL: "http://" + a + "/metrics"})
	}
	return nil
}

// limitsShown are the limits that people ask about, with the flags that set them.
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
		all[1].Value = "as many as there are slots"
	}
	if room.Memory == 0 {
		all[2].Value = "no limit"
	}
	return all
}

// programs are the engines that runs may drive. Asking one for its version
// starts it, so an answer is kept for a while.
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
	if ctx.Err() == nil { // whoever went away has not found out that engines are missing
		p.known, p.at = known, p.now()
	}
	return known
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
