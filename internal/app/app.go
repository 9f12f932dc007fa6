// Package app wires everything: it turns a Config into running controllers,
// runners and servers, and stops them again. It
// decides which part talks to which, and nothing else.
//
// Start reading at Run.
package app

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/app/forge"
	"github.com/terrier-iac/terrier/internal/app/identities"
	"github.com/terrier-iac/terrier/internal/app/installation"
	"github.com/terrier-iac/terrier/internal/app/leader"
	"github.com/terrier-iac/terrier/internal/app/metrics"
	"github.com/terrier-iac/terrier/internal/app/packages"
	"github.com/terrier-iac/terrier/internal/app/reads"
	"github.com/terrier-iac/terrier/internal/app/store"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/controller"
	"github.com/terrier-iac/terrier/internal/controller/modules"
	"github.com/terrier-iac/terrier/internal/controller/policies"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/failpoint"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/kube/members"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/usedby"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/vault/monitor"
)

// ControlPlane starts a Kubernetes API server in this process.
type ControlPlane interface {
	Start(ctx context.Context, dir, address string, log *slog.Logger) (Running, error)
}

// Running is a control plane that answers.
type Running interface {
	Config() *rest.Config // as its administrator
	Kubeconfig() string   // path
	Address() string
	Certificate() (serving tls.Certificate, ca []byte, err error) // for other servers of the same host: the newest, of the same authorities
	Wait() error
}

// Ready is printed once requests are answered.
type Ready struct {
	Ready      bool   `json:"ready"`
	Kubeconfig string `json:"kubeconfig"`
	API        string `json:"api"`
	HTTP       string `json:"http"`
	Metrics    string `json:"metrics,omitempty"`
	DataDir    string `json:"dataDir"`
	Isolation  string `json:"isolation"`

	Example *forge.Info `json:"example,omitempty"` // the servers of the example with scripts
}

// Options are what Run needs besides its Config.
type Options struct {
	Config       Config
	ControlPlane ControlPlane
	Cluster      *ClusterConfig // nil if the control plane is in this process
	Pods         *PodsConfig    // nil if runs are processes
	Builds       BuildsConfig   // of images of stacks
	Program      string         // the name of this program in messages
	Version      string
	Stdout       io.Writer // for Ready
	Stderr       io.Writer // for progress and logs
	Now          func() time.Time
	Environ      func(string) string
	Ready        func(context.Context, Ready, *rest.Config) error // called once, after Ready was printed
}

// parts are what Run opened, in the order in which it closes them.
type parts struct {
	Options

	// Both are made once: the controllers work by them, and pages show them.
	settings func() (controller.Config, error)
	engines  func() (findEngine, error)

	log           *slog.Logger
	level         slog.Level
	runs          runs
	opened        *store.Records // of blobs, without fence and counter
	blobs         blob.Store
	artifacts     *source.Store
	cache         *source.Cache
	modules       *modules.Reader
	restored      records.Archives // archives that were restored from their records
	keys          *installation.Keys
	key           secret.Text // of digests, sessions and pulls
	auditLog      *auditLog
	audits        controller.AuditLog // where entries are recorded: auditLog, or that of the leader
	destroys      policies.Ledger     // of auditLog, or of the leader
	plane         plane
	stamping      *kube.Stamping // of the users of changes
	meters        *metrics.Platform
	scraped       string // where metrics are served; empty if nowhere
	http          *server
	forge         *forge.Forge // the servers of an example; nil if they are not wanted
	kinds         query.Kinds  // of stacks
	leftOut       query.Kinds  // those that are not reconciled
	named         []string     // namespaces that the operator named, also those that are closed; empty if none are
	closed        []string     // namespaces that are not reconciled, for lack of rights
	board         *query.Board
	uses          *usedby.Index // which stacks use modules and providers
	figures       *query.Figures
	records       *query.Blobs
	queue         runQueue
	members       *members.Members // nil unless this controller shares stacks with others
	others        others           // what it says to them
	alerts        alerts
	leader        *leader.Leader // of the controllers that share stacks; nil if this one is alone
	lists         tenantLists
	webhookSecret string // the end of the path at which we tell an API server of registries and policies; empty if we do not
	judges        atomic.Pointer[policies.Policies]
	bindings      *access.Bindings
	packages      *packages.Packages     // the registry of modules and providers; nil without one
	reads         *reads.Registry        // as runs reach it
	identities    *identities.Identities // of runs at other systems; nil without an issuer
	clusterUID    string                 // empty if it is not known
	syncs         bool                   // Secrets are written with what is in a Vault
	health        health
	vaults        *monitor.Monitor // of the servers of OpenBao and Vault that the flags name
}

// runQueue is the queue of runs: of this controller alone, or of several.
type runQueue interface {
	controller.Queue
	query.Queue
}

// Run starts everything and blocks until ctx ends. Applies that are active then
// are finished by their supervisors.
func Run(ctx context.Context, o Options) (err error) {
	defaults := kinds.Defaults{ScriptInterval: o.Config.SyncInterval}
	p := &parts{Options: o, kinds: defaults.All()}
	p.settings, p.engines = sync.OnceValues(func() (controller.Config, error) { return p.Options.settings() }), sync.OnceValues(func() (findEngine, error) { return findEngines(p.Options, p.log) })
	if err := p.level.UnmarshalText([]byte(o.Config.LogLevel)); err != nil {
		return usage("--log-level: %w", err)
	}
	if err := o.Config.check(o.Cluster != nil, o.Environ); err != nil {
		return err
	}
	if o.Cluster != nil {
		if err := o.Cluster.check(); err != nil {
			return err
		}
		if p.kinds, p.leftOut, err = defaults.Of(o.Cluster.groups()); err != nil {
			return usage("--kinds: %w", err)
		}
	}
	if err := o.checkShare(); err != nil {
		return err
	}
	if o.Pods != nil {
		if err := errors.Join(o.Pods.check(o.Config.HTTPAddress, o.hosts()), o.Pods.checkIsolation(o.Config.Isolation), o.Builds.check(o)); err != nil {
			return err
		}
	}
	if err := failpoint.Arm(o.Environ(failpoint.Env)); err != nil {
		return fault.New(fault.Invalid, "Usage", err)
	}
	p.log = slog.New(slog.NewTextHandler(o.Stderr, &slog.HandlerOptions{Level: p.level}))
	bridgeLogs(p.log)
	if p.Config.DataDir, err = filepath.Abs(o.Config.DataDir); err != nil {
		return err
	}
	if err := checkPrograms(ctx, p.Options, p.engines); err != nil {
		return err
	}
	if o.Cluster == nil {
		p.progress("starting the control plane in %s", p.Config.DataDir)
	} else {
		stop, failed := p.health.serve(o.Cluster.Health)
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	// The control plane outlives the call until everything else has ended; only
	// its start can be called off.
	planeCtx, stopPlane := context.WithCancel(context.WithoutCancel(ctx))
	defer stopPlane()
	started := context.AfterFunc(ctx, stopPlane)
	if p.plane.Running, err = o.ControlPlane.Start(planeCtx, p.Config.DataDir, o.Config.APIAddress, p.log); err != nil {
		if o.Cluster == nil && ctx.Err() != nil && errors.Is(err, context.Canceled) {
			p.progress("stopped while the control plane was starting: the next start begins again, and nothing is lost")
			return nil
		}
		return err
	}
	started()
	defer func() {
		stopPlane() // last: what ends before it may still write
		err = errors.Join(err, p.plane.Wait())
	}()
	ctx, done := p.plane.whileLeading(ctx)
	defer done()
	if err := leaveOut(ctx, p); err != nil {
		return err
	}
	defer func() {
		if p.opened != nil {
			err = errors.Join(err, p.opened.Close())
		}
	}()
	if err := p.open(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.runs.Close()) }()
	if o.Cluster != nil && o.asPods() == nil { // pods outlive this process
		defer drain(p.runs, o.Cluster.Drain, o)
	}
	auditing := audit.Options{Now: p.Now}
	if p.Config.Records != "" {
		auditing.Copy = copies{p.blobs, p.plane.leading}
	}
	if p.auditLog, err = openAuditLog(ctx, p.dir("audit"), auditing, p.members != nil, p.log); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.auditLog.Close()) }()
	if p.audits == nil {
		p.audits = p.auditLog.Log
	}
	p.destroys = policies.NewHours(p.auditLog.Log, p.Now)
	defer func() { err = errors.Join(err, p.packages.Close()) }()
	defer sayRunsAtEnd(ctx, p.runs, p.Options)()
	err = p.serve(ctx)
	if cause := context.Cause(ctx); errors.Is(cause, errNotLeading) {
		err = errors.Join(cause, err)
	}
	return err
}

// open opens the records, and what is kept on disk.
func (p *parts) open(ctx context.Context) (err error) {
	if err := os.MkdirAll(p.dir("secrets"), 0o700); err != nil {
		return err
	}
	lease := leaseOfControllers // terrier up reserves it
	if p.Cluster != nil {
		lease = p.Cluster.Lease
	}
	if lease != "" {
		lease = access.ServerNamespace + "/" + lease
	}
	if p.opened, err = store.Open(ctx, store.Options{
		Records: p.Config.Records, Key: p.Config.RecordsKey, KMS: p.Config.RecordsKMS, Adopt: p.Config.AdoptRecords, Allow: p.Config.AllowHosts, Dir: p.dir, Namespace: access.ServerNamespace,
		Lease: lease, InCluster: p.Cluster != nil, REST: p.plane.rest(), Environ: p.Environ, Leads: p.plane.leads, Now: p.Now, Progress: p.progress,
	}); err != nil {
		return err
	}
	p.queue = schedule.New(p.room().Always(), schedule.Clock{
		Now: p.Now, After: func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop },
	})
	if p.meters, err = metrics.New(p.Version, p.plane.leading); err != nil {
		return err
	}
	if err := errors.Join(p.meters.RecordsChecked(p.opened.Checked), p.meters.RecordsToReseal(p.opened.ToReseal)); err != nil {
		return err
	}
	p.blobs = fencedBlobs{p.meters.Records(p.opened), p.plane.leads, p.opened.Held} // a refused write is not counted
	if p.keys, err = p.plane.keys(p.Config.DataDir, p.Now); err != nil {
		return err
	}
	p.key = p.keys.Digests()
	if err := errors.Join(openReads(p), openIdentities(p)); err != nil {
		return err
	}
	if p.artifacts, err = source.OpenStore(p.dir("artifacts")); err != nil {
		return err
	}
	p.modules, p.restored = modules.New(p.dir("scratch")), records.Archives{Dir: p.dir("scratch")}
	if p.members, err = openMembers(p.plane, p.opened.Sealing, p.Now, p.log); err != nil {
		return err
	}
	if p.runs, err = p.openRuns(ctx); err != nil {
		return err
	}
	return p.plane.division().note()
}
