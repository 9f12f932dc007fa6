// Package address has the names of modules and providers in a registry, their platforms
// and their versions, with the grammars that clients have for them.
//
// A name that was parsed is safe as a part of a path and of a key: it has only letters,
// digits, '-', '_' and '.', and begins with a letter or a digit. The package knows no
// registry and asks no server. Start reading at Module.
package address

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
)

// Reason is the reason of every fault of this package.
const Reason = "AddressInvalid"

// Module is the name of a module in a registry, without the host.
type Module struct {
	Namespace, Name, System string
}

// Provider is the name of a provider. Host is empty for a provider of our own registry.
type Provider struct {
	Host, Namespace, Type string
}

// Platform is what a package of a provider runs on.
type Platform struct {
	OS, Arch string
}

var (
	moduleName   = regexp.MustCompile(`^[0-9A-Za-z]([0-9A-Za-z_-]{0,62}[0-9A-Za-z])?$`)
	moduleSystem = regexp.MustCompile(`^[0-9a-z]{1,64}$`)
	providerName = regexp.MustCompile(`^[0-9a-z](-?[0-9a-z]){0,63}$`)
	platformName = regexp.MustCompile(`^[0-9a-z]{1,32}$`)
	hostLabel    = regexp.MustCompile(`^[0-9a-z]([0-9a-z-]{0,61}[0-9a-z])?$`)
)

// NewModule checks the parts of the name of a module. Upper and lower case differ in
// namespace and name, as they do for clients.
func NewModule(namespace, name, system string) (Module, error) {
	const grammar = "use 1 to 64 letters, digits, dashes and underscores, with a letter or a digit at both ends"
	switch {
	case !moduleName.MatchString(namespace):
		return Module{}, invalid("%.80q cannot be the namespace of a module: %s", namespace, grammar)
	case !moduleName.MatchString(name):
		return Module{}, invalid("%.80q cannot be the name of a module: %s", name, grammar)
	case !moduleSystem.MatchString(system):
		return Module{}, invalid("%.80q cannot be the target system of a module: use 1 to 64 lower-case letters and digits", system)
	}
	return Module{Namespace: namespace, Name: name, System: system}, nil
}

// ParseModule reads namespace/name/system.
func ParseModule(text string) (Module, error) {
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return Module{}, invalid("%.250q is no address of a module: write namespace/name/system", text)
	}
	return NewModule(parts[0], parts[1], parts[2])
}

func (m Module) String() string { return m.Namespace + "/" + m.Name + "/" + m.System }

// NewProvider checks the parts of the name of a provider, in lower case, as clients
// write it. An empty host is our own.
func NewProvider(host, namespace, typ string) (Provider, error) {
	const grammar = "use 1 to 64 letters, digits and single dashes, with a letter or a digit at both ends"
	p := Provider{Host: strings.ToLower(host), Namespace: strings.ToLower(namespace), Type: strings.ToLower(typ)}
	if p.Host != "" {
		if err := checkHost(p.Host); err != nil {
			return Provider{}, err
		}
	}
	switch {
	case !isProviderName(p.Namespace):
		return Provider{}, invalid("%.80q cannot be the namespace of a provider: %s", namespace, grammar)
	case !isProviderName(p.Type):
		return Provider{}, invalid("%.80q cannot be the type of a provider: %s", typ, grammar)
	case strings.HasPrefix(p.Type, "terraform-"), strings.HasPrefix(p.Type, "opentofu-"):
		return Provider{}, invalid("the type %.80q of a provider begins with the name of an engine, and clients refuse it: leave out the prefix", typ)
	}
	return p, nil
}

func isProviderName(text string) bool { return len(text) <= 64 && providerName.MatchString(text) }

// ParseProvider reads namespace/type or host/namespace/type.
func ParseProvider(text string) (Provider, error) {
	switch parts := strings.Split(text, "/"); {
	case len(parts) == 2:
		return NewProvider("", parts[0], parts[1])
	case len(parts) == 3 && parts[0] != "":
		return NewProvider(parts[0], parts[1], parts[2])
	default:
		return Provider{}, invalid("%.250q is no address of a provider: write namespace/type or host/namespace/type", text)
	}
}

func (p Provider) String() string {
	if p.Host == "" {
		return p.Namespace + "/" + p.Type
	}
	return p.Host + "/" + p.Namespace + "/" + p.Type
}

// checkHost refuses what is no host name in lower case. A client takes the relative URL
// of a mirror that begins with host:port for one with a scheme, so a host has no port.
func checkHost(host string) error {
	if strings.Contains(host, ":") {
		return invalid("the host %.250q has a port, and clients cannot install providers of such a host through a mirror: serve the registry on port 443", host)
	}
	if len(host) > 250 {
		return invalid("the host %.80q… is longer than 250 characters", host)
	}
	for label := range strings.SplitSeq(host, ".") {
		if !hostLabel.MatchString(label) {
			return invalid("%.250q is no host name: use letters, digits, dashes and dots", host)
		}
	}
	return nil
}

// NewPlatform checks the parts of the name of a platform.
func NewPlatform(os, arch string) (Platform, error) {
	if !platformName.MatchString(os) || !platformName.MatchString(arch) {
		return Platform{}, invalid("%.80q is no platform: write OS_ARCH in lower case, as linux_amd64", os+"_"+arch)
	}
	return Platform{OS: os, Arch: arch}, nil
}

// ParsePlatform reads OS_ARCH.
func ParsePlatform(text string) (Platform, error) {
	os, arch, _ := strings.Cut(text, "_")
	p, err := NewPlatform(os, arch)
	if err != nil {
		return Platform{}, invalid("%.80q is no platform: write OS_ARCH in lower case, as linux_amd64", text)
	}
	return p, nil
}

func (p Platform) String() string { return p.OS + "_" + p.Arch }

// MarshalText writes OS_ARCH, so that a platform is a key in JSON.
func (p Platform) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads OS_ARCH.
func (p *Platform) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePlatform(string(text))
	return err
}

func invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, Reason, fmt.Errorf(format, args...))
}
