package usedby

import (
	"context"
	"slices"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/plan/usage"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/catalog"
)

// Published answers about what one registry publishes, under whichever of its names a source
// has it.
type Published struct {
	Index *Index
	Hosts func() []string // names of the registry in addresses
}

// OfModule are the stacks that use a module.
func (p Published) OfModule(_ context.Context, scope access.Scope, m address.Module) (catalog.UsedBy, error) {
	return p.of(scope, (*Index).ofModules, func(host string) string {
		return usage.Location{Kind: usage.Registry, Address: host + "/" + m.String()}.Key()
	}, p.Hosts())
}

// OfProvider are the stacks that use a provider. One with a host comes from the mirror.
func (p Published) OfProvider(_ context.Context, scope access.Scope, v address.Provider) (catalog.UsedBy, error) {
	if v.Host != "" {
		return p.of(scope, (*Index).ofProviders, func(host string) string { return v.String() }, []string{v.Host})
	}
	return p.of(scope, (*Index).ofProviders, func(host string) string { return host + "/" + v.String() }, p.Hosts())
}

func (p Published) of(scope access.Scope, of func(*Index) side, key func(host string) string, hosts []string) (catalog.UsedBy, error) {
	x := p.Index
	x.mu.RLock()
	defer x.mu.RUnlock()
	if !x.synced {
		return catalog.UsedBy{}, errNotReady
	}
	wanted := map[string]bool{}
	for _, host := range hosts {
		wanted[key(host)] = true
	}
	found, hidden := x.uses(of(x), wanted, func(k query.Key) bool { return scope.Of(k.Kind).Has(k.Namespace) })
	slices.SortFunc(found, compare)
	out := catalog.UsedBy{Hidden: hidden}
	out.Unread, out.Unknown, out.UnknownStacks = x.unsure(scope, "")
	for _, u := range found {
		use := catalog.Use{Stack: u.Key(), Version: u.Version, Constraint: u.Constraint, Since: u.Since}
		for _, call := range u.Calls {
			use.Path = call
			out.Items = append(out.Items, use)
		}
		if len(u.Calls) == 0 {
			out.Items = append(out.Items, use)
		}
	}
	return out, nil
}
