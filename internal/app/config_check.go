package app

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/access/regtoken"
	"github.com/terrier-iac/terrier/internal/app/packages"
	"github.com/terrier-iac/terrier/internal/app/reads"
	"github.com/terrier-iac/terrier/internal/app/store"
	"github.com/terrier-iac/terrier/internal/backend"
	"github.com/terrier-iac/terrier/internal/controller/prerequisites"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/workdir"
)

func usage(format string, args ...any) error {
	return fault.New(fault.Invalid, "Usage", fmt.Errorf(format, args...))
}

// prerequisiteHosts are what prerequisites may ask besides the internet.
func (c Config) prerequisiteHosts() prerequisites.Hosts {
	return prerequisites.Hosts{Asked: slices.Concat(c.AllowHosts, c.PrereqHosts), Bodies: c.PrereqBodies}
}

// check reports invalid settings, so that a
// mistake is reported before anything starts. In a cluster the HTTP API may listen
// beyond loopback.
func (c Config) check(inCluster bool, environ func(string) string) error {
	if _, err := outbound.ParseAllow(c.AllowHosts...); err != nil {
		return usage("--allow-host: %w", err)
	}
	if _, err := outbound.ParseNetworks(c.DenyNetworks...); err != nil {
		return usage("--deny-network: %w", err)
	}
	if _, err := prerequisites.NewSystems(outbound.Policy{}, c.prerequisiteHosts()); err != nil {
		return usage("%w", err)
	}
	if err := c.checkExamples(); err != nil {
		return err
	}
	if err := store.Check(c.Records, c.RecordsKey, c.RecordsKMS, environ); err != nil {
		return err
	}
	if err := packages.Check(c.Registry, c.RegistryStorage, c.RegistryConfig, environ); err != nil {
		return err
	}
	if c.QuotaSize < 0 || c.QuotaVersions < 0 {
		return usage("--registry-quota-size and --registry-quota-versions cannot be negative")
	}
	if c.RegistryLogin < time.Minute || c.RegistryLogin > regtoken.MaxLife {
		return usage("--registry-login-life is at least a minute and at most %s, and not %s", regtoken.MaxLife, c.RegistryLogin)
	}
	if err := reads.CheckNames(c.RegistryHosts); err != nil {
		return err
	}
	if err := reads.CheckDirect(c.RunDirect); err != nil {
		return err
	}
	if len(c.RunDirect) > 0 && !c.mirrorsRuns() {
		return usage("--run-direct: runs take no provider from the mirror of this registry, so none can go past it: leave it out, or look at --registry, --run-mirror and, with --provider-registries=false, --registry-config")
	}
	if err := c.identity().Check(); err != nil {
		return err
	}
	if _, err := namedEngines(c.Engines); err != nil {
		return err
	}
	if _, err := namedBackends(c.Backends); err != nil {
		return err
	}
	if _, err := c.runEnv(environ); err != nil {
		return err
	}
	for _, name := range c.StackEnv {
		if err := workdir.CheckPlatformEnvironment(name); err != nil || !workdir.IsProxy(name) {
			return usage("--allow-stack-env: %q is not the name of a proxy variable, such as HTTPS_PROXY or NO_PROXY", name)
		}
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
	if _, err := c.perClass(); err != nil {
		return err
	}
	if d := c.SyncInterval; d < 0 || d > 0 && d < time.Second {
		return usage("--sync-interval: %s is shorter than a second; 0 checks no drift", d)
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
	if _, _, err := c.vault(); err != nil {
		return err
	}
	_, _, err := c.issuer()
	return err
}

// perClass reads entries of CLASS=NUMBER.
func (c Config) perClass() (l schedule.PerClass, err error) {
	for _, entry := range c.MaxClassRuns {
		name, number, _ := strings.Cut(entry, "=")
		class, ok := schedule.ClassNamed(name)
		if !ok {
			return l, usage("--max-runs-per-class %q: %q is none of the classes apply, person, spec, upstream, drift", entry, name)
		}
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 {
			return l, usage("--max-runs-per-class %q is not CLASS=NUMBER with a number of at least 1", entry)
		}
		if l[class] != 0 {
			return l, usage("--max-runs-per-class names the class %s twice", name)
		}
		l[class] = n
	}
	return l, nil
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

// runEnv reads entries of NAME=VALUE. One without a value takes it from the
// environment of this program.
func (c Config) runEnv(environ func(string) string) (map[string]string, error) {
	env := map[string]string{}
	for _, entry := range c.RunEnv {
		name, value, ok := strings.Cut(entry, "=")
		err := workdir.CheckPlatformEnvironment(name)
		if fault.Of(err) == fault.Invalid {
			return nil, usage("--run-env: %w: write NAME=VALUE, or NAME alone; a value with a comma stands in --run-env, since commas separate the variables in TERRIER_RUN_ENV", err)
		}
		if err != nil {
			return nil, usage("--run-env: %w", err)
		}
		if !ok {
			if value = environ(name); value == "" {
				return nil, usage("--run-env %s: the environment of this program has no %[1]s: set it, or write --run-env %[1]s=VALUE", name)
			}
		}
		if strings.ContainsRune(value, 0) {
			return nil, usage("--run-env %s: the value holds a NUL byte", name)
		}
		env[name] = value
	}
	return env, nil
}

// namedBackends reads entries of NAME=/PATH.
func namedBackends(entries []string) (map[string]string, error) {
	named := map[string]string{}
	for _, entry := range entries {
		name, path, ok := strings.Cut(entry, "=")
		if !ok || name == "" || !filepath.IsAbs(path) {
			return nil, usage("--backend-plugin %q is not NAME=/PATH", entry)
		}
		if slices.Contains(backend.Names(), name) {
			return nil, usage("--backend-plugin %q: %s is a backend that Terrier has: choose another name", entry, name)
		}
		named[name] = path
	}
	return named, nil
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
