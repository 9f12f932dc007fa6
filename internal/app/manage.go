package app

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	notificationv1beta3 "github.com/fluxcd/notification-controller/api/v1beta3"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	policyv1alpha1 "github.com/terrier-iac/terrier/api/policy/v1alpha1"
	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/app/metrics"
	"github.com/terrier-iac/terrier/internal/app/packages"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/controller"
	"github.com/terrier-iac/terrier/internal/controller/aftersteps"
	"github.com/terrier-iac/terrier/internal/controller/gitstate"
	"github.com/terrier-iac/terrier/internal/controller/policies"
	"github.com/terrier-iac/terrier/internal/controller/policies/interpreter"
	"github.com/terrier-iac/terrier/internal/controller/prerequisites"
	"github.com/terrier-iac/terrier/internal/controller/provenance"
	"github.com/terrier-iac/terrier/internal/controller/secretsync"
	"github.com/terrier-iac/terrier/internal/controller/tenants"
	"github.com/terrier-iac/terrier/internal/controller/tenants/admission"
	"github.com/terrier-iac/terrier/internal/encryption"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/machine"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/review"
	"github.com/terrier-iac/terrier/internal/review/rego/worker"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

// stopManager is how long reconciles may continue after the stop was requested.
const stopManager = 2 * time.Second

// reconciles is how many stacks are reconciled at once. No reconcile waits for a run,
// so few are enough.
const reconciles = 4

// artifactBytes bounds one artifact of a source.
const artifactBytes = 512 << 20

func newScheme(stacks query.Kinds) *runtime.Scheme {
	s := runtime.NewScheme()
	for _, d := range stacks.All() {
		utilruntime.Must(d.AddToScheme(s))
	}
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, sourcev1.AddToScheme, tenantsv1.AddToScheme, policyv1alpha1.AddToScheme, notificationv1beta3.AddToScheme} {
		utilruntime.Must(add(s)) // fails only if two packages claim one kind
	}
	return s
}

// bridgeLogs sends the logs of the Kubernetes libraries to our logger.
func bridgeLogs(log *slog.Logger) {
	ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))
	klog.SetSlogLogger(slog.New(demoted{log.Handler()}))
}

// demoted makes the warnings of client-go information. They are about connections
// that it opens again by itself, as at a restart, and about answers of the API
// server to requests of this program: no user can act on either. Its errors stay.
type demoted struct{ slog.Handler }

// Enabled implements slog.Handler.
func (d demoted) Enabled(ctx context.Context, l slog.Level) bool {
	return d.Handler.Enabled(ctx, demote(l))
}

// Handle implements slog.Handler.
func (d demoted) Handle(ctx context.Context, r slog.Record) error {
	r.Level = demote(r.Level)
	return d.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (d demoted) WithAttrs(attrs []slog.Attr) slog.Handler {
	return demoted{d.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (d demoted) WithGroup(name string) slog.Handler { return demoted{d.Handler.WithGroup(name)} }

func demote(l slog.Level) slog.Level {
	if l == slog.LevelWarn {
		return slog.LevelInfo
	}
	return l
}

// weaveOf reads policies of the Weave policy agent, nil if they do not count: the control plane
// of "terrier up" has no other program that evaluates them.
func weaveOf(c *ClusterConfig) func(map[string]any) (policies.Weave, error) {
	if c != nil && !c.Weave {
		return nil
	}
	return interpreter.Weave
}

// tellerOf returns the policies that webhooks warn of, nil until there are some.
func tellerOf(judges *atomic.Pointer[policies.Policies]) func() admission.Teller {
	return func() admission.Teller {
		if p := judges.Load(); p != nil {
			return p
		}
		return nil
	}
}

// manager makes the manager that runs the controllers. Its cache drops fields that no
// controller reads.
func (p *parts) manager(ctx context.Context) (ctrl.Manager, error) {
	stop := stopManager
	skip := true
	grants, err := p.openGrants(ctx)
	if err != nil {
		return nil, err
	}
	options := ctrl.Options{
		Scheme:                  newScheme(p.kinds),
		Logger:                  logr.FromSlogHandler(p.log.Handler()),
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		GracefulShutdownTimeout: &stop,
		Cache: cache.Options{
			DefaultTransform: slim, DefaultNamespaces: p.namespaces(),
			ByObject:    map[client.Object]cache.ByObject{&tenantsv1.Tenant{}: {Transform: tenants.Slim}},
			NewInformer: grants.informer,
		},
		Controller: config.Controller{SkipNameValidation: &skip}, // several platforms in one test process
		Client:     client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{}}},
	}
	if p.syncs {
		for _, o := range secretsync.Slimmed() {
			options.Cache.ByObject[o] = cache.ByObject{Transform: secretsync.Slim}
		}
	}
	if r := p.plane.replica(); r != nil {
		r.elect(&options)
	}
	mgr, err := ctrl.NewManager(p.plane.rest(), options)
	if err != nil {
		return nil, err
	}
	var stacks []client.Object
	for _, d := range p.kinds.All() {
		stacks = append(stacks, d.New())
	}
	if p.syncs {
		stacks = append(stacks, secretsync.Followed())
	}
	return mgr, grants.follow(ctx, mgr, stacks)
}

// slim drops unused fields from cached objects. Objects of which only
// the metadata is watched are kept to notice changes, and, if they contain
// the row of a tenant, to find the tenant.
func slim(o any) (any, error) {
	if m, ok := o.(*metav1.PartialObjectMetadata); ok {
		kept := &metav1.PartialObjectMetadata{
			TypeMeta:   m.TypeMeta,
			ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion},
		}
		if m.Namespace == "" {
			kept.Labels = m.Labels // of a namespace, by which policies select
		}
		if strings.HasPrefix(m.Name, tenantapi.RowSecret("")) {
			kept.OwnerReferences = m.OwnerReferences
		}
		return kept, nil
	}
	return cache.TransformStripManagedFields()(o)
}

// controllers registers the controllers of stacks, sources and tenants.
func (p *parts) controllers(ctx context.Context, mgr ctrl.Manager, live client.Client) error {
	out, err := p.outbound()
	if err != nil {
		return err
	}
	if p.cache, err = source.NewCache(p.dir("cache"), out, artifactBytes); err != nil {
		return err
	}
	p.modules.Archives = p.cache
	if p.Config.Sources {
		if err := p.setupSources(mgr, out); err != nil {
			return err
		}
	}
	if err := p.setupTenants(mgr, live); err != nil {
		return err
	}
	if err := setupSecrets(p, mgr, live); err != nil {
		return err
	}
	find, err := p.engines()
	if err != nil {
		return err
	}
	settings, err := p.settings()
	if err != nil {
		return err
	}
	uid, formerly, err := p.opened.Cluster(ctx)
	if err != nil {
		return err
	}
	p.clusterUID = uid
	settings.ClusterUID, settings.Formerly = uid, append(formerly, p.Config.AdoptStates...)
	webhooks, err := p.Config.webhooks(out)
	if err != nil {
		return err
	}
	lingering, _ := p.runs.(runner.Lingering) // processes leave nothing
	ended, backlog := counting(p.board, p.figures), func() (schedule.Backlog, bool) { return p.queue.Backlog(), true }
	if p.leader != nil {
		ended, backlog = p.leader.Ran, p.leader.Queue.Measured
	}
	evaluators := worker.New(p.dir("scratch", "policies"), machine.Memory(os.DirFS("/")), p.Now)
	if err := mgr.Add(kube.Everywhere(evaluators.Run)); err != nil {
		return err
	}
	asked := interpreter.New(mgr.GetClient(), p.kinds, p.cache, p.blobs, p.dir("scratch", "policies"), evaluators)
	signatures := provenance.Reader{Key: provenance.Key{Text: p.key}, Own: p.Config.Sources}
	judges, err := policies.Setup(ctx, mgr, policies.Options{
		Programs: asked, Foresee: asked.Foresee, Weave: weaveOf(p.Cluster), Live: live, Dialects: p.kinds, TenantLabel: p.Config.TenantLabel, Leads: p.plane.leader, Now: p.Now, Log: p.log,
		Signatures: signatures, Recorded: controller.Recorded(p.blobs),
	})
	if err != nil {
		return err
	}
	p.judges.Store(judges)
	if judges != nil {
		if err := asked.Watch(ctx, mgr, judges.Changed); err != nil {
			return err
		}
	}
	cipher := encryption.Cipher{Keys: p.opened.StateKeys}
	inGit := &gitstate.States{Client: live, Cipher: cipher, Out: out, KnownHosts: p.Config.KnownHosts, Scratch: p.dir("scratch", "states"), Now: p.Now,
		Hosts: p.Config.StateGitHosts, AsAccount: p.Config.ReadAsAccount}
	if err := source.OpenScratch(inGit.Scratch); err != nil {
		return err
	}
	p.records.InGit = inGit
	besidePasses := gitstate.NewBeside(inGit)
	hosts := &aftersteps.Hosts{Client: live, Out: out, KnownHosts: p.Config.KnownHosts, Scratch: p.dir("scratch", "hosts"), Now: p.Now}
	if err := source.OpenScratch(hosts.Scratch); err != nil {
		return err
	}
	stacks := &controller.Stacks{
		StateKeys: p.opened.StateKeys,
		Client:    mgr.GetClient(), Live: live, Accounts: kube.NewAccounts(p.plane.rest(), live.Scheme(), live.RESTMapper()), Grants: kube.Grants{Client: live}, Dialects: p.kinds, LeftOut: p.leftOut,
		Runner: timedRuns{fencedRuns{p.runs, p.plane.leads}, ended}, Lingering: lingering, Artifacts: p.cache, Modules: p.modules, Archives: p.restored,
		States: kube.States{Client: live, Overflow: p.blobs, Now: p.Now, Seen: kube.NewSeen(), Cipher: cipher, Git: besidePasses}, Blobs: p.blobs, Ours: p.opened.Ours, Engine: find,
		Events: p.alerts.recorder(mgr, kube.FieldManager, p.Now), Audit: p.audits, Destroys: p.destroys, Reviewers: review.Reviewers{Webhooks: webhooks}, Policies: judges, Signatures: signatures, Stamps: p.stamping, Queue: p.queue,
		Config: settings, Key: p.key, Now: p.Now, Log: p.log, Metrics: p.meters.Registry, Hosts: hosts,
	}
	if stacks.Systems, err = systemsOf(p); err != nil {
		return err
	}
	besidePasses.Wake = stacks.StateAnswered
	if err := mgr.Add(kube.Everywhere(besidePasses.Run)); err != nil {
		return err
	}
	if stacks.Vaults, err = openVaults(p, live); err != nil {
		return err
	}
	if stacks.Vaults != nil {
		if err := mgr.Add(kube.Everywhere(stacks.Vaults.Run)); err != nil {
			return err
		}
	}
	if p.packages != nil {
		stacks.Registry = p.reads.Of
	}
	if p.identities != nil {
		stacks.Identities = p.identities
		if stacks.Logins, err = openLogins(p); err != nil {
			return err
		}
		if err := mgr.Add(leaderOnly(p.identities.Run)); err != nil {
			return err
		}
	}
	p.packages.FollowObjects(packages.Cluster{Objects: mgr.GetClient(), Live: live, Events: p.alerts.recorder(mgr, "terrier-registry", p.Now)})
	if stacks.Images, err = imageBuilder(p.Options, p.plane.rest(), p.dir("scratch", "images"), out, p.cache); err != nil {
		return err
	}
	if err := errors.Join(
		mgr.Add(pruning(p.cache, p.Now, p.log)),
		mgr.Add(leaderOnly(func(ctx context.Context) error {
			if p.leader != nil {
				p.leader.Queue.Lead(p.room().Always())
				p.auditLog.lead(ctx, live, p.Version)
			}
			return p.auditLog.follow(ctx)
		})),
		mgr.Add(kube.Everywhere(func(ctx context.Context) error { return p.opened.Watch(ctx, p.log) })),
		mgr.Add(leaderOnly(func(ctx context.Context) error { return p.opened.Reseal(ctx, p.log, writersOf(p.members)) })),
		mgr.Add(kube.Everywhere(func(ctx context.Context) error { p.keys.Keep(ctx, p.log); return nil })),
		mgr.Add(kube.Everywhere(p.bindings.Follow)),
		mgr.Add(kube.Everywhere(p.vaults.Run)),
		mgr.Add(kube.Everywhere(p.http.renew)),
		mgr.Add(kube.Everywhere(p.packages.Run)),
		mgr.Add(leaderOnly(p.packages.Follow)),
		mgr.Add(kube.Everywhere(p.uses.Run)),
		p.others.follow(mgr),
		askLeader(mgr, p.leader),
		keepBoard(mgr, p.kinds, p.board, p.records, p.log),
		mgr.Add(keepFigures(p.figures, p.board, p.blobs, p.log)),
		p.alerts.run(mgr),
	); err != nil {
		return err
	}
	if err := p.meters.Measure(mgr, metrics.Sources{Board: p.board, Backlog: backlog, Dir: p.dir, Slots: slotsOf(p.room()), Vaults: p.vaults.Statuses, Now: p.Now, Log: p.log}); err != nil {
		return err
	}
	judges.Wake(stacks.Wake)
	p.lists.cache = mgr.GetCache()
	if p.members != nil {
		stacks.Shared, stacks.Moves, stacks.Leads = true, p.runs.(podRuns), p.plane.leader
	}
	return errors.Join(follow(mgr, p.members, stacks), stacks.Setup(mgr, p.runs.Ended(), reconciles))
}

// pruning drops downloaded archives that were not used for a day. The archives for a
// destroy are in the records.
func pruning(c *source.Cache, now func() time.Time, log *slog.Logger) kube.Everywhere {
	return func(ctx context.Context) error {
		tick := time.NewTicker(time.Hour)
		defer tick.Stop()
		for {
			if err := c.Prune(now().Add(-24*time.Hour), func(string) bool { return false }); err != nil {
				log.Warn("artifact cache not pruned", "err", err) // retried in an hour
			}
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
	}
}

// outbound is the client for all requests to other systems. The operator
// named the addresses that are allowed besides.
func (p *parts) outbound(besides ...string) (*outbound.Client, error) {
	// Our own artifacts and registry are on loopback, and are allowed, as are the servers of
	// an example.
	allow, err := outbound.ParseAllow(append([]string{p.http.listener.Addr().String(), strings.TrimPrefix(p.http.url, "https://")}, slices.Concat(besides, p.forge.Addresses(), p.Config.AllowHosts)...)...)
	if err != nil {
		return nil, err
	}
	policy, err := outboundPolicy(p)
	if err != nil {
		return nil, err
	}
	policy.Allow = allow
	return outbound.New(policy), nil
}

// systemsOf are what prerequisites ask: not our own servers, which are on loopback.
func systemsOf(p *parts) (*prerequisites.Systems, error) {
	policy, err := outboundPolicy(p)
	if err != nil {
		return nil, err
	}
	return prerequisites.NewSystems(policy, p.Config.prerequisiteHosts())
}

// outboundPolicy is what holds for all requests to other systems, without exceptions.
func outboundPolicy(p *parts) (outbound.Policy, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		return outbound.Policy{}, fmt.Errorf("reading the system's certificate authorities: %w", err)
	}
	if !roots.AppendCertsFromPEM(p.http.ca) {
		return outbound.Policy{}, errors.New("the control plane's certificate authority holds no certificate")
	}
	denied, err := outbound.ParseNetworks(p.Config.DenyNetworks...)
	if err != nil {
		return outbound.Policy{}, err
	}
	return outbound.Policy{
		Deny: denied, Private: outbound.ServiceNetwork(p.Environ("KUBERNETES_SERVICE_HOST")),
		PlainHTTP: p.Config.PlainHTTP, Roots: roots, Count: p.meters.Answered,
	}, nil
}

// blobBytes reads whole records for the service.
type blobBytes struct{ blob.Store }

func (b blobBytes) Get(ctx context.Context, key string) ([]byte, error) {
	r, err := b.Store.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}
