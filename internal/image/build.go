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
	"github.com/terrier-iac/terrier/internal/source"
)

// built is an image that can be pushed: one of one platform, or an index of several.
type built struct {
	digest v1.Hash
	push   func(name.Tag, []remote.Option) error
}

// change is what is done to the image of each platform before the code is put onto it.
type change func(dir string, base v1.Image) (v1.Image, error)

// make makes an image of a base, a change of it and the code, and pushes it unless it is there.
func (b *Builder) make(under base, w Wanted, there v1.Hash, tag name.Tag, to connection, more change) (digest v1.Hash, err error) {
	err = b.scratch(func(dir string) error {
		file, err := b.layer(dir, w.Archive)
		if err != nil {
			return fault.New(fault.Of(err), fault.Reason(err, ReasonBuild), fmt.Errorf("packing the code for the image: %w", err))
		}
		layer, err := tarball.LayerFromFile(file)
		if err != nil {
			return fmt.Errorf("packing the code for the image: %w", err)
		}
		made, err := on(under, func(image v1.Image) (v1.Image, error) {
			if err := source.CheckConfig(image); err != nil {
				return nil, err
			}
			if more != nil {
				if image, err = more(dir, image); err != nil {
					return nil, err
				}
			}
			return onImage(image, layer, w)
		})
		if err != nil {
			return failed(ReasonBase, "building on the base image", err)
		}
		digest = made.digest
		if digest == there {
			return nil // an earlier process pushed it
		}
		if err := made.push(tag, to.options); err != nil {
			return failed(ReasonPush, "pushing "+tag.String(), err)
		}
		return nil
	})
	return digest, err
}

// on changes a base, and each platform of it if there are several.
func on(under base, put func(v1.Image) (v1.Image, error)) (built, error) {
	if under.Descriptor != nil && under.MediaType.IsIndex() {
		index, err := under.ImageIndex()
		if err != nil {
			return built{}, err
		}
		return onIndex(index, put)
	}
	image, err := under.image()
	if err != nil {
		return built{}, err
	}
	if image, err = put(image); err != nil {
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

// mostPlatforms is how many images an index may have. Each is read and pushed.
const mostPlatforms = 16

func onIndex(base v1.ImageIndex, put func(v1.Image) (v1.Image, error)) (built, error) {
	manifest, err := base.IndexManifest()
	if err != nil {
		return built{}, err
	}
	index := mutate.IndexMediaType(empty.Index, manifest.MediaType)
	made := 0
	for _, m := range manifest.Manifests {
		if !m.MediaType.IsImage() || m.Platform == nil || m.Platform.OS == "unknown" {
			continue // an attestation of the base, which is none of this image
		}
		if made++; made > mostPlatforms {
			return built{}, fault.New(fault.Invalid, ReasonBuild, fmt.Errorf("the image is for more than %d platforms: build it for fewer", mostPlatforms))
		}
		image, err := base.Image(m.Digest)
		if err != nil {
			return built{}, err
		}
		if image, err = put(image); err != nil {
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
