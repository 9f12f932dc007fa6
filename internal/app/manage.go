package app

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
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
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/controller"
	"github.com/terrier-iac/terrier/internal/controller/tenants"
	dialects "github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	dialect "github.com/terrier-iac/terrier/internal/dialect/tenants"
	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/machine"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// runsShare is the default share of the memory of this machine for all runs
// together. The rest is for this program, the control plane
// and the file cache of the kernel.
const runsShare = 0.7

// stopManager is how long reconciles may continue after the stop was requested.
const stopManager = 2 * time.Second

// reconciles is how many stacks are reconciled at once. No reconcile waits for a run,
// so few are enough.
const reconciles = 4

// artifactBytes bounds one artifact of a source.
const artifactBytes = 512 << 20

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, sourcev1.AddToScheme, v1alpha2.AddToScheme, tenantsv1.AddToScheme, notificationv1beta3.AddToScheme} {
		utilruntime.Must(add(s)) // fails only if two packages claim one kind
	}
	return s
}

// bridgeLogs sends the logs of the Kubernetes libraries to our logger.
func bridgeLogs(log *slog.Logger) {
	ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))
	klog.SetSlogLogger(log)
}

// manager makes the manager that runs the controllers. Its cache drops fields that no
// controller reads.
func (p *parts) manager() (ctrl.Manager, error) {
	stop := stopManager
	skip := true
	return ctrl.NewManager(p.rest(), ctrl.Options{
		Scheme:                  newScheme(),
		Logger:                  logr.FromSlogHandler(p.log.Handler()),
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		GracefulShutdownTimeout: &stop,
		Cache: cache.Options{
			DefaultTransform: slim, DefaultNamespaces: p.namespaces(),
			ByObject: map[client.Object]cache.ByObject{&tenantsv1.Tenant{}: {Transform: tenants.Slim}},
		},
		Controller: config.Controller{SkipNameValidation: &skip}, // several platforms in one test process
		Client:     client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{}}},
	})
}

// namespaces are those that are reconciled, nil for all.
func (p *parts) namespaces() map[string]cache.Config {
	if p.Cluster == nil || len(p.Cluster.Namespaces) == 0 {
		return nil
	}
	named := map[string]cache.Config{}
	for _, n := range p.Cluster.Namespaces {
		named[n] = cache.Config{}
	}
	return named
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
		if strings.HasPrefix(m.Name, dialect.RowSecret("")) {
			kept.OwnerReferences = m.OwnerReferences
		}
		return kept, nil
	}
	return cache.TransformStripManagedFields()(o)
}

// controllers registers the controllers of stacks, sources and tenants.
func (p *parts) controllers(mgr ctrl.Manager, live client.Client) error {
	out, err := p.outbound()
	if err != nil {
		return err
	}
	if p.cache, err = source.NewCache(p.dir("cache"), out, artifactBytes); err != nil {
		return err
	}
	if p.Config.Sources {
		if err := p.setupSources(mgr, out); err != nil {
			return err
		}
	}
	if err := p.setupTenants(mgr, live); err != nil {
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
	webhooks, err := p.Config.webhooks(out)
	if err != nil {
		return err
	}
	stacks := &controller.Stacks{
		Client: mgr.GetClient(), Live: live, Dialects: dialects.NewRegistry(infra.Dialect{}),
		Runner: timedRuns{fencedRuns{p.runs, p.leads}, p.board}, Artifacts: p.cache, Modules: p.modules(),
		States: kube.States{Client: live, Overflow: p.blobs, Now: p.Now, Seen: kube.NewSeen()}, Blobs: p.blobs, Engine: find,
		Events: p.events(mgr, kube.FieldManager), Audit: p.journal, Webhooks: webhooks, Queue: p.queue,
		Config: settings, Key: p.key, Now: p.Now, Log: p.log, Metrics: p.metrics,
	}
	if err := errors.Join(mgr.Add(manager.RunnableFunc(p.prune)), mgr.Add(manager.RunnableFunc(p.anchors)), mgr.Add(manager.RunnableFunc(p.bindings.Follow)), p.keepBoard(mgr), p.notices(mgr)); err != nil {
		return err
	}
	if err := p.measure(mgr, p.queue.Backlog); err != nil {
		return err
	}
	p.lists.cache = mgr.GetCache()
	return stacks.Setup(mgr, p.runs.Ended(), reconciles)
}

// prune drops downloaded archives that were not used for a day, until ctx
// ends. The archives for a destroy are in the records.
func (p *parts) prune(ctx context.Context) error {
	tick := time.NewTicker(time.Hour)
	defer tick.Stop()
	for {
		if err := p.cache.Prune(p.Now().Add(-24*time.Hour), func(string) bool { return false }); err != nil {
			p.log.Warn("artifact cache not pruned", "err", err) // retried in an hour
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// events returns the recorder of events: as core/v1 events, which the API's
// users and their tools read, and as notifications for alerts.
func (p *parts) events(mgr ctrl.Manager, component string) recorder {
	//lint:ignore SA1019 the newer recorder writes events.k8s.io, which kubectl shows without counts
	return p.recorder(mgr, component, kube.Events{Recorder: mgr.GetEventRecorderFor(component)})
}

// outbound is the client for all requests to other systems. The operator
// named the addresses that are allowed besides.
func (p *parts) outbound(besides ...string) (*outbound.Client, error) {
	// Our own artifacts and registry are on loopback, and are allowed.
	allow, err := outbound.ParseAllow(append([]string{p.http.listener.Addr().String(), strings.TrimPrefix(p.http.url, "https://")}, append(besides, p.Config.AllowHosts...)...)...)
	if err != nil {
		return nil, err
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("reading the system's certificate authorities: %w", err)
	}
	if !roots.AppendCertsFromPEM(p.http.ca) {
		return nil, errors.New("the control plane's certificate authority holds no certificate")
	}
	return outbound.New(outbound.Policy{Allow: allow, PlainHTTP: p.Config.PlainHTTP, Roots: roots, Count: p.meters.answered}), nil
}

// findEngines returns a function that finds the engine for every run: the engine may
// be replaced meanwhile.
func (p *parts) findEngines() (func(context.Context, string) (engine.Engine, error), error) {
	known, err := namedEngines(p.Config.Engines)
	if err != nil {
		return nil, err
	}
	finder := &engine.Finder{Chosen: p.Config.Engine, Path: p.Environ("PATH"), Run: output, Known: known}
	if exe, err := os.Executable(); err == nil {
		finder.Beside = filepath.Dir(exe)
	}
	var warned sync.Map
	return func(ctx context.Context, name string) (engine.Engine, error) {
		e, err := finder.Named(ctx, name)
		if err != nil {
			return e, err
		}
		if _, said := warned.LoadOrStore(e.String(), true); !said {
			if advice := engine.Advisory(e.Version); advice != "" {
				p.log.Warn("engine version", "engine", e.String(), "advice", advice)
			}
		}
		return e, nil
	}, nil
}

// output runs a program and returns its output.
func output(ctx context.Context, path string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var out, complaint bytes.Buffer
	proc, err := sandbox.Start(ctx, sandbox.Command{Path: path, Args: args, Env: []string{"CHECKPOINT_DISABLE=1"}, Dir: "/", Stdout: &out, Stderr: &complaint})
	if err != nil {
		return nil, err
	}
	exit, err := proc.Wait()
	if err == nil && exit.Code != 0 {
		err = fmt.Errorf("it ended with %d: %.200s", exit.Code, complaint.String())
	}
	return out.Bytes(), err
}

// room is the number of runs, and the memory for them, of this machine.
func (p *parts) room() schedule.Limits {
	l := schedule.Limits{Runs: p.Config.MaxRuns, PerTenant: p.Config.MaxTenantRuns, Memory: int64(p.Config.RunsMemory) << 20}
	if l.Memory == 0 {
		// After a restart runs may be active, which are counted: the memory that is
		// free now does not matter.
		l.Memory = int64(float64(machine.Memory(os.DirFS("/"))) * runsShare)
	}
	return l
}

// readSettings returns the operator's settings for all stacks.
func (p *parts) readSettings() (controller.Config, error) {
	c := controller.Config{
		CrossNamespace: p.Config.CrossNamespace, TenantLabel: p.Config.TenantLabel,
		Network: p.Config.Network, HostNetwork: p.Config.HostNetwork, MinLevel: p.Config.Isolation,
		NoReattach: !p.Config.Reuse, StackMetrics: p.Config.StackMetrics, Patience: controller.Patience,
		BreakGlass: controller.BreakGlass{Allowed: p.Config.Glass, Lasts: p.Config.GlassLasts},
		Limits: runner.Limits{
			Init: p.Config.RunTimeout, Plan: p.Config.RunTimeout, Apply: p.Config.RunTimeout, Grace: p.Config.RunGrace,
			Memory: int64(p.Config.RunMemory) << 20, Processes: p.Config.RunProcesses, FileBytes: int64(p.Config.RunFile) << 20,
		},
	}
	if p.Config.Quickstart {
		estate := p.dir(estateDir)
		if err := errors.Join(os.MkdirAll(estate, 0o700), sandbox.ChownWork(estate)); err != nil {
			return c, fmt.Errorf("creating the estate of the quickstart: %w", err)
		}
	}
	mirror, err := p.mirror()
	if err != nil || mirror == "" {
		return c, err
	}
	c.MirrorProviders, err = workdir.MirrorProviders(os.DirFS(mirror))
	return c, err
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
