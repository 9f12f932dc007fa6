package main

import (
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
)

const (
	nodeName    = "node"
	nodeAddress = "172.30.0.1"
	apiService  = "10.96.0.1"
	services    = "10.96.0.0/16"
)

// makeNetwork makes the node's side of the network: an address that is not
// loopback, since clients of the API server refuse such a node; and a route to
// Services, which kube-proxy's rules replace before a packet takes it. There is
// no route out: pods are told so at once.
func makeNetwork() error {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding the loopback: %w", err)
	}
	if err := netlink.LinkSetUp(loopback); err != nil {
		return fmt.Errorf("starting the loopback: %w", err)
	}
	// A pair of which only one end is used: not every kernel has dummy interfaces.
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "node0"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "node1"}); err != nil {
		return fmt.Errorf("making the node's interface: %w", err)
	}
	for _, name := range []string{"node0", "node1"} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("finding interface %s: %w", name, err)
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("starting interface %s: %w", name, err)
		}
	}
	link, err := netlink.LinkByName("node0")
	if err != nil {
		return fmt.Errorf("finding interface node0: %w", err)
	}
	address := &net.IPNet{IP: net.ParseIP(nodeAddress), Mask: net.CIDRMask(32, 32)}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: address}); err != nil {
		return fmt.Errorf("giving the node its address: %w", err)
	}
	_, to, err := net.ParseCIDR(services)
	if err != nil {
		return fmt.Errorf("reading the Services' network: %w", err)
	}
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: to, Src: address.IP, Scope: netlink.SCOPE_LINK}
	if err := netlink.RouteAdd(route); err != nil {
		return fmt.Errorf("making the route to Services: %w", err)
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		return fmt.Errorf("letting packets through the node: %w", err)
	}
	return nil
}
