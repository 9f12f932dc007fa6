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
		if got := a.addr(netip.MustParseAddr(addr)); got != want {
			t.Errorf("addr(%s) = %v, want %v", addr, got, want)
		}
	}
	for _, bad := range []string{"", "git.example", "git.example:", ":80", "10.0.0.0/33"} {
		if _, err := ParseAllow(bad); err == nil {
			t.Errorf("ParseAllow(%q) succeeds", bad)
		}
	}
}
