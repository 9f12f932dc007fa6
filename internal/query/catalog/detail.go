package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/inspect"
)

// Document is the documentation of a version of a module, and Part of one directory of it.
type (
	Document = inspect.Module
	Part     = inspect.Part
)

// Module is a module, and one of its versions.
type Module struct {
	Address   string         `json:"address"` // NAMESPACE/NAME/SYSTEM
	Namespace string         `json:"namespace"`
	Name      string         `json:"name"`
	System    string         `json:"system"`
	Versions  []Version      `json:"versions"` // the newest first
	Version   Version        `json:"version"`  // the one that the documentation is of
	Document  *Document      `json:"document,omitempty"`
	Problem   string         `json:"problem,omitempty"`     // why there is no documentation
	Tags      []TagProblem   `json:"tags,omitempty"`        // that contradict the version: its tag has moved, for instance
	TagsText  string         `json:"tagsProblem,omitempty"` // why it is not known which do
	Of        address.Module `json:"-"`
}

// Version is a version of a module.
type Version struct {
	Version   address.Version `json:"version"`
	Published time.Time       `json:"published,omitzero"` // zero if another program published it
	By        string          `json:"by,omitempty"`
	Size      int64           `json:"size,omitempty"`   // of the archive, in bytes
	SHA256    string          `json:"sha256,omitempty"` // of the archive, in hex
	Retracted *Retraction     `json:"retracted,omitempty"`
	Origin    *Origin         `json:"origin,omitempty"` // the tag of a git repository that it was made from; absent if a user uploaded it
}

// Origin is the tag of a git repository that a version was made from.
type Origin = registry.Origin

// Retraction says why a version was withdrawn.
type Retraction struct {
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at,omitzero"`
}

func retractionOf(r *registry.Retraction) *Retraction {
	if r == nil {
		return nil
	}
	return &Retraction{r.By, r.Reason, r.At}
}

func versionOf(v registry.ModuleVersion) Version {
	return Version{v.Version, v.Published, v.By, v.Size, v.SHA256, retractionOf(v.Retracted), v.Origin}
}

// Module is a module with the documentation of a version, the newest one that clients may
// use if version is empty.
func (c *Catalog) Module(ctx context.Context, m address.Module, version string) (Module, error) {
	all, v, err := c.version(ctx, m, version)
	if err != nil {
		return Module{}, err
	}
	d := Module{Address: m.String(), Namespace: m.Namespace, Name: m.Name, System: m.System, Version: versionOf(v), Of: m}
	for _, one := range slices.Backward(all) {
		d.Versions = append(d.Versions, versionOf(one))
	}
	if d.Tags, err = c.tagProblems(ctx, m, v.Version); err != nil {
		d.TagsText = err.Error()
	}
	doc, err := c.o.Documents.Module(ctx, m, v)
	switch kind := fault.Of(err); {
	case err == nil:
		d.Document = &doc
	case ctx.Err() != nil:
		return d, context.Cause(ctx)
	case kind == fault.Broken:
		return d, err
	default:
		d.Problem = err.Error()
	}
	return d, nil
}

func (c *Catalog) version(ctx context.Context, m address.Module, version string) ([]registry.ModuleVersion, registry.ModuleVersion, error) {
	all, err := c.o.Registry.ModuleVersions(ctx, m)
	if err != nil {
		return nil, registry.ModuleVersion{}, err
	}
	if version == "" {
		version = registry.Latest
	}
	v, err := registry.Choose(m, all, version)
	return all, v, err
}

// ModuleArchive is the signed address of the archive of a version. A version that is
// retracted has none.
func (c *Catalog) ModuleArchive(ctx context.Context, m address.Module, v address.Version) (string, error) {
	found, err := c.o.Registry.ModuleVersion(ctx, m, v)
	if err != nil {
		return "", err
	}
	return c.o.Archive(registry.ModuleKey(m, found.File), found.SHA256), nil
}

// Provider is a provider, one of its versions, and the keys of its namespace.
type Provider struct {
	Address   string            `json:"address"` // NAMESPACE/TYPE
	Namespace string            `json:"namespace"`
	Type      string            `json:"type"`
	Versions  []ProviderVersion `json:"versions"` // the newest first
	Version   ProviderVersion   `json:"version"`
	Keys      []Key             `json:"keys"` // of the namespace
	Of        address.Provider  `json:"-"`
}

// ProviderVersion is a version of a provider.
type ProviderVersion struct {
	Version   address.Version `json:"version"`
	Published time.Time       `json:"published,omitzero"` // zero if another program published it
	By        string          `json:"by,omitempty"`
	Protocols []string        `json:"protocols,omitempty"` // of plug-ins
	KeyID     string          `json:"keyID,omitempty"`     // that signed it
	Packages  []Package       `json:"packages"`            // by platform
	Retracted *Retraction     `json:"retracted,omitempty"`
}

// Package is the archive of a provider for a platform.
type Package struct {
	Platform string `json:"platform"` // OS_ARCH
	File     string `json:"file"`
	SHA256   string `json:"sha256,omitempty"`
	H1       string `json:"h1,omitempty"`
	Size     int64  `json:"size,omitempty"` // in bytes
}

// Key is a public key of a namespace.
type Key struct {
	ID    string    `json:"id"`
	Armor string    `json:"armor"`          // in ASCII
	Added time.Time `json:"added,omitzero"` // zero if that is not known
	By    string    `json:"by,omitempty"`
}

func providerVersionOf(p address.Provider, v registry.ProviderVersion) ProviderVersion {
	out := ProviderVersion{Version: v.Version, Published: v.Published, By: v.By, Protocols: v.Protocols, KeyID: v.Key, Packages: []Package{}, Retracted: retractionOf(v.Retracted)}
	for platform, pkg := range v.Packages {
		out.Packages = append(out.Packages, Package{platform.String(), registry.PackageFile(p, v.Version, platform), pkg.SHA256, pkg.H1, pkg.Size})
	}
	slices.SortFunc(out.Packages, func(a, b Package) int { return strings.Compare(a.Platform, b.Platform) })
	return out
}

// chooseProvider is registry.Choose for providers.
func chooseProvider(p address.Provider, all []registry.ProviderVersion, text string) (registry.ProviderVersion, error) {
	as := make([]registry.ModuleVersion, len(all))
	for i, v := range all {
		as[i] = registry.ModuleVersion{Version: v.Version, Retracted: v.Retracted}
	}
	v, err := registry.Choose(address.Module{}, as, text)
	if fault.Of(err) == fault.Missing {
		err = fault.New(fault.Missing, registry.VersionMissing, fmt.Errorf("%s has no version %.80s", p, text))
	}
	if err != nil {
		return registry.ProviderVersion{}, err
	}
	return all[slices.IndexFunc(all, func(one registry.ProviderVersion) bool { return one.Version == v.Version })], nil
}

// Provider is a provider with one of its versions, the newest one that clients may use if
// version is empty.
func (c *Catalog) Provider(ctx context.Context, p address.Provider, version string) (Provider, error) {
	all, err := c.o.Registry.ProviderVersions(ctx, p)
	if err != nil {
		return Provider{}, err
	}
	if version == "" {
		version = registry.Latest
	}
	v, err := chooseProvider(p, all, version)
	if err != nil {
		return Provider{}, err
	}
	if v.Retracted == nil { // checksums of another program are in its signed list
		whole, err := c.o.Registry.ProviderVersion(ctx, p, v.Version)
		if err != nil {
			return Provider{}, err
		}
		v = whole
	}
	d := Provider{Address: p.Namespace + "/" + p.Type, Namespace: p.Namespace, Type: p.Type, Version: providerVersionOf(p, v), Of: p}
	for _, one := range slices.Backward(all) {
		d.Versions = append(d.Versions, providerVersionOf(p, one))
	}
	d.Keys, err = c.Keys(ctx, p.Namespace)
	return d, err
}

// Keys are the public keys that a namespace signs its providers with.
func (c *Catalog) Keys(ctx context.Context, namespace string) ([]Key, error) {
	all, err := c.o.Registry.AddedKeys(ctx, namespace)
	out := []Key{}
	for _, k := range all {
		out = append(out, Key{k.ID, k.Armor, k.Added, k.By})
	}
	return out, err
}
