package mirror

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/fault"
)

// Health is what one process knows of an upstream since it started.
type Health struct {
	Host     string
	URL      string // where discovery begins
	Offline  bool   // the settings say that it is not asked
	Unsigned bool   // releases without a key are accepted

	Answered time.Time // last; zero: it was not asked, or did not answer
	Failed   time.Time // last
	Reason   string    // of that failure
	Error    string    // likewise
	Paused   time.Time // until when it is not asked for the same again
}

// health notes what an upstream answers.
type health struct {
	mu sync.Mutex
	Health
}

// note keeps the outcome of a question. That an upstream does not have something is an
// answer, and a full disk says nothing about it.
func (h *health) note(now, until time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch reason := fault.Reason(err, ""); {
	case err == nil || fault.Of(err) == fault.Missing:
		h.Answered = now
	case slices.Contains([]string{ReasonUnreachable, ReasonFailed, ReasonLimited, ReasonToken, ReasonUnreadable, ReasonSignature, ReasonChecksum, ReasonChanged}, reason):
		h.Failed, h.Reason, h.Error, h.Paused = now, reason, fault.Shorten(err.Error(), 1<<10), until
	}
}

// HealthOf is the health of all upstreams of a mirror, by host.
func HealthOf(m *Mirror) []Health {
	var all []Health
	for _, u := range m.upstreams {
		u.health.mu.Lock()
		one := u.health.Health
		u.health.mu.Unlock()
		one.Host, one.URL, one.Offline, one.Unsigned = u.host, u.base.String(), u.settings.Offline, u.settings.Unsigned || u.host == publicHost
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Health) int { return strings.Compare(a.Host, b.Host) })
	return all
}

// Providers are those that a mirror knows, by one list of the store.
func Providers(ctx context.Context, m *Mirror) ([]address.Provider, error) {
	return m.records.providers(ctx)
}

// Allowed is nil if a tenant may install versions of a provider.
func Allowed(m *Mirror, tenant string, p address.Provider) error { return m.rules.provider(tenant, p) }

// DeleteUnusedAfter is the time after which an archive that no client used is deleted;
// never if zero.
func DeleteUnusedAfter(m *Mirror) time.Duration {
	return time.Duration(m.options.Settings.DeleteUnusedAfter)
}
