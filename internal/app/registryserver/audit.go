package registryserver

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/registry"
)

// AuditLog is where changes of a registry are recorded. Record returns once the entry is on
// the disk, and writes no ID a second time.
type AuditLog interface {
	Record(context.Context, audit.Entry) error
}

// objects are what the deeds of a registry are about.
var objects = map[registry.What]string{
	registry.ModulePublished: "RegistryModule", registry.ModuleRetracted: "RegistryModule", registry.ModuleRestored: "RegistryModule",
	registry.ProviderPublished: "RegistryProvider", registry.ProviderRetracted: "RegistryProvider", registry.ProviderRestored: "RegistryProvider",
	registry.KeyAdded: "RegistryKey", registry.KeyRemoved: "RegistryKey",
}

// recording records deeds in an audit log; nil without one.
func recording(to AuditLog) func(context.Context, registry.Deed) error {
	if to == nil {
		return nil
	}
	return func(ctx context.Context, d registry.Deed) error {
		e := audit.Entry{
			ID: d.ID, Who: d.By, Via: access.ViaOf(ctx), What: audit.What(d.What), Comment: d.Reason, Details: map[string]string{},
			Object: audit.Object{Kind: objects[d.What], Namespace: d.Namespace, Name: strings.TrimPrefix(d.Name, d.Namespace+"/")},
		}
		for name, value := range d.Details {
			e.Details[name] = value
		}
		if d.Version != "" {
			e.Details["version"] = string(d.Version)
		}
		return to.Record(ctx, e)
	}
}

// counting counts what is recorded of a registry.
type counting struct {
	AuditLog
	changes *prometheus.CounterVec
	seen    cache.Map[string, bool] // IDs: what is tried again counts once
}

// changed are the entries that count, as kind and action.
var changed = map[audit.What][2]string{
	audit.ModulePublished: {"module", "published"}, audit.ModuleRetracted: {"module", "retracted"}, audit.ModuleRestored: {"module", "restored"},
	audit.ProviderPublished: {"provider", "published"}, audit.ProviderRetracted: {"provider", "retracted"}, audit.ProviderRestored: {"provider", "restored"},
	audit.SigningKeyAdded: {"signing-key", "added"}, audit.SigningKeyRemoved: {"signing-key", "removed"},
	audit.TokenCreated: {"token", "created"}, audit.TokenRevoked: {"token", "revoked"},
}

// Counting counts changes of a registry and its tokens as they are recorded.
func Counting(to AuditLog, registerer prometheus.Registerer) (AuditLog, error) {
	c := &counting{
		AuditLog: to, seen: cache.Map[string, bool]{Size: 1000},
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "terrier_packages_changes_total", Help: "Changes of the registry of modules and providers, by what was changed and how."}, []string{"kind", "action"}),
	}
	for _, of := range changed {
		c.changes.WithLabelValues(of[0], of[1])
	}
	return c, registerer.Register(c.changes)
}

// Record implements AuditLog.
func (c *counting) Record(ctx context.Context, e audit.Entry) error {
	err := c.AuditLog.Record(ctx, e)
	of, ok := changed[e.What]
	if err != nil || !ok {
		return err
	}
	if e.ID != "" {
		if _, again := c.seen.Get(e.ID); again {
			return nil
		}
		c.seen.Put(e.ID, true)
	}
	c.changes.WithLabelValues(of[0], of[1]).Inc()
	return nil
}

// openAudit opens the audit log of a registry that runs alone, and records that it begins.
func openAudit(ctx context.Context, dir, version string, now func() time.Time) (*audit.Log, error) {
	log, err := audit.Open(dir, audit.Options{Now: now})
	if err != nil {
		return nil, fmt.Errorf("--audit-dir: %w", err)
	}
	return log, log.Record(ctx, audit.Entry{What: audit.LogOpened, Via: audit.ViaController, Details: map[string]string{"version": version}})
}

// via notes for the audit log which program sends a request.
func via(r *http.Request) *http.Request {
	by := audit.ViaAPI
	if strings.HasPrefix(r.UserAgent(), query.ClientAgent) {
		by = audit.ViaCLI
	}
	return r.WithContext(access.Via(r.Context(), by))
}
