package tenants

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/tenant"
)

// refusal is a write of a Tenant that fails again if it is merely repeated.
type refusal struct {
	tried    string // identifies the write
	attempts int
	next     time.Time
	err      error
}

// attempt makes one write of a Tenant, unless the same write was refused and is not
// due again. Its result has a time if it is a refusal; the caller repeats all other
// failures, which may pass.
func (m *remembered) attempt(name, what string, now time.Time, write func() error) (refusal, error) {
	m.mu.Lock()
	r := m.refused[name]
	m.mu.Unlock()
	if r.tried == what && now.Before(r.next) {
		return r, r.err
	}
	err := write()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil || !isRefusal(err) {
		delete(m.refused, name)
		return refusal{}, err
	}
	if r.tried != what {
		r.attempts = 0
	}
	r = refusal{tried: what, attempts: r.attempts + 1, next: now.Add(pause(firstPause, r.attempts)), err: err}
	if m.refused == nil {
		m.refused = map[string]refusal{}
	}
	m.refused[name] = r
	return r, err
}

// wanted forgets the refusals of Tenants that are not to be written any more.
func (m *remembered) wanted(s tenant.Step) {
	names := map[string]bool{}
	for _, n := range s.Create {
		names[n.Name] = true
	}
	for _, n := range s.Change {
		names[n.Name] = true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.refused, func(name string, _ refusal) bool { return !names[name] })
}

// isRefusal reports whether an error is about the object that was written, and not
// about the server.
func isRefusal(err error) bool {
	var status apierrors.APIStatus
	if tooLarge(err) {
		return true
	}
	if errors.As(err, &status) {
		code := int(status.Status().Code)
		passing := []int{http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests}
		return code >= http.StatusBadRequest && code < http.StatusInternalServerError && !slices.Contains(passing, code)
	}
	return slices.Contains([]fault.Kind{fault.Invalid, fault.Denied, fault.Missing}, fault.Of(err))
}

// attempts is the time until the next attempt at a refused write; zero if there is
// none.
func (l *registryPass) attempts(now time.Time) (first time.Duration) {
	for _, e := range l.failures {
		if !e.Next.IsZero() && (first == 0 || e.Next.Sub(now) < first) {
			first = max(e.Next.Sub(now), time.Millisecond)
		}
	}
	return first
}
