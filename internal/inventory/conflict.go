package inventory

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Conflict is an address or a MAC address that hosts of several tenants have.
type Conflict struct {
	What  string // "address" or "MAC address"
	Value string
	At    []Place // one for each tenant, in order of their names
}

// Place is a host of a tenant.
type Place struct{ Tenant, Host string }

func (c Conflict) String() string {
	var of []string
	const most = 5 // of many tenants, each has this text
	for _, p := range c.At[:min(len(c.At), most)] {
		of = append(of, fmt.Sprintf("%s of tenant %s", p.Host, p.Tenant))
	}
	if len(c.At) > most {
		of = append(of, fmt.Sprintf("%d more", len(c.At)-most))
	}
	return fmt.Sprintf("the %s %s is that of %s", c.What, c.Value, strings.Join(of, " and of "))
}

// Conflicts finds the addresses and MAC addresses that more than one tenant has. Loopback
// addresses are each machine's own.
func Conflicts(tenants map[string][]Host) []Conflict {
	type key struct{ what, value string }
	at := map[key][]Place{}
	add := func(what, value string, p Place) {
		k := key{what, value}
		if !slices.ContainsFunc(at[k], func(other Place) bool { return other.Tenant == p.Tenant }) {
			at[k] = append(at[k], p)
		}
	}
	for _, tenant := range slices.Sorted(maps.Keys(tenants)) {
		for _, h := range tenants[tenant] {
			p := Place{tenant, h.Name}
			if a := canonicalAddress(h.Address); a != "" {
				add("address", a, p)
			}
			if h.MAC != "" {
				add("MAC address", CanonicalMAC(h.MAC), p)
			}
		}
	}
	var out []Conflict
	for k, places := range at {
		if len(places) > 1 {
			out = append(out, Conflict{k.what, k.value, places})
		}
	}
	slices.SortFunc(out, func(a, b Conflict) int {
		return cmp.Or(strings.Compare(a.What, b.What), strings.Compare(a.Value, b.Value))
	})
	return out
}

// canonicalAddress is an address in one form; empty for one that is no conflict.
func canonicalAddress(s string) string {
	a, err := netip.ParseAddr(s)
	if err != nil {
		s = strings.ToLower(strings.TrimSuffix(s, "."))
		if s == "localhost" {
			return ""
		}
		return s
	}
	if a = a.Unmap(); a.IsLoopback() {
		return ""
	}
	return a.WithZone("").String()
}
