package oci

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry"
)

// reasonGone is the reason of the fault of an archive that an index names, and the store
// has no longer.
const reasonGone = "ArchiveGone"

// opened is an archive of the registry.
func (h *Handler) opened(ctx context.Context, key string) (registry.Archive, error) {
	a, err := h.Registry.OpenArchive(ctx, key)
	if fault.Of(err) == fault.Missing {
		h.Log.Error("archive is gone", "key", key)
		err = fault.New(fault.Missing, reasonGone, fmt.Errorf("the archive %s is no longer in the storage of the registry: restore it, or publish the same archive again", key))
	}
	return a, err
}

// moduleSource is a module that a user published.
type moduleSource struct {
	*Handler
	module address.Module
}

func (s moduleSource) entries(ctx context.Context) ([]entry, error) {
	versions, err := s.Registry.ModuleVersions(ctx, s.module)
	if err != nil {
		return nil, err
	}
	versions = slices.DeleteFunc(versions, func(v registry.ModuleVersion) bool { return v.Retracted != nil || !convertible(v.File) })
	var made record
	if slices.ContainsFunc(versions, func(v registry.ModuleVersion) bool { return !ready(v) }) {
		if made, err = s.zips.read(ctx, s.module); err != nil {
			return nil, err
		}
	}
	all := make([]entry, 0, len(versions))
	for _, v := range versions {
		e := entry{version: v.Version}
		if l, ok := s.zips.known(s.module, v, made); ok {
			e.layers = []layer{l}
		}
		all = append(all, e)
	}
	return all, nil
}

func (s moduleSource) layers(ctx context.Context, v address.Version) ([]layer, error) {
	version, err := s.Registry.ModuleVersion(ctx, s.module, v)
	if err != nil {
		return nil, err
	}
	if !convertible(version.File) {
		return nil, fault.New(fault.Missing, registry.VersionMissing, fmt.Errorf("version %s of %s is packed as %s, and only zip and gzipped tar archives are served over OCI: use the registry protocol, or publish a new version", v, s.module, version.File))
	}
	l, err := s.zips.layer(ctx, s.module, version)
	return []layer{l}, err
}

func (s moduleSource) open(ctx context.Context, l layer) (registry.Archive, error) {
	if !strings.HasPrefix(l.key, zipsPrefix) {
		return s.opened(ctx, l.key)
	}
	return s.zips.open(ctx, s.module, l)
}

func (moduleSource) of(v address.Version, layers []layer) []manifest {
	return []manifest{imageOf(moduleType, v, layers[0])}
}

func (moduleSource) what() string { return "the repository of a module in the registry" }
func (moduleSource) instead() string {
	return "publish a version with terrier module push, or push to a repository with another name"
}

// providerSource is a provider that a user published.
type providerSource struct {
	*Handler
	provider address.Provider
}

func (s providerSource) entries(ctx context.Context) ([]entry, error) {
	versions, err := s.Registry.ProviderVersions(ctx, s.provider)
	if err != nil {
		return nil, err
	}
	var all []entry
	for _, v := range versions {
		if v.Retracted == nil {
			all = append(all, entry{v.Version, s.packages(v)})
		}
	}
	return all, nil
}

func (s providerSource) layers(ctx context.Context, v address.Version) ([]layer, error) {
	version, err := s.Registry.ProviderVersion(ctx, s.provider, v)
	if err != nil {
		return nil, err
	}
	all := s.packages(version)
	if all == nil {
		return nil, fault.New(fault.Missing, registry.VersionMissing, fmt.Errorf("version %s of %s has no package with a checksum", v, s.provider))
	}
	return all, nil
}

// packages are the archives of a version; nil if one of them was not read yet.
func (s providerSource) packages(v registry.ProviderVersion) []layer {
	var all []layer
	for on, p := range v.Packages {
		if p.SHA256 == "" || p.Size == 0 {
			return nil
		}
		file := registry.PackageFile(s.provider, v.Version, on)
		all = append(all, layer{registry.ProviderKey(s.provider, file), file, p.SHA256, p.Size, on})
	}
	sortLayers(all)
	return all
}

func sortLayers(all []layer) {
	slices.SortFunc(all, func(a, b layer) int { return strings.Compare(a.platform.String(), b.platform.String()) })
}

func (s providerSource) open(ctx context.Context, l layer) (registry.Archive, error) {
	return s.opened(ctx, l.key)
}

func (providerSource) of(v address.Version, layers []layer) []manifest {
	return providerManifests(v, layers)
}

func (providerSource) what() string { return "the repository of a provider in the registry" }
func (providerSource) instead() string {
	return "publish a version with terrier provider push, or push to a repository with another name"
}
