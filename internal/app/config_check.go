package app

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/sandbox"
)

func usage(format string, args ...any) error {
	return fault.New(fault.Invalid, "Usage", fmt.Errorf(format, args...))
}

// check reports invalid settings, so that a
// mistake is reported before anything starts. In a cluster the HTTP API may listen
// beyond loopback.
func (c Config) check(inCluster bool) error {
	if _, err := outbound.ParseAllow(c.AllowHosts...); err != nil {
		return usage("--allow-host: %w", err)
	}
	if _, err := namedEngines(c.Engines); err != nil {
		return err
	}
	if c.Network != "host" && c.Network != "none" {
		return usage("--run-network: %q is neither host nor none", c.Network)
	}
	if c.Isolation < int(sandbox.Basic) || c.Isolation > int(sandbox.Full) {
		return usage("--min-isolation: %d is none of 1, 2, 3", c.Isolation)
	}
	if c.MaxRuns < 1 {
		return usage("--max-runs: %d is less than 1", c.MaxRuns)
	}
	if c.MaxTenantRuns < 0 || c.RunsMemory < 0 {
		return usage("--max-runs-per-tenant and --memory-for-runs cannot be negative")
	}
	if err := checkHTTPAddress(c.HTTPAddress, inCluster); err != nil {
		return err
	}
	if a := c.MetricsAddress; a != "" {
		if _, _, err := net.SplitHostPort(a); err != nil {
			return usage("--metrics-address %q is not host:port", a)
		}
	}
	if a := c.EventsAddress; a != "" {
		if _, err := eventsURL(a); err != nil {
			return err
		}
	}
	if _, err := c.webhooks(nil); err != nil {
		return err
	}
	_, _, err := c.issuer()
	return err
}

// checkHTTPAddress wants host:port, on loopback unless beyond.
func checkHTTPAddress(address string, beyond bool) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return usage("--http-address %q is not host:port", address)
	}
	if ip := net.ParseIP(host); !beyond && (ip == nil || !ip.IsLoopback()) {
		return usage("--http-address %q is not a loopback address, and terrier up listens only on this machine", address)
	}
	return nil
}

// namedEngines reads entries of NAME=/PATH.
func namedEngines(entries []string) (map[string]string, error) {
	named := map[string]string{}
	for _, entry := range entries {
		name, path, ok := strings.Cut(entry, "=")
		if !ok || name == "" || !filepath.IsAbs(path) {
			return nil, usage("--engine-named %q is not NAME=/PATH", entry)
		}
		named[name] = path
	}
	return named, nil
}

// eventsURL reads --events-addr.
func eventsURL(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return nil, usage("--events-addr: %q is not http://HOST/", address)
	}
	return u, nil
}
