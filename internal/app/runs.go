package app

import (
	"context"
	"strings"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/app/identities"
	"github.com/terrier-iac/terrier/internal/app/reads"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/identity"
	"github.com/terrier-iac/terrier/internal/issuer"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/registry/runtoken"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/source"
)

// runs is the runner of this process.
type runs interface {
	runner.Runner
	Close() error // the runs themselves go on
}

// openRuns opens the runner, which finds the runs of an earlier process. It is the
// one place that chooses the runner.
func (p *parts) openRuns(ctx context.Context) (runs, error) {
	if c := p.asPods(); c != nil {
		return p.openPods(ctx, c)
	}
	binary, err := p.supervisor()
	if err != nil {
		return nil, err
	}
	return runner.New(runner.Config{Dir: p.dir("runner"), Binary: binary, Contents: p.contents(), MinLevel: p.Config.Isolation, Now: p.Now, Log: p.log})
}

// openReads makes what runs reach the registry by, which is opened later.
func openReads(p *parts) error {
	key, err := p.keys.Derive(runtoken.Purpose)
	if err != nil {
		return err
	}
	p.reads, err = reads.Open(reads.Options{
		Key: key, Names: p.Config.RegistryHosts, Direct: p.Config.RunDirect, Pods: p.asPods() != nil, Account: p.account(), Now: p.Now,
		Mirror:  func() bool { return p.packages.Mirrors() && p.Config.mirrorsRuns() },
		Server:  func() (string, []byte) { return p.http.url, p.http.ca }, // no run starts before it listens
		Current: func(key string) (*runner.Report, error) { return p.runs.Current(key) },
	})
	return err
}

// identity is what the operator says of the identities of runs.
func (c Config) identity() identities.Config {
	return identities.Config{Issuer: c.IdentityIssuer, Rules: c.IdentityRules, Life: c.IdentityLife}
}

// openIdentities makes what gives runs their identities.
func openIdentities(p *parts) error {
	if p.Config.IdentityIssuer == "" {
		return nil
	}
	key, err := p.keys.Derive(issuer.Purpose)
	if err != nil {
		return err
	}
	namespaces, err := access.NewNamespaces(p.plane.Config())
	if err != nil {
		return err
	}
	p.identities, err = identities.Open(identities.Options{
		Config: p.Config.identity(), Key: key, Store: p.blobs, Pods: p.asPods() != nil, Label: p.Config.TenantLabel, Object: stackOf(p.kinds),
		Audit:   func(ctx context.Context, e audit.Entry) error { return p.audits.Record(ctx, e) },
		Current: func(key string) (*runner.Report, error) { return p.runs.Current(key) },
		Here:    addressesOf(p.plane.Config().Host),
		Cluster: func() string { return p.clusterUID }, Namespace: namespaces.Namespace,
		Server: func() (string, []byte) { return p.http.url, p.http.ca }, // no run starts before it listens
		Now:    p.Now, Log: p.log,
	})
	return err
}

// addressesOf are the addresses of the API server of a cluster: the one that this program uses,
// and those that every pod there has.
func addressesOf(host string) []string {
	all := []string{"https://kubernetes.default.svc", "https://kubernetes.default.svc.cluster.local", "https://kubernetes.default", "https://kubernetes"}
	if strings.HasPrefix(host, "https://") {
		return append(all, host)
	}
	return append(all, "https://"+host)
}

// stackOf names the stack of a run as the audit log does.
func stackOf(kinds query.Kinds) func(identity.Run) audit.Object {
	return func(run identity.Run) audit.Object {
		o := audit.Object{Namespace: run.Namespace, Name: run.Stack, UID: run.StackUID}
		for _, d := range kinds.All() {
			if strings.ToLower(dialect.KindOf(d)) == run.StackKind {
				o.Kind = d.Kind().Kind
				if kinds.Word(d) != "" {
					o.Group = d.Kind().Group
				}
			}
		}
		return o
	}
}

// mirrorsRuns reports whether runs take providers from the mirror of the registry. Where an
// operator keeps runs from registries, that takes a mirror whose settings the operator wrote: the
// default ones have every provider of the public registries.
func (c Config) mirrorsRuns() bool {
	return c.Registry && c.RunMirror && (c.Registries || c.RegistryConfig != "")
}

// contents implements runner.Contents with the cache of artifacts and the
// engines of this machine.
type contents struct {
	archives func() *source.Cache // there once the controllers are
	restored records.Archives
	platform func() (runner.Platform, error)
	engines  func() (findEngine, error)
}

func (p *parts) contents() contents {
	return contents{func() *source.Cache { return p.cache }, p.restored, p.platform, p.engines}
}

// Archive returns the path of an artifact that the controller fetched, or of one
// that it restored from the record of an apply.
func (c contents) Archive(_ context.Context, digest string) (string, error) {
	if path, err := c.archives().Path(digest); err == nil {
		return path, nil
	}
	return c.restored.Path(digest)
}

// Platform implements runner.Contents.
func (c contents) Platform() (runner.Platform, error) { return c.platform() }

// Engine finds an engine, which may have been replaced since the last run.
func (c contents) Engine(ctx context.Context, asked string) (engine.Engine, error) {
	find, err := c.engines()
	if err != nil {
		return engine.Engine{}, err
	}
	return find(ctx, asked)
}
