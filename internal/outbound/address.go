package outbound

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// refused are addresses that no URL of a user has a reason to name, besides
// the classes that Policy.denied knows. Private networks are not among them: that is
// where in-house git servers live.
var refused = prefixes(
	"0.0.0.0/8",      // "this network"; Linux takes 0.0.0.0 for loopback
	"169.254.0.0/16", // link-local, where clouds keep their metadata services
	"240.0.0.0/4",    // reserved, broadcast
	"fd00:ec2::/32",  // services of AWS for its machines
)

// metadata are the addresses at which clouds tell a machine who it is, and give any program
// on it the machine's identity.
var metadata = prefixes(
	"169.254.169.254/32", "fd00:ec2::254/128", // AWS; the first is that of most others, too
	"fd20:ce::254/128",   // Google
	"168.63.129.16/32",   // Azure: the agent of its machines
	"100.100.100.200/32", // Alibaba
	"192.0.0.192/32",     // Oracle
)

// MetadataServices are the addresses of the metadata services of clouds. The chart keeps its
// pods from them.
func MetadataServices() []netip.Prefix { return slices.Clone(metadata) }

// private are networks that are not the internet's, besides those that netip.Addr.IsPrivate
// knows. Only a Policy with NoPrivate refuses them.
var private = prefixes(
	"100.64.0.0/10",  // shared by the customers of a provider, RFC 6598
	"192.0.0.0/24",   // protocol assignments, RFC 6890
	"198.18.0.0/15",  // benchmarks, RFC 2544
	"64:ff9b:1::/48", // translation within a network, RFC 8215
	"fec0::/10",      // site-local, RFC 3879
)

// embedding are IPv6 prefixes that carry an IPv4 address, and the byte at which
// it begins. A translator on the way would deliver to that address.
var embedding = []struct {
	prefix netip.Prefix
	at     int
}{
	{netip.MustParsePrefix("::/96"), 12},           // deprecated IPv4-compatible
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12}, // SIIT
	{netip.MustParsePrefix("64:ff9b::/96"), 12},    // NAT64
	{netip.MustParsePrefix("2002::/16"), 2},        // 6to4
}

func prefixes(texts ...string) []netip.Prefix {
	parsed := make([]netip.Prefix, len(texts))
	for i, s := range texts {
		parsed[i] = netip.MustParsePrefix(s)
	}
	return parsed
}

// denied says why addr may not be dialled; empty means that it may. Own are the addresses
// of this machine.
func (p Policy) denied(addr netip.Addr, own []netip.Prefix) string {
	addr = addr.Unmap().WithZone("")
	switch {
	case !addr.IsValid():
		return "is no address"
	case addr.IsLoopback():
		return "is a loopback address"
	case addr.IsUnspecified():
		return "is the unspecified address"
	case addr.IsLinkLocalUnicast():
		return "is a link-local address"
	case addr.IsMulticast():
		return "is a multicast address"
	case contains(refused, addr), contains(metadata, addr):
		return "is reserved or a metadata service"
	case contains(own, addr):
		return "is an address of this machine"
	case contains(p.Deny, addr):
		return "is refused by the operator"
	case p.NoPrivate && (isPrivate(addr) || contains(p.Private, addr)):
		return "is in a private network"
	}
	if addr.Is6() {
		for _, e := range embedding {
			if e.prefix.Contains(addr) {
				b := addr.As16()
				return p.denied(netip.AddrFrom4([4]byte(b[e.at:e.at+4])), own)
			}
		}
	}
	return ""
}

func isPrivate(addr netip.Addr) bool { return addr.IsPrivate() || contains(private, addr) }

func contains(in []netip.Prefix, addr netip.Addr) bool { return narrowest(in, addr) >= 0 }

// narrowest is the length of the longest prefix that has addr; -1 if none has it.
func narrowest(in []netip.Prefix, addr netip.Addr) int {
	bits := -1
	for _, p := range in {
		if p.Contains(addr) {
			bits = max(bits, p.Bits())
		}
	}
	return bits
}

// Lengths of the network around the address of a Service, by which the addresses of the other
// Services of a cluster are taken to be known.
const (
	serviceBits4 = 20
	serviceBits6 = 108
)

// ServiceNetwork is the network that the Services of a cluster are taken to have, by the address
// of one of them. There is none if host is a name, or an address that is no internet's anyway.
func ServiceNetwork(host string) []netip.Prefix {
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return nil
	}
	addr = addr.Unmap().WithZone("")
	if (Policy{NoPrivate: true}).denied(addr, nil) != "" {
		return nil
	}
	bits := serviceBits6
	if addr.Is4() {
		bits = serviceBits4
	}
	return []netip.Prefix{netip.PrefixFrom(addr, bits).Masked()}
}

// ParseNetworks reads entries of two forms: an address, a CIDR.
func ParseNetworks(entries ...string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, entry := range entries {
		p, ok := network(entry)
		if !ok {
			return nil, fmt.Errorf("%q is neither an address nor a CIDR", entry)
		}
		all = append(all, p)
	}
	return all, nil
}

// network reads an address or a CIDR. One of IPv4 that is written as IPv6 is one of IPv4, as the
// addresses are that it is compared with.
func network(entry string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(entry)
	if err != nil {
		addr, err := netip.ParseAddr(entry)
		if err != nil {
			return netip.Prefix{}, false
		}
		addr = addr.WithZone("")
		p = netip.PrefixFrom(addr, addr.BitLen())
	}
	if of4 := p.Bits() - mappedBits; p.Addr().Is4In6() && of4 >= 0 {
		p = netip.PrefixFrom(p.Addr().Unmap(), of4)
	}
	return p.Masked(), true
}

// mappedBits are those before an address of IPv4 in one of IPv6.
const mappedBits = 128 - 32

// ownAddresses are those of this machine's interfaces now.
func ownAddresses() ([]netip.Prefix, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("listing the machine's addresses: %w", err)
	}
	var own []netip.Prefix
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own = append(own, netip.PrefixFrom(p.Addr().Unmap(), p.Addr().Unmap().BitLen()))
		}
	}
	return own, nil
}

// Allow lists exceptions from what is refused. The zero Allow has none.
type Allow struct {
	hosts map[string]bool // host:port, as it stands in a URL
	nets  []netip.Prefix
}

// ParseAllow reads entries of three forms: host:port, an address, a CIDR. A
// host:port allows exactly that spelling of a name with exactly that port, and every
// address that it resolves to.
func ParseAllow(entries ...string) (Allow, error) {
	a := Allow{hosts: map[string]bool{}}
	for _, entry := range entries {
		if p, ok := network(entry); ok {
			a.nets = append(a.nets, p)
		} else if host, port, err := net.SplitHostPort(entry); err == nil && host != "" && port != "" {
			a.hosts[hostPort(host, port)] = true
		} else {
			return Allow{}, fmt.Errorf("reading the allow list: %q is neither host:port nor an address nor a CIDR", entry)
		}
	}
	return a, nil
}

func (a Allow) host(host, port string) bool { return a.hosts[hostPort(host, port)] }

// addr reports whether addr is in the list, and in no network of deny that is as narrow.
func (a Allow) addr(addr netip.Addr, deny []netip.Prefix) bool {
	addr = addr.Unmap().WithZone("")
	bits := narrowest(a.nets, addr)
	return bits >= 0 && bits > narrowest(deny, addr)
}

func hostPort(host, port string) string {
	return net.JoinHostPort(strings.TrimSuffix(strings.ToLower(host), "."), port)
}
