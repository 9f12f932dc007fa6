package image

import (
	"fmt"
	"runtime"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/terrier-iac/terrier/internal/fault"
)

// built is an image that can be pushed: one of one platform, or an index of several.
type built struct {
	digest v1.Hash
	push   func(name.Tag, []remote.Option) error
}

// build makes an image on a base and lets use have it, whose files are gone afterwards.
func (b *Builder) build(under base, w Wanted, use func(built) error) (digest v1.Hash, err error) {
	err = b.scratch(func(dir string) error {
		file, err := b.layer(dir, w.Archive)
		if err != nil {
			return fault.New(fault.Of(err), fault.Reason(err, ReasonBuild), fmt.Errorf("packing the code for the image: %w", err))
		}
		layer, err := tarball.LayerFromFile(file)
		if err != nil {
			return fmt.Errorf("packing the code for the image: %w", err)
		}
		made, err := on(under, layer, w)
		if err != nil {
			return failed(ReasonBase, "building on the base image", err)
		}
		digest = made.digest
		return use(made)
	})
	return digest, err
}

// on puts a layer onto a base, and onto each platform of it if there are several.
func on(under base, layer v1.Layer, w Wanted) (built, error) {
	if under.Descriptor != nil && under.MediaType.IsIndex() {
		index, err := under.ImageIndex()
		if err != nil {
			return built{}, err
		}
		return onIndex(index, layer, w)
	}
	image, err := under.image()
	if err != nil {
		return built{}, err
	}
	if image, err = onImage(image, layer, w); err != nil {
		return built{}, err
	}
	digest, err := image.Digest()
	return built{digest, func(tag name.Tag, options []remote.Option) error { return remote.Write(tag, image, options...) }}, err
}

// scratchPlatform is the platform of an image without a base, which holds no program.
var scratchPlatform = v1.Platform{OS: "linux", Architecture: runtime.GOARCH}

// image is a base that is one image, or an empty one.
func (b base) image() (v1.Image, error) {
	if b.Descriptor != nil {
		return b.Image()
	}
	return mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS: scratchPlatform.OS, Architecture: scratchPlatform.Architecture, RootFS: v1.RootFS{Type: "layers"},
	})
}

func onIndex(base v1.ImageIndex, layer v1.Layer, w Wanted) (built, error) {
	manifest, err := base.IndexManifest()
	if err != nil {
		return built{}, err
	}
	index := mutate.IndexMediaType(empty.Index, manifest.MediaType)
	for _, m := range manifest.Manifests {
		if !m.MediaType.IsImage() || m.Platform == nil || m.Platform.OS == "unknown" {
			continue // an attestation of the base, which is none of this image
		}
		image, err := base.Image(m.Digest)
		if err != nil {
			return built{}, err
		}
		if image, err = onImage(image, layer, w); err != nil {
			return built{}, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: m.Platform}})
	}
	digest, err := index.Digest()
	return built{digest, func(tag name.Tag, options []remote.Option) error { return remote.WriteIndex(tag, index, options...) }}, err
}

// epoch is the time of everything in an image: the time of a build would make another
// image of the same content.
var epoch = v1.Time{Time: time.Unix(0, 0).UTC()}

// onImage appends a layer, and says in labels what it is.
func onImage(base v1.Image, layer v1.Layer, w Wanted) (v1.Image, error) {
	image, err := mutate.Append(base, mutate.Addendum{Layer: layer, History: v1.History{Created: epoch, CreatedBy: "terrier", Comment: "the code of a stack, in /" + Directory}})
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Created = epoch
	if file.Config.Labels == nil {
		file.Config.Labels = map[string]string{}
	}
	file.Config.Labels["org.opencontainers.image.revision"] = w.Revision
	file.Config.Labels["dev.terrier.source"] = w.Source
	file.Config.Labels["dev.terrier.namespace"] = w.Namespace
	return mutate.ConfigFile(image, file)
}
