package cosign

import (
	"errors"
	"fmt"
	"iter"
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
func referrers(at name.Digest, options []remote.Option, t *tally) iter.Seq2[candidate, error] {
	return func(yield func(candidate, error) bool) {
		index, err := remote.Referrers(at, options...)
		if err != nil {
			yield(candidate{}, fmt.Errorf("listing signatures: %w", err))
			return
		}
		manifest, err := index.IndexManifest()
		if err != nil {
			yield(candidate{}, fmt.Errorf("listing signatures: %w", err))
			return
		}
		left := budget{candidatesMost, bytesMost}
		for _, d := range manifest.Manifests {
			if !strings.HasPrefix(d.ArtifactType, bundleType) {
				continue
			}
			if !left.one() {
				t.left++
				continue
			}
			content, err := bundleOf(at, d, options, &left)
			if errors.Is(err, errBudget) {
				t.left++
				continue
			}
			useless, is := errors.AsType[unusable](err)
			if err != nil && !is {
				yield(candidate{}, fmt.Errorf("fetching the signature %s: %w", d.Digest, err))
				return
			}
			read := func(bool) (*bundle.Bundle, error) {
				if is {
					return nil, useless
				}
				b := &bundle.Bundle{}
				if err := b.UnmarshalJSON(content); err != nil {
					return nil, fmt.Errorf("reading the bundle: %w", err)
				}
				return b, nil
			}
			if !yield(candidate{bundle: read}, nil) {
				return
			}
		}
	}
}

// bundleOf reads the bundle in a manifest.
func bundleOf(at name.Digest, of v1.Descriptor, options []remote.Option, left *budget) ([]byte, error) {
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
			return layerOf(image, l, bundleBytes, left)
		}
	}
	return nil, unusable{fmt.Errorf("the manifest has no layer of the type %s", bundleType)}
}

// unusable is the error of something that is no signature. Others may be there beside it.
type unusable struct{ error }
