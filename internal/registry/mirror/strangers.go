package mirror

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/fault"
)

// ReasonTenant is the reason of the fault of a request for an unknown provider, if the
// tenant asked for too many that its upstreams do not have.
const ReasonTenant = "TenantLimited"

// A tenant may ask for so many providers that upstreams do not have, and for one more
// after each time.
const (
	mostStrangers = 60
	strangerEvery = 2 * time.Second
)

// strangers bounds for how many providers a tenant asks that upstreams do not have. Every
// such request goes to an upstream, and an upstream limits the requests of all tenants
// together.
type strangers struct {
	now func() time.Time

	mu      sync.Mutex
	tenants cache.Map[string, *rate.Limiter]
	counted cache.Map[string, bool] // by tenant and provider: a name that many clients want counts once
}

func newStrangers(now func() time.Time) strangers {
	return strangers{
		now:     now,
		tenants: cache.Map[string, *rate.Limiter]{Size: 10_000, Now: now},
		counted: cache.Map[string, bool]{Size: 10_000, TTL: time.Minute, Now: now},
	}
}

// of is the limiter of a tenant; mu is held.
func (s *strangers) of(tenant string) *rate.Limiter {
	limiter, ok := s.tenants.Get(tenant)
	if !ok {
		limiter = rate.NewLimiter(rate.Every(strangerEvery), mostStrangers)
		s.tenants.Put(tenant, limiter)
	}
	return limiter
}

func (s *strangers) check(tenant, host string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of(tenant).TokensAt(s.now()) >= 1 {
		return nil
	}
	return fault.Wait(strangerEvery, ReasonTenant, fmt.Errorf("the tenant %.250q asked for too many providers that their registries do not have, and the mirror does not ask %s for another unknown one: check the sources of providers in its configurations, and try again in %v", tenant, host, strangerEvery))
}

func (s *strangers) count(tenant string, p address.Provider) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := tenant + " " + p.String()
	if _, ok := s.counted.Get(name); !ok {
		s.counted.Put(name, true)
		s.of(tenant).AllowN(s.now(), 1)
	}
}

// strange asks an upstream about a provider for a tenant. If the mirror has no index of the
// provider, the upstream may not have it, and the tenant may do so only so often.
func strange[T any](m *Mirror, u *upstream, tenant string, p address.Provider, index *Index, ask func() (T, error)) (T, error) {
	if index != nil || u.settings.Offline || m.down(p.String()) != nil { // no request goes out for the name
		return ask()
	}
	if err := m.strangers.check(tenant, u.host); err != nil {
		var none T
		return none, err
	}
	answer, err := ask()
	if reason := fault.Reason(err, ""); reason == ReasonMissing || reason == ReasonToken { // registries hide names by either
		m.strangers.count(tenant, p)
	}
	return answer, err
}
