package cosign

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/sigstore/sigstore-go/pkg/bundle"
)

// bundleType begins the media types of bundles of Sigstore.
const bundleType = "application/vnd.dev.sigstore.bundle"

// referrers finds the signatures of an artifact in the form of bundles: manifests that say of
// themselves that they refer to the artifact. A registry lists them, or clients keep the list
// under the tag sha256-….
func referrers(_ context.Context, at name.Digest, options []remote.Option) ([]candidate, error) {
	index, err := remote.Referrers(at, options...)
	if err != nil {
		return nil, fmt.Errorf("listing signatures: %w", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("listing signatures: %w", err)
	}
	var out []candidate
	for _, d := range manifest.Manifests {
		if len(out) == candidatesMost {
			break
		}
		if !strings.HasPrefix(d.ArtifactType, bundleType) {
			continue
		}
		content, err := bundleOf(at, d, options)
		useless, is := errors.AsType[unusable](err)
		if err != nil && !is {
			return nil, fmt.Errorf("fetching the signature %s: %w", d.Digest, err)
		}
		out = append(out, candidate{bundle: func(bool) (*bundle.Bundle, error) {
			if is {
				return nil, useless
			}
			b := &bundle.Bundle{}
			if err := b.UnmarshalJSON(content); err != nil {
				return nil, fmt.Errorf("reading the bundle: %w", err)
			}
			return b, nil
		}})
	}
	return out, nil
}

// bundleOf reads the bundle in a manifest.
func bundleOf(at name.Digest, of v1.Descriptor, options []remote.Option) ([]byte, error) {
	image, err := remote.Image(at.Context().Digest(of.Digest.String()), options...)
	if err != nil {
		return nil, err
	}
	manifest, err := image.Manifest()
	if err != nil {
		return nil, err
	}
	for _, l := range manifest.Layers {
		if strings.HasPrefix(string(l.MediaType), bundleType) {
			return layerOf(image, l, bundleBytes)
		}
	}
	return nil, unusable{fmt.Errorf("the manifest has no layer of the type %s", bundleType)}
}

// unusable is the error of something that is no signature. Others may be there beside it.
type unusable struct{ error }
