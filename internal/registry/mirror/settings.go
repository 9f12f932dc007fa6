package mirror

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/fault"
)

// Settings are what the operator decides about a mirror, from a file in YAML. Without a
// file, the mirror serves Defaults.
type Settings struct {
	// Upstreams are the registries that are mirrored, by the host that stands in the
	// sources of providers.
	Upstreams map[string]Upstream `json:"upstreams"`
	// Rules say who may install what. Without rules, every tenant may install all
	// providers of the upstreams.
	Rules []Rule `json:"rules,omitempty"`
	// DeleteUnusedAfter is the time after which an archive that no client used is deleted;
	// never if zero.
	DeleteUnusedAfter Duration `json:"deleteUnusedAfter,omitempty"`
}

// Upstream says how one registry is reached.
type Upstream struct {
	URL             string   `json:"url,omitempty"`             // where discovery begins; https://HOST/ if empty
	TokenFile       string   `json:"tokenFile,omitempty"`       // the token is read for each request, and sent to the origin of URL alone
	CAFile          string   `json:"caFile,omitempty"`          // certificate authorities in PEM, besides those of the system
	Proxy           string   `json:"proxy,omitempty"`           // the URL of an HTTP proxy, in place of the one of the environment
	Timeout         Duration `json:"timeout,omitempty"`         // of one document; 10 s
	DownloadTimeout Duration `json:"downloadTimeout,omitempty"` // of one archive; 10 min
	IdleTimeout     Duration `json:"idleTimeout,omitempty"`     // without a byte of an archive; 30 s
	Unsigned        bool     `json:"unsigned,omitempty"`        // accept releases for which the registry names no key
	Offline         bool     `json:"offline,omitempty"`         // never ask it: only stored and imported archives are served
}

// Rule allows and denies providers to tenants. A denial of any rule wins. A tenant for
// which a rule has an allow list may install only what such a list has.
type Rule struct {
	Tenants []string  `json:"tenants,omitempty"` // names or patterns, as team-*; all tenants if empty
	Allow   []Pattern `json:"allow,omitempty"`
	Deny    []Pattern `json:"deny,omitempty"`
}

// Pattern matches versions of providers.
type Pattern struct {
	Provider string `json:"provider"`           // HOST/NAMESPACE/TYPE; each part may have a *
	Versions string `json:"versions,omitempty"` // a constraint as in a configuration; all versions if empty
	Reason   string `json:"reason,omitempty"`   // why it is denied, and what to do
}

// Duration is written as 10s or 5m.
type Duration time.Duration

// UnmarshalJSON implements json.Unmarshaler.
func (d *Duration) UnmarshalJSON(text []byte) error {
	parsed, err := time.ParseDuration(strings.Trim(string(text), `"`))
	if err != nil {
		return fmt.Errorf("%.40s is no duration: write it as 10s or 5m", text)
	}
	*d = Duration(parsed)
	return nil
}

// MarshalJSON implements json.Marshaler.
func (d Duration) MarshalJSON() ([]byte, error) {
	return []byte(`"` + time.Duration(d).String() + `"`), nil
}

// The public registry that accepts providers without keys: engines do not ask for a
// signature there, so neither does the mirror.
const publicHost = "registry.opentofu.org"

// Defaults are the settings of a mirror that has no file: the two public registries.
func Defaults() Settings {
	return Settings{Upstreams: map[string]Upstream{publicHost: {}, "registry.terraform.io": {}}}
}

// ReasonSettings is the reason of a fault in the settings.
const ReasonSettings = "MirrorSettingsInvalid"

// ParseSettings reads settings. An unknown field is an error.
func ParseSettings(text []byte) (Settings, error) {
	var s Settings
	err := yaml.UnmarshalStrict(text, &s)
	if err == nil {
		err = s.check()
	}
	if err != nil {
		return Settings{}, fault.New(fault.Invalid, ReasonSettings, fmt.Errorf("reading the settings of the mirror: %w", err))
	}
	return s, nil
}

func (s Settings) check() error {
	var errs []error
	if len(s.Upstreams) == 0 {
		errs = append(errs, errors.New("upstreams: name at least one registry"))
	}
	for host, u := range s.Upstreams {
		if err := u.check(host); err != nil {
			errs = append(errs, fmt.Errorf("upstreams.%s: %w", host, err))
		}
	}
	if s.DeleteUnusedAfter != 0 && s.DeleteUnusedAfter < Duration(48*time.Hour) {
		errs = append(errs, errors.New("deleteUnusedAfter: uses are recorded by the day, so write at least 48h"))
	}
	for i, r := range s.Rules {
		if err := r.check(); err != nil {
			errs = append(errs, fmt.Errorf("rules[%d]: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

func (u Upstream) check(host string) error {
	var errs []error
	if p, err := address.NewProvider(host, "namespace", "type"); err != nil {
		errs = append(errs, err)
	} else if p.Host != host {
		errs = append(errs, fmt.Errorf("write the host in lower case: %s", p.Host))
	}
	if at, err := u.base(host); err != nil || at.Scheme != "https" || at.Host == "" || at.User != nil || at.RawQuery != "" {
		errs = append(errs, errors.New("url: write https://HOST[:PORT]/, without credentials"))
	}
	if u.Proxy != "" {
		if at, err := url.Parse(u.Proxy); err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" {
			errs = append(errs, errors.New("proxy: write http://HOST:PORT")) // it may hold a password
		}
	}
	for name, d := range map[string]Duration{"timeout": u.Timeout, "downloadTimeout": u.DownloadTimeout, "idleTimeout": u.IdleTimeout} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("%s: it is negative", name))
		}
	}
	return errors.Join(errs...)
}

// base is where discovery begins.
func (u Upstream) base(host string) (*url.URL, error) {
	if u.URL == "" {
		return &url.URL{Scheme: "https", Host: host, Path: "/"}, nil
	}
	return url.Parse(u.URL)
}

// roots are the certificate authorities that are trusted for an upstream: base, or those
// of the system, and the ones of its file.
func (u Upstream) roots(base *x509.CertPool) (*x509.CertPool, error) {
	if u.CAFile == "" {
		return base, nil
	}
	pem, err := os.ReadFile(u.CAFile)
	if err != nil {
		return nil, fmt.Errorf("caFile: %w", err)
	}
	var all *x509.CertPool
	if base != nil {
		all = base.Clone()
	} else if all, err = x509.SystemCertPool(); err != nil {
		return nil, fmt.Errorf("reading the certificate authorities of the system: %w", err)
	}
	if !all.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("caFile: %s has no certificate in PEM", u.CAFile)
	}
	return all, nil
}

func (r Rule) check() error {
	var errs []error
	if slices.Contains(r.Tenants, "") {
		errs = append(errs, errors.New("tenants: write names, or patterns with a *"))
	}
	if len(r.Allow) == 0 && len(r.Deny) == 0 {
		errs = append(errs, errors.New("allow and deny are empty: name providers in one of them"))
	}
	for list, patterns := range map[string][]Pattern{"allow": r.Allow, "deny": r.Deny} {
		for i, p := range patterns {
			if err := p.check(); err != nil {
				errs = append(errs, fmt.Errorf("%s[%d]: %w", list, i, err))
			}
		}
	}
	return errors.Join(errs...)
}

func (p Pattern) check() error {
	const form = "write HOST/NAMESPACE/TYPE in lower case, where each part may have a *"
	parts := strings.Split(p.Provider, "/")
	if len(parts) != 3 || slices.Contains(parts, "") {
		return fmt.Errorf("provider: %.250q is no pattern of providers: %s", p.Provider, form)
	}
	whole := strings.NewReplacer("*", "x") // what a pattern can be has the grammar of an address
	if named, err := address.NewProvider(whole.Replace(parts[0]), whole.Replace(parts[1]), whole.Replace(parts[2])); err != nil || named.String() != whole.Replace(p.Provider) {
		return errors.Join(fmt.Errorf("provider: %.250q matches no provider: %s", p.Provider, form), err)
	}
	if _, err := parseConstraint(p.Versions); err != nil {
		return fmt.Errorf("versions: %w", err)
	}
	return nil
}
