package outbound

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
)

// Resolver turns a name into addresses; *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// DialContext connects to address, a host:port, if the policy allows every
// step. The name is resolved once and the connection goes to an address that
// was checked, so that a name which changes its mind in between gains nothing.
func (c *Client) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("dialling: %w", err)
	}
	addrs, err := c.resolve(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("resolving %q: %w", host, err)
	}
	own, err := ownAddresses()
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{Timeout: c.policy.Dial, KeepAlive: 30 * time.Second}
	var failures []error
	for _, addr := range addrs {
		if err := c.check(addr, host, port, own); err != nil {
			failures = append(failures, err)
			continue
		}
		conn, err := dialer.DialContext(ctx, network, net.JoinHostPort(addr.String(), port))
		if err == nil {
			return conn, nil
		}
		failures = append(failures, err)
	}
	return nil, errors.Join(failures...)
}

func (c *Client) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr}, nil
	}
	addrs, err := c.policy.Resolver.LookupNetIP(ctx, "ip", host)
	if err == nil && len(addrs) == 0 {
		err = errors.New("the name has no address")
	}
	return addrs, err
}

func (c *Client) check(addr netip.Addr, host, port string, own []netip.Prefix) error {
	if c.policy.Allow.host(host, port) || c.policy.Allow.addr(addr, c.policy.Deny) {
		return nil
	}
	why := c.policy.denied(addr, own)
	if why == "" {
		return nil
	}
	return fault.New(fault.Denied, ReasonAddress, fmt.Errorf("%q leads to %v, which %s", host, addr, why))
}
