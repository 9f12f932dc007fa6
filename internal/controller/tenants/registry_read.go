package tenants

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/types"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/rows"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

const (
	firstReadRetry = 5 * time.Second // doubled with each failure, up to the interval
	readOverrun    = time.Second     // a read ends by itself after its timeout
)

// rowReader reads the rows of registries when it is time to. The reads themselves go on
// beside the passes: registry_beside.go.
type rowReader struct {
	Options
	metrics *registryMetrics
	wake    *wake
	beside  *beside
}

// due reports whether the rows have to be read: the interval is over, the registry
// has changed, a user asks for a read, or a user allowed deletions, which must
// still be what the rows ask for.
func (c *rowReader) due(l *registryPass) bool {
	m, a := l.memory, l.obj.Annotations
	m.mu.Lock()
	notified := m.now
	m.mu.Unlock()
	b := l.obj.Status.Blocked
	allowing := b != nil && b.Token != "" && a[tenantsv1.AnnotationAllowDeletions] == b.Token
	asking := allowing || a[tenantsv1.AnnotationSyncNow] != l.obj.Status.LastHandledSync
	return notified || m.generation != l.obj.Generation || !c.Now().Before(m.next) || asking && m.asked != asked(l.obj)
}

// asked are the requests of users. A request that failed is not retried with every
// pass.
func asked(obj *tenantsv1.TenantRegistry) string {
	return obj.Annotations[tenantsv1.AnnotationSyncNow] + "\n" + obj.Annotations[tenantsv1.AnnotationAllowDeletions]
}

// keep keeps the result of a read.
func (c *rowReader) keep(l *registryPass, r *reading) {
	m := l.memory
	l.fresh = true
	m.asked, m.permit = r.asked, r.permit
	c.metrics.queried(l.obj, c.Now(), r.err)
	interval := tenantapi.Interval(l.obj)
	if m.err = r.err; r.err != nil {
		m.fails++
		m.generation = l.obj.Generation
		m.next = c.Now().Add(min(interval, firstReadRetry<<min(m.fails-1, 10)))
		return
	}
	found, faults := tenant.Rows(tenantapi.Mapping(l.obj), r.snapshot)
	m.read = tenant.Read{OK: true, Time: r.began, Rows: found, Errors: faults, Total: len(r.snapshot.Rows), Mark: r.snapshot.Mark, LastMark: r.last, Notes: r.snapshot.Notes}
	m.fails, m.generation, m.sync = 0, l.obj.Generation, r.sync
	m.next = c.Now().Add(spread(interval, m.uid, r.began))
}

// lastMark is the high-water mark that a read must not be less than; empty for none.
// Another spec may name another column.
func lastMark(obj *tenantsv1.TenantRegistry) string {
	if r := obj.Status.LastRead; r != nil && obj.Status.ObservedGeneration == obj.Generation {
		return r.HighWaterMark
	}
	return ""
}

// spread is an interval, or up to a tenth less, so that registries that were
// created together do not query together.
func spread(interval time.Duration, uid types.UID, at time.Time) time.Duration {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s/%d", uid, at.UnixNano())
	return interval - time.Duration(h.Sum32()%1000)*interval/10_000
}

// query prepares one complete read, which is bounded in time. What a user has to correct
// is an error at once.
func (c *rowReader) query(ctx context.Context, l *registryPass) (func(context.Context) (tenant.Snapshot, error), error) {
	if l.obj.Spec.Source.Type == tenantapi.SourceInventory {
		return c.directories(l)
	}
	config, err := c.config(ctx, l.obj)
	if err != nil {
		return nil, err
	}
	c.wake.listen(l.obj, config)
	key, columns := string(l.obj.UID), tenantapi.Mapping(l.obj).Columns()
	return func(ctx context.Context) (tenant.Snapshot, error) {
		ctx, cancel := context.WithTimeout(ctx, config.Timeout+readOverrun)
		defer cancel()
		return c.Rows.Read(ctx, key, *config, columns)
	}, nil
}

// directories prepares the read of the tenants of an inventory. Its source wakes the
// registry.
func (c *rowReader) directories(l *registryPass) (func(context.Context) (tenant.Snapshot, error), error) {
	c.wake.listen(l.obj, nil)
	if c.Inventories == nil {
		return nil, fault.New(fault.Invalid, "", errors.New("spec.source.type: this platform has no sources to read an inventory from"))
	}
	within, most := limitsOf(l.obj)
	obj := l.obj.DeepCopy() // the pass goes on to change its own
	return func(ctx context.Context) (tenant.Snapshot, error) {
		ctx, cancel := context.WithTimeout(ctx, within+readOverrun)
		defer cancel()
		return c.Inventories.Read(ctx, obj, most)
	}, nil
}

// longestRead bounds the timeout that a registry chooses.
const longestRead = 10 * time.Minute

// limitsOf are how long a read may take, and how many rows it may have.
func limitsOf(obj *tenantsv1.TenantRegistry) (time.Duration, int) {
	s := obj.Spec.Source
	within, most := rows.DefaultTimeout, rows.DefaultMaxRows
	if s.Timeout != nil && s.Timeout.Duration > 0 {
		within = min(s.Timeout.Duration, longestRead)
	}
	if s.MaxRows != nil {
		most = int(*s.MaxRows)
	}
	return within, most
}

// config is the configuration of a registry's database. Secrets are read each time,
// so that a password can be changed.
func (c *rowReader) config(ctx context.Context, obj *tenantsv1.TenantRegistry) (*rows.Config, error) {
	out, server, err := configOf(obj)
	if err != nil {
		return nil, err
	}
	if server == nil {
		out.Path = c.file(out.Path)
		return out, nil
	}
	return out, c.secrets(ctx, out, obj.Namespace, server)
}

// configOf is the configuration of a registry's database without the values of
// Secrets. The server names the Secrets, and is nil for a file.
func configOf(obj *tenantsv1.TenantRegistry) (*rows.Config, *tenantsv1.Server, error) {
	s := obj.Spec.Source
	out := &rows.Config{Kind: rows.Kind(s.Type), HighWaterMark: s.HighWaterMark}
	out.Timeout, out.MaxRows = limitsOf(obj)
	var server *tenantsv1.Server
	switch {
	case s.Type == "mysql" && s.MySQL != nil:
		server = s.MySQL
	case s.Type == "postgresql" && s.PostgreSQL != nil:
		p := s.PostgreSQL
		out.Channel = p.Channel
		server = &tenantsv1.Server{
			Host: p.Host, Port: p.Port, Username: p.Username, PasswordRef: p.PasswordRef, Database: p.Database, Selection: p.Selection, TLS: p.TLS,
		}
	case s.Type == "sqlite" && s.SQLite != nil:
		out.Table, out.Query, out.Path = s.SQLite.Table, s.SQLite.Query, s.SQLite.Path
		return out, nil, nil
	default:
		return nil, nil, fault.New(fault.Invalid, "", fmt.Errorf("spec.source: type %s without spec.source.%s", s.Type, s.Type))
	}
	out.Host, out.Port, out.User, out.Database, out.Table, out.Query = server.Host, int(server.Port), server.Username, server.Database, server.Table, server.Query
	if server.TLS != nil {
		out.TLS = &rows.TLS{ServerName: server.TLS.ServerName}
	}
	return out, server, nil
}

// secrets adds the values of the Secrets of a server.
func (c *rowReader) secrets(ctx context.Context, out *rows.Config, namespace string, s *tenantsv1.Server) error {
	password, err := c.key(ctx, namespace, "passwordRef", s.PasswordRef)
	if err != nil {
		return err
	}
	out.Password = secret.New(string(password))
	if s.TLS == nil {
		return nil
	}
	if out.TLS.CA, err = c.key(ctx, namespace, "tls.caRef", s.TLS.CARef); err != nil {
		return err
	}
	if out.TLS.Cert, err = c.key(ctx, namespace, "tls.certRef", s.TLS.CertRef); err != nil {
		return err
	}
	key, err := c.key(ctx, namespace, "tls.keyRef", s.TLS.KeyRef)
	out.TLS.Key = secret.New(string(key))
	return err
}

// key reads one key of a Secret. A missing key is an error: an empty password must
// not be sent to the server.
func (c *rowReader) key(ctx context.Context, namespace, field string, ref *tenantsv1.SecretRef) ([]byte, error) {
	if ref == nil {
		return nil, nil
	}
	data, _, err := kube.ReadSecret(ctx, c.Live, types.NamespacedName{Namespace: namespace, Name: ref.Name})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	value, ok := data[ref.Key]
	if !ok {
		return nil, fault.New(fault.Missing, "", fmt.Errorf("%s: Secret %s has no key %q", field, ref.Name, ref.Key))
	}
	return value, nil
}

// file is the path of a local database. A relative path is searched below each
// directory that registries may use; opening the file checks that it is in one of
// them.
func (c *rowReader) file(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	for _, dir := range c.SQLiteDirs {
		full := filepath.Join(dir, path)
		if _, err := os.Stat(full); err == nil {
			return full
		}
	}
	if len(c.SQLiteDirs) > 0 {
		return filepath.Join(c.SQLiteDirs[0], path)
	}
	return path
}

// rowGone notes that the Secret with the row of a Tenant is gone, so that it is
// written again.
func (c *Registries) rowGone(registry types.NamespacedName, name string) {
	if m := c.memory.get(registry); m != nil {
		m.mu.Lock()
		delete(m.kept, name)
		m.mu.Unlock()
	}
}

// notify makes the next pass over a registry read the rows.
func (c *Registries) notify(registry types.NamespacedName) {
	if m := c.memory.get(registry); m != nil {
		m.mu.Lock()
		m.now = true
		m.mu.Unlock()
	}
}
