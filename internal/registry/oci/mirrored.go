package oci

import (
	"context"
	"errors"
	"fmt"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/mirror"
	"github.com/terrier-iac/terrier/internal/registry/protocol"
)

// mirrorSource is a provider of another registry, as a tenant may install it.
type mirrorSource struct {
	*Handler
	provider address.Provider
	tenant   string
}

// mirrored is the source of a repository of the mirror. A caller of a tenant installs for
// that tenant alone; others for a namespace in which they may read.
func (h *Handler) mirrored(ctx context.Context, c protocol.Caller, to route) (source, string, error) {
	switch {
	case h.Mirror == nil:
		return nil, "", fault.New(fault.Missing, mirror.ReasonMissing, errors.New("the registry mirrors no providers"))
	case c.Tenant != "" && c.Tenant != to.namespace:
		return nil, "", fault.New(fault.Denied, "TenantDenied", fmt.Errorf("%s installs providers as the tenant %s, and not as %.80q: write %s/%s/… as the name of the repository", c.Name, c.Tenant, to.namespace, c.Tenant, mirrorShape))
	case c.Tenant == "":
		if err := h.Rights.May(ctx, c, protocol.Read, to.namespace); err != nil {
			return nil, "", err
		}
	}
	p, err := address.NewProvider(to.parts[0], to.parts[1], to.parts[2])
	return mirrorSource{h, p, to.namespace}, to.namespace, err
}

func (s mirrorSource) entries(ctx context.Context) ([]entry, error) {
	versions, err := s.Mirror.Versions(ctx, s.tenant, s.provider)
	if err != nil {
		return nil, err
	}
	index, err := s.Mirror.Index(ctx, s.provider)
	if err != nil {
		return nil, err
	}
	all := make([]entry, 0, len(versions))
	for _, v := range versions {
		e := entry{version: v}
		if index != nil && index.Releases[v] != nil {
			e.layers = s.archives(v, mirror.SizedFiles(s.provider, v, index.Releases[v]))
		}
		all = append(all, e)
	}
	return all, nil
}

func (s mirrorSource) layers(ctx context.Context, v address.Version) ([]layer, error) {
	files, err := mirror.Sized(ctx, s.Mirror, s.tenant, s.provider, v)
	if err != nil {
		return nil, err
	}
	return s.archives(v, files), nil
}

func (s mirrorSource) archives(v address.Version, files mirror.Files) []layer {
	var all []layer
	for on, f := range files {
		all = append(all, layer{f.Key, registry.PackageFile(s.provider, v, on), f.SHA256, f.Size, on})
	}
	sortLayers(all)
	return all
}

func (s mirrorSource) open(ctx context.Context, l layer) (registry.Archive, error) {
	return s.Mirror.OpenArchive(ctx, s.tenant, l.key)
}

func (mirrorSource) of(v address.Version, layers []layer) []manifest {
	return providerManifests(v, layers)
}

func (mirrorSource) what() string { return "a repository of the mirror" }
func (mirrorSource) instead() string {
	return "its providers come from other registries: push to a repository with another name"
}
