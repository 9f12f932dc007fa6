package outbound

import (
	"net/netip"
	"testing"
)

func TestDenied(t *testing.T) {
	own := prefixes("192.0.2.7/32")
	p := Policy{Deny: prefixes("10.96.0.0/12")}
	for addr, want := range map[string]bool{
		"127.0.0.1":                true,
		"127.8.9.10":               true,
		"::1":                      true,
		"::ffff:127.0.0.1":         true,
		"0.0.0.0":                  true,
		"0.1.2.3":                  true,
		"::":                       true,
		"169.254.169.254":          true,
		"::ffff:169.254.169.254":   true,
		"fe80::1":                  true,
		"fe80::1%eth0":             true,
		"fd00:ec2::254":            true,
		"100.100.100.200":          true,
		"224.0.0.1":                true,
		"ff02::1":                  true,
		"255.255.255.255":          true,
		"64:ff9b::7f00:1":          true,
		"64:ff9b::169.254.169.254": true,
		"2002:7f00:1::":            true,
		"::127.0.0.1":              true,
		"::ffff:0:127.0.0.1":       true,
		"192.0.2.7":                true,
		"10.96.0.1":                true,

		"192.0.2.8":        false,
		"10.0.0.1":         false,
		"172.16.0.1":       false,
		"192.168.1.1":      false,
		"8.8.8.8":          false,
		"2001:db8::1":      false,
		"fd12:3456::1":     false,
		"64:ff9b::8.8.8.8": false,
	} {
		if why := p.denied(netip.MustParseAddr(addr), own); (why != "") != want {
			t.Errorf("denied(%s) = %q, want refused: %v", addr, why, want)
		}
	}
	if (Policy{}).denied(netip.Addr{}, nil) == "" {
		t.Error("the zero address is allowed")
	}
}

// Where private networks are refused, so is each form of an address in one.
func TestPrivateNetworks(t *testing.T) {
	for addr, private := range map[string]bool{
		"10.0.0.1":           true,
		"172.16.0.1":         true,
		"172.31.255.254":     true,
		"192.168.1.1":        true,
		"100.64.0.1":         true,
		"198.18.0.1":         true,
		"192.0.0.8":          true,
		"fd12:3456::1":       true,
		"fec0::1":            true,
		"::ffff:10.0.0.1":    true,
		"64:ff9b::10.0.0.1":  true,
		"64:ff9b:1::8.8.8.8": true,
		"2002:a00:1::":       true,

		"172.32.0.1":       false,
		"100.128.0.1":      false,
		"192.169.0.1":      false,
		"8.8.8.8":          false,
		"64:ff9b::8.8.8.8": false,
		"2606:4700::1111":  false,
	} {
		a := netip.MustParseAddr(addr)
		if why := (Policy{NoPrivate: true}).denied(a, nil); (why != "") != private {
			t.Errorf("with NoPrivate denied(%s) = %q, want refused: %v", addr, why, private)
		}
		if why := (Policy{}).denied(a, nil); why != "" {
			t.Errorf("without NoPrivate denied(%s) = %q, want it allowed", addr, why)
		}
	}
}

func TestParseAllow(t *testing.T) {
	a, err := ParseAllow("Git.example:8443", "127.0.0.1:5000", "[::1]:80", "10.0.0.0/8", "192.0.2.7")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		host, port string
		want       bool
	}{
		{"git.example", "8443", true},
		{"git.example.", "8443", true},
		{"git.example", "443", false},
		{"127.0.0.1", "5000", true},
		{"127.0.0.1", "5001", false},
		{"localhost", "5000", false},
		{"::1", "80", true},
	} {
		if got := a.host(tt.host, tt.port); got != tt.want {
			t.Errorf("host(%s, %s) = %v, want %v", tt.host, tt.port, got, tt.want)
		}
	}
	for addr, want := range map[string]bool{"10.1.2.3": true, "::ffff:10.1.2.3": true, "192.0.2.7": true, "192.0.2.8": false, "127.0.0.1": false} {
		if got := a.addr(netip.MustParseAddr(addr), nil); got != want {
			t.Errorf("addr(%s) = %v, want %v", addr, got, want)
		}
	}
	for _, bad := range []string{"", "git.example", "git.example:", ":80", "10.0.0.0/33"} {
		if _, err := ParseAllow(bad); err == nil {
			t.Errorf("ParseAllow(%q) succeeds", bad)
		}
	}
}

// The Services of a cluster are where one of them is. A cluster that gives them private addresses
// needs no network for that, and neither does one whose API server has a name.
func TestServiceNetwork(t *testing.T) {
	for host, want := range map[string]string{
		"34.118.224.1":        "34.118.224.0/20",
		"34.118.239.254":      "34.118.224.0/20",
		"::ffff:34.118.224.1": "34.118.224.0/20",
		"2600:2d00::12:3451":  "2600:2d00::10:0/108",
		"10.96.0.1":           "",
		"172.20.0.1":          "",
		"100.64.0.1":          "",
		"fd00:10:96::1":       "",
		"127.0.0.1":           "",
		"api.example.com":     "",
		"":                    "",
	} {
		var got string
		for _, p := range ServiceNetwork(host) {
			got += p.String()
		}
		if got != want {
			t.Errorf("ServiceNetwork(%q) = %q, want %q", host, got, want)
		}
	}
	of := ServiceNetwork("34.118.224.1")
	neighbour := netip.MustParseAddr("34.118.225.7")
	if (Policy{NoPrivate: true, Private: of}).denied(neighbour, nil) == "" || (Policy{Private: of}).denied(neighbour, nil) != "" {
		t.Error("a Service is not refused as private networks are, and only where they are")
	}
	if (Policy{NoPrivate: true, Private: of}).denied(netip.MustParseAddr("34.118.240.1"), nil) != "" {
		t.Error("an address outside is refused, too")
	}
}

// What the operator refuses is an exception from what is allowed, and the other way round: the
// narrower of two networks counts, and refusal if they are the same. A host with its port is
// always allowed.
func TestTheNarrowerNetworkCounts(t *testing.T) {
	allow, err := ParseAllow("10.0.0.0/8", "10.96.7.0/24", "8.8.8.8", "::ffff:172.16.0.0/108", "pve.example:8006")
	if err != nil {
		t.Fatal(err)
	}
	deny, err := ParseNetworks("10.96.0.0/12", "10.96.7.9", "0.0.0.0/0", "::/0", "::ffff:172.16.1.0/120")
	if err != nil {
		t.Fatal(err)
	}
	c := New(Policy{Allow: allow, Deny: deny})
	t.Cleanup(c.Close)
	for addr, allowed := range map[string]bool{
		"10.0.0.1":             true,
		"10.96.0.1":            false,
		"10.96.7.1":            true,
		"10.96.7.9":            false,
		"::ffff:10.96.0.1":     false,
		"::ffff:10.0.0.1":      true,
		"172.16.0.1":           true,
		"172.16.1.1":           false,
		"8.8.8.8":              true,
		"8.8.4.4":              false,
		"2606:4700::1111":      false,
		"64:ff9b::10.96.0.1":   false,
		"64:ff9b::203.0.113.1": false,
	} {
		if err := c.check(netip.MustParseAddr(addr), "other.example", "443", nil); (err == nil) != allowed {
			t.Errorf("check(%s) = %v, want it allowed: %v", addr, err, allowed)
		}
		if err := c.check(netip.MustParseAddr(addr), "pve.example", "8006", nil); err != nil {
			t.Errorf("check(%s) of a host that is listed = %v", addr, err)
		}
	}
	for _, bad := range []string{"", "pve.example", "pve.example:8006", "10.0.0.1:80", "10.0.0.0/33"} {
		if _, err := ParseNetworks(bad); err == nil {
			t.Errorf("ParseNetworks(%q) succeeds", bad)
		}
	}
}
