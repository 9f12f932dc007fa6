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

// refusal is a write of a Tenant that will not pass by being repeated.
type refusal struct {
	tried    string // what was to be written
	attempts int
	next     time.Time
	err      error
}

// attempt makes one write of a Tenant, unless the very same was refused and is
// not due again. What it returns has a time if it is a refusal; everything else
// may pass by itself, and is its caller's to repeat.
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
	if err == nil || !refuses(err) {
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

// wanted forgets the refusals of Tenants that nobody wants to write any more.
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

// refuses says that an error is about what was written, and not about how the
// server is doing.
func refuses(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := int(status.Status().Code)
		passing := []int{http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests}
		return code >= http.StatusBadRequest && code < http.StatusInternalServerError && !slices.Contains(passing, code)
	}
	return slices.Contains([]fault.Kind{fault.Invalid, fault.Denied, fault.Missing}, fault.Of(err))
}

// attempts is how long it is until the first refused write is tried again; zero
// if there is none.
func (l *registryPass) attempts(now time.Time) (first time.Duration) {
	for _, e := range l.failures {
		if !e.Next.IsZero() && (first == 0 || e.Next.Sub(now) < first) {
			first = max(e.Next.Sub(now), time.Millisecond)
		}
	}
	return first
}
