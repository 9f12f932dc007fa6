package mirror

import (
	"cmp"
	"fmt"
	"path"
	"slices"

	"github.com/Masterminds/semver/v3"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/fault"
)

// ReasonDenied is the reason of the fault of a provider that the rules deny.
const ReasonDenied = "ProviderDenied"

// rules decide what tenants may install.
type rules []Rule

// version is nil if a tenant may install a version, and says why if not.
func (all rules) version(tenant string, p address.Provider, v address.Version) error {
	limited, allowed := false, false
	for _, r := range all {
		if !r.concerns(tenant) {
			continue
		}
		for _, d := range r.Deny {
			if d.provider(p) && d.version(v) {
				return denied("%s %s is denied to the tenant %s: %s", p, v, tenant, d.reason())
			}
		}
		limited = limited || len(r.Allow) > 0
		allowed = allowed || slices.ContainsFunc(r.Allow, func(a Pattern) bool { return a.provider(p) && a.version(v) })
	}
	if limited && !allowed {
		return denied("%s %s is on no allow list of the tenant %s: ask the operator of the mirror to add it", p, v, tenant)
	}
	return nil
}

// provider is nil if there can be a version that a tenant may install.
func (all rules) provider(tenant string, p address.Provider) error {
	limited, allowed := false, false
	for _, r := range all {
		if !r.concerns(tenant) {
			continue
		}
		for _, d := range r.Deny {
			if d.provider(p) && d.Versions == "" {
				return denied("%s is denied to the tenant %s: %s", p, tenant, d.reason())
			}
		}
		limited = limited || len(r.Allow) > 0
		allowed = allowed || slices.ContainsFunc(r.Allow, func(a Pattern) bool { return a.provider(p) })
	}
	if limited && !allowed {
		return denied("%s is on no allow list of the tenant %s: ask the operator of the mirror to add it", p, tenant)
	}
	return nil
}

func (r Rule) concerns(tenant string) bool {
	return len(r.Tenants) == 0 || slices.ContainsFunc(r.Tenants, func(pattern string) bool {
		ok, err := path.Match(pattern, tenant)
		return ok || err != nil // a pattern was checked; one that cannot be read concerns all
	})
}

func (p Pattern) provider(of address.Provider) bool {
	ok, err := path.Match(p.Provider, of.String())
	return ok && err == nil
}

// version reports whether the pattern has a version. Pre-releases count as the versions
// that they come before, so that "< 5.0.0" has 5.0.0-beta1 as well.
func (p Pattern) version(v address.Version) bool {
	if p.Versions == "" {
		return true
	}
	c, err := semver.NewConstraint(p.Versions)
	parsed, errVersion := semver.NewVersion(string(v))
	if err != nil || errVersion != nil {
		return false
	}
	c.IncludePrerelease = true
	return c.Check(parsed)
}

func (p Pattern) reason() string {
	return cmp.Or(p.Reason, "a rule of the mirror denies "+p.Provider)
}

func denied(format string, args ...any) error {
	return fault.New(fault.Denied, ReasonDenied, fmt.Errorf(format, args...))
}
