package registry

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry/signature"
)

// ProviderVersion is what a registry knows about one version of a provider.
type ProviderVersion struct {
	Version   address.Version              `json:"-"`
	Protocols []string                     `json:"protocols,omitempty"` // of plug-ins, as 5.0; none if another program published it
	Packages  map[address.Platform]Package `json:"packages"`
	Key       string                       `json:"key,omitempty"` // the ID of the key that signed it, if that is known
	Published time.Time                    `json:"published,omitzero"`
	By        string                       `json:"by,omitempty"`
	Retracted *Retraction                  `json:"retracted,omitempty"` // nil: clients may use it
}

// Package is the archive of a provider for one platform.
type Package struct {
	SHA256 string `json:"sha256,omitempty"` // in hex, from the signed list
	H1     string `json:"h1,omitempty"`     // of the unpacked package, with its scheme; empty if another program published it
	Size   int64  `json:"size,omitempty"`   // in bytes
}

// whole reports whether everything is known that a client needs for a download.
func (v ProviderVersion) whole() bool {
	for _, p := range v.Packages {
		if p.SHA256 == "" || p.Size == 0 {
			return false
		}
	}
	return true
}

// providers is the part of a registry that has providers.
type providers struct {
	*common
	index *indexes[providerIndex]
}

// providerIndex is the index of a provider.
type providerIndex struct {
	Versions map[address.Version]ProviderVersion `json:"versions"`
	inOrder  []ProviderVersion
}

func (p providerIndex) entries() int { return len(p.Versions) }

func (p providerIndex) arranged() providerIndex {
	p.inOrder = make([]ProviderVersion, 0, len(p.Versions))
	for version, v := range p.Versions {
		v.Version = version
		p.inOrder = append(p.inOrder, v)
	}
	address.SortByVersion(p.inOrder, func(v ProviderVersion) address.Version { return v.Version })
	return p
}

// ProviderKey is the key of a file of a provider.
func ProviderKey(p address.Provider, file string) string {
	return providersPrefix + p.Namespace + "/" + p.Type + "/" + file
}

func providerIndexKey(p address.Provider) string {
	return "index/" + providersPrefix + p.Namespace + "/" + p.Type + ".json"
}

// ProviderVersions are all versions of a provider, the lowest first, those that are
// retracted included.
func (r *providers) ProviderVersions(ctx context.Context, p address.Provider) ([]ProviderVersion, error) {
	all, err := r.ListedProvider(ctx, p)
	return slices.Clone(all.Versions), err
}

// ListedProvider are the versions of ProviderVersions, with their edition.
func (r *providers) ListedProvider(ctx context.Context, p address.Provider) (Listed[ProviderVersion], error) {
	index, edition, err := r.known(ctx, p)
	if err != nil {
		return Listed[ProviderVersion]{}, err
	}
	return Listed[ProviderVersion]{index.inOrder, edition}, nil
}

// ProviderVersion is one version of a provider, with the checksums of its packages,
// unless it is retracted.
func (r *providers) ProviderVersion(ctx context.Context, p address.Provider, v address.Version) (ProviderVersion, error) {
	index, _, err := r.known(ctx, p)
	if err != nil {
		return ProviderVersion{}, err
	}
	found, ok := index.Versions[v]
	switch {
	case !ok:
		return ProviderVersion{}, errVersion(p, v)
	case found.Retracted != nil:
		return ProviderVersion{}, errRetracted(p, v, found.Retracted)
	case !found.whole():
		found, err = r.complete(ctx, p, v, found)
	}
	found.Version = v
	return found, err
}

func (r *providers) known(ctx context.Context, p address.Provider) (providerIndex, Edition, error) {
	index, edition, err := r.index.edition(ctx, providerIndexKey(p), named(r.common, Providers, p.Namespace, p.Type, r.listProvider(p)))
	if err == nil && index.entries() == 0 {
		err = fault.New(fault.Missing, ProviderMissing, fmt.Errorf("there is no provider %s", p))
	}
	return index, edition, err
}

// listProvider finds the versions of a provider that has no index. A version is there if
// its list of checksums, the signature on it, and a package are.
func (r *providers) listProvider(p address.Provider) rebuild[providerIndex] {
	return func(ctx context.Context) (providerIndex, error) {
		index := providerIndex{Versions: map[address.Version]ProviderVersion{}}
		keys, err := r.store.List(ctx, ProviderKey(p, ""))
		if err != nil {
			return index, err
		}
		parts := map[address.Version]int{}
		for _, key := range keys {
			file := path.Base(key)
			v, part, err := parseFile(p, file)
			if err != nil || key != ProviderKey(p, file) {
				continue
			}
			there := index.Versions[v]
			if platform, ok := part.platform(); ok {
				if there.Packages == nil {
					there.Packages = map[address.Platform]Package{}
				}
				there.Packages[platform] = Package{}
			} else if part == sumsPart || part == signaturePart {
				parts[v]++
			}
			index.Versions[v] = there
		}
		maps.DeleteFunc(index.Versions, func(v address.Version, there ProviderVersion) bool {
			return parts[v] != 2 || len(there.Packages) == 0
		})
		if index.entries() == 0 {
			return index, nil
		}
		if err := r.addName(ctx, Providers, p.Namespace, p.Type); err != nil {
			r.o.Log.Warn("names not written", "provider", p.String(), "err", err)
		}
		return index, nil
	}
}

// part is the end of the name of a file of a provider, which says what is in it.
type part string

const (
	sumsPart      part = "SHA256SUMS"
	signaturePart part = "SHA256SUMS.sig"
	manifestPart  part = "manifest.json"
)

// platform is the one of a package.
func (p part) platform() (address.Platform, bool) {
	text, zip := strings.CutSuffix(string(p), ".zip")
	platform, err := address.ParsePlatform(text)
	return platform, zip && err == nil
}

// parseFile reads the name of a file of a provider.
func parseFile(p address.Provider, file string) (address.Version, part, error) {
	rest, ours := strings.CutPrefix(file, "terraform-provider-"+p.Type+"_")
	version, end, _ := strings.Cut(rest, "_")
	v, err := address.ParseVersion(version)
	if !ours || err != nil {
		return "", "", errFile(p, file)
	}
	switch part := part(end); part {
	case sumsPart, signaturePart, manifestPart:
		return v, part, nil
	default:
		if _, ok := part.platform(); !ok {
			return "", "", errFile(p, file)
		}
		return v, part, nil
	}
}

func errFile(p address.Provider, file string) error {
	name := "terraform-provider-" + p.Type + "_VERSION_"
	return fault.New(fault.Invalid, UploadInvalid, fmt.Errorf("%.250q is no file of the provider %s: the names are %sSHA256SUMS, %sSHA256SUMS.sig, %sOS_ARCH.zip and %smanifest.json", file, p, name, name, name, name))
}

// fileOf is the name of a file of a provider.
func fileOf(p address.Provider, v address.Version, part part) string {
	return "terraform-provider-" + p.Type + "_" + string(v) + "_" + string(part)
}

// Files are the names of the files of a version: the signed list of checksums and its
// signature.
func Files(p address.Provider, v address.Version) (sums, signature string) {
	return fileOf(p, v, sumsPart), fileOf(p, v, signaturePart)
}

// PackageFile is the name of the archive for a platform.
func PackageFile(p address.Provider, v address.Version, platform address.Platform) string {
	return fileOf(p, v, part(platform.String()+".zip"))
}

// complete finds the checksums and sizes of a version that another program published,
// and writes them into the index.
func (r *providers) complete(ctx context.Context, p address.Provider, v address.Version, there ProviderVersion) (ProviderVersion, error) {
	sums, err := r.whole(ctx, ProviderKey(p, fileOf(p, v, sumsPart)), signature.MaxSums)
	if err != nil {
		return ProviderVersion{}, err
	}
	parsed, err := signature.ParseSums(sums)
	if err != nil {
		return ProviderVersion{}, fmt.Errorf("reading the checksums of %s %s: %w", p, v, err)
	}
	packages := map[address.Platform]Package{}
	for platform := range there.Packages {
		file := PackageFile(p, v, platform)
		sum, ok := parsed[file]
		if !ok {
			r.o.Log.Warn("package without a checksum", "provider", p.String(), "file", file)
			continue
		}
		value, err := r.store.Open(ctx, ProviderKey(p, file))
		if err == nil {
			err = value.Close()
		}
		if err != nil {
			return ProviderVersion{}, err
		}
		packages[platform] = Package{SHA256: sum, Size: value.Size}
	}
	there.Packages = packages
	if by, err := r.signer(ctx, p, v, sums); err == nil {
		there.Key = by.KeyID
	}
	err = r.index.update(ctx, providerIndexKey(p), r.listProvider(p), func(index *providerIndex) error {
		if now, ok := index.Versions[v]; ok && !now.whole() {
			now.Packages, now.Key = there.Packages, there.Key
			index.Versions[v] = now
		}
		return nil
	})
	if err != nil {
		r.o.Log.Warn("index not written", "provider", p.String(), "err", err)
	}
	return there, nil
}

// signer is the key that signed the list of checksums of a version that is stored.
func (r *providers) signer(ctx context.Context, p address.Provider, v address.Version, sums []byte) (signature.Signer, error) {
	sig, err := r.whole(ctx, ProviderKey(p, fileOf(p, v, signaturePart)), mostSignature)
	if err != nil {
		return signature.Signer{}, err
	}
	keys, err := r.Keys(ctx, p.Namespace)
	if err != nil {
		return signature.Signer{}, err
	}
	return signature.Verify(sums, sig, keys, r.o.Now())
}

// RetractProvider withdraws a version of a provider.
func (r *providers) RetractProvider(ctx context.Context, p address.Provider, v address.Version, by, reason string) error {
	retraction, err := r.retraction(by, reason)
	if err != nil {
		return err
	}
	deed := r.deed(ProviderRetracted, by, p.Namespace, p, v)
	deed.Reason = retraction.Reason
	return r.changeProvider(ctx, deed, p, v, func(there *ProviderVersion) { there.Retracted = retraction })
}

// RestoreProvider ends the retraction of a version of a provider.
func (r *providers) RestoreProvider(ctx context.Context, p address.Provider, v address.Version, by string) error {
	return r.changeProvider(ctx, r.deed(ProviderRestored, by, p.Namespace, p, v), p, v, func(there *ProviderVersion) { there.Retracted = nil })
}

func (r *providers) changeProvider(ctx context.Context, deed *deeds, p address.Provider, v address.Version, change func(*ProviderVersion)) error {
	if _, _, err := r.known(ctx, p); err != nil {
		return err
	}
	return r.index.update(ctx, providerIndexKey(p), r.listProvider(p), func(index *providerIndex) error {
		there, ok := index.Versions[v]
		if !ok {
			return errVersion(p, v)
		}
		change(&there)
		index.Versions[v] = there
		return deed.done(ctx)
	})
}
