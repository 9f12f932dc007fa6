package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// The media types of what is attached to images.
const (
	sbomType       types.MediaType = "application/vnd.cyclonedx+json"
	provenanceType types.MediaType = "application/vnd.in-toto+json"
	emptyType      types.MediaType = "application/vnd.oci.empty.v1+json"
)

const refName = "org.opencontainers.image.ref.name"

// write writes an image:
//
//	NAME/                 OCI layout: an index of all platforms, and what refers to it
//	NAME-OS-ARCH.tar      archive for docker load, podman load, ctr images import
//	NAME-OS-ARCH.cdx.json SBOM of one platform
//	NAME.intoto.json      provenance statement of all platforms
func (b *builder) write(r recipe, images []built) error {
	dir := filepath.Join(b.out, r.name)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	old, err := filepath.Glob(dir + "-linux-*")
	if err != nil {
		return err
	}
	for _, file := range old {
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	index := join(images)
	out, err := layout.Write(dir, mutate.IndexMediaType(empty.Index, types.OCIImageIndex))
	if err != nil {
		return err
	}
	if err := out.AppendIndex(index, layout.WithAnnotations(map[string]string{refName: b.version})); err != nil {
		return err
	}
	var attached []v1.Image
	subjects := []named{{r.name, index}}
	for _, one := range images {
		file := fmt.Sprintf("%s-%s-%s", dir, one.platform.os, one.platform.arch)
		if err := archive(file+".tar", r.name+":"+b.version, one.image); err != nil {
			return err
		}
		sbom, err := b.sbom(r, one)
		if err != nil {
			return err
		}
		if err := os.WriteFile(file+".cdx.json", sbom, 0o644); err != nil {
			return err
		}
		artifact, err := attach(one.image, sbomType, sbom)
		if err != nil {
			return err
		}
		attached = append(attached, artifact)
		subjects = append(subjects, named{r.name + " " + one.platform.String(), one.image})
	}
	statement, err := b.provenance(r, images, subjects)
	if err != nil {
		return err
	}
	if err := os.WriteFile(dir+".intoto.json", statement, 0o644); err != nil {
		return err
	}
	for _, s := range subjects {
		artifact, err := attach(s.manifest, provenanceType, statement)
		if err != nil {
			return err
		}
		attached = append(attached, artifact)
	}
	for _, artifact := range attached {
		if err := out.AppendImage(artifact); err != nil {
			return err
		}
	}
	return report(r, b.version, index, images)
}

// named is a manifest and what a statement calls it.
type named struct {
	name     string
	manifest partial.Describable
}

// join makes the index of all platforms.
func join(images []built) v1.ImageIndex {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, one := range images {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        one.image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: one.platform.os, Architecture: one.platform.arch}},
		})
	}
	return index
}

// archive writes an archive that container engines load.
func archive(file, tag string, image v1.Image) error {
	ref, err := name.NewTag(tag)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(file, ref, image)
}

// artifact is a manifest of OCI 1.1 that refers to a subject and has one document.
type artifact struct {
	manifest []byte
	content  v1.Layer
}

// attach makes an artifact that refers to a manifest.
func attach(to partial.Describable, kind types.MediaType, document []byte) (v1.Image, error) {
	subject, err := partial.Descriptor(to)
	if err != nil {
		return nil, err
	}
	content := static.NewLayer(document, kind)
	layer, err := partial.Descriptor(content)
	if err != nil {
		return nil, err
	}
	config, size, err := v1.SHA256(strings.NewReader(emptyConfig))
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: string(kind),
		Config:  v1.Descriptor{MediaType: emptyType, Digest: config, Size: size},
		Layers:  []v1.Descriptor{*layer},
		Subject: &v1.Descriptor{MediaType: subject.MediaType, Digest: subject.Digest, Size: subject.Size},
	})
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(artifact{manifest, content})
}

// emptyConfig is the configuration that OCI gives artifacts.
const emptyConfig = "{}"

func (a artifact) RawConfigFile() ([]byte, error)                         { return []byte(emptyConfig), nil }
func (a artifact) MediaType() (types.MediaType, error)                    { return types.OCIManifestSchema1, nil }
func (a artifact) RawManifest() ([]byte, error)                           { return a.manifest, nil }
func (a artifact) LayerByDigest(v1.Hash) (partial.CompressedLayer, error) { return a.content, nil }

// report prints what was made.
func report(r recipe, version string, index v1.ImageIndex, images []built) error {
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("%s:%s@%s\n", r.name, version, digest)
	for _, one := range images {
		digest, err := one.image.Digest()
		if err != nil {
			return err
		}
		manifest, err := one.image.Manifest()
		if err != nil {
			return err
		}
		var size int64
		for _, l := range manifest.Layers {
			size += l.Size
		}
		const mib = 1 << 20
		fmt.Printf("  %s %s %.1f MiB compressed\n", one.platform, digest, float64(size)/mib)
	}
	return nil
}

// push uploads all images of a directory, with what refers to them, to a registry.
func push(ctx context.Context, dir, registry string) error {
	if registry == "" {
		return errors.New("-registry is missing: say where to, as make images-push REGISTRY=registry.example.com/team")
	}
	pusher, err := remote.NewPusher(remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithContext(ctx))
	if err != nil {
		return err
	}
	for _, r := range recipes {
		if err := checkCommitted(filepath.Join(dir, r.name)); err != nil {
			return err
		}
	}
	for _, r := range recipes {
		repository, err := name.NewRepository(strings.TrimSuffix(registry, "/") + "/" + r.name)
		if err != nil {
			return fmt.Errorf("-registry: %w", err)
		}
		if err := pushImage(ctx, pusher, filepath.Join(dir, r.name), repository); err != nil {
			return fmt.Errorf("pushing %s: %w", repository, err)
		}
	}
	return nil
}

// checkCommitted refuses images of a tree with changes that are not committed: no commit
// says what is in them.
func checkCommitted(dir string) error {
	all, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return fmt.Errorf("reading %s, which `make images` writes: %w", dir, err)
	}
	indexes, err := partial.FindIndexes(all, func(d v1.Descriptor) bool { return d.Annotations[refName] != "" })
	if err != nil {
		return err
	}
	for _, index := range indexes {
		images, err := partial.FindImages(index, func(v1.Descriptor) bool { return true })
		if err != nil {
			return err
		}
		for _, image := range images {
			config, err := image.ConfigFile()
			if err != nil {
				return err
			}
			if revision := config.Config.Labels[labelPrefix+"revision"]; strings.HasSuffix(revision, modifiedSuffix) {
				return fmt.Errorf("the images in %s were built from a tree with changes that are not committed (%s): commit them, or move new files away, then run make images again", dir, revision)
			}
		}
	}
	return nil
}

func pushImage(ctx context.Context, pusher *remote.Pusher, dir string, to name.Repository) error {
	all, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return fmt.Errorf("reading %s, which `make images` writes: %w", dir, err)
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		return err
	}
	for _, d := range manifest.Manifests {
		tag := d.Annotations[refName]
		if tag == "" {
			image, err := all.Image(d.Digest)
			if err != nil {
				return err
			}
			if err := pusher.Push(ctx, to.Digest(d.Digest.String()), image); err != nil {
				return err
			}
			continue
		}
		index, err := all.ImageIndex(d.Digest)
		if err != nil {
			return err
		}
		if err := pusher.Push(ctx, to.Tag(tag), index); err != nil {
			return err
		}
		fmt.Printf("%s@%s\n", to.Tag(tag), d.Digest)
	}
	return nil
}
