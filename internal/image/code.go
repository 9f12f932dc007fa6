package image

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/fault"
)

// Store keeps code by its digest.
type Store interface {
	// Put keeps what it reads if that has the digest.
	Put(digest string, from io.Reader) error
	// Path returns the path of what was put, and an error if it is there no more.
	Path(digest string) (string, error)
}

// Holds reports whether the code of an image is still there for runs that need it.
func (b *Builder) Holds(m Made) bool {
	if b.Code == nil {
		return true
	}
	_, err := b.Code.Path(m.Code)
	return err == nil
}

// readBack reads the code of an image from its registry, compares it with the code of the
// source, and keeps it under the digest that it returns. The library compares the manifest
// and the layer with their digests, so that a registry which serves something else is found
// out. Archives of one tree differ with the program that packed them: both trees are packed
// again, which makes the same bytes of the same tree.
func (b *Builder) readBack(image name.Digest, from connection, w Wanted) (digest string, err error) {
	err = b.scratch(func(dir string) error {
		stored, source := filepath.Join(dir, "stored"), filepath.Join(dir, "source")
		if err := errors.Join(os.Mkdir(stored, 0o700), os.Mkdir(source, 0o700)); err != nil {
			return fmt.Errorf("making a scratch directory: %w", err)
		}
		if err := b.pull(image, from, stored); err != nil {
			return failed(ReasonCode, "reading the code of the image "+image.String(), err)
		}
		if err := b.unpack(w.Archive, source); err != nil {
			return err
		}
		packed := filepath.Join(dir, "code.tar.gz")
		if digest, err = b.pack(filepath.Join(stored, filepath.FromSlash(Directory)), packed); err != nil {
			return err
		}
		want, err := b.pack(source, packed+".source")
		if err != nil {
			return err
		}
		if digest != want {
			return fault.New(fault.Broken, ReasonCode, fmt.Errorf("the code of the image %s is not that of the source %s", image, w.Source))
		}
		f, err := os.Open(packed)
		if err != nil {
			return fmt.Errorf("opening the code: %w", err)
		}
		defer f.Close()
		return b.Code.Put(digest, f)
	})
	return digest, err
}

// pull unpacks the last layer of an image into a directory. Images of several platforms have
// the same one.
func (b *Builder) pull(image name.Digest, from connection, into string) error {
	got, err := remote.Get(image, from.options...)
	if err != nil {
		return err
	}
	one, err := firstImage(got)
	if err != nil {
		return err
	}
	layers, err := one.Layers()
	if err != nil {
		return err
	}
	if len(layers) == 0 {
		return errors.New("it has no layer")
	}
	content, err := layers[len(layers)-1].Compressed()
	if err != nil {
		return err
	}
	return errors.Join(archive.Extract(content, into, b.layerLimits()), content.Close())
}

// firstImage is an image, or the first one of an index.
func firstImage(d *remote.Descriptor) (v1.Image, error) {
	if !d.MediaType.IsIndex() {
		return d.Image()
	}
	index, err := d.ImageIndex()
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(manifest.Manifests) == 0 {
		return nil, errors.New("it is of no platform")
	}
	return index.Image(manifest.Manifests[0].Digest)
}

// pack packs a directory into a file, and returns the digest of that.
func (b *Builder) pack(dir, file string) (string, error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", fmt.Errorf("making a scratch file: %w", err)
	}
	sum := sha256.New()
	if err := errors.Join(archive.Pack(dir, nil, io.MultiWriter(f, sum), b.Limits), f.Close()); err != nil {
		return "", fmt.Errorf("packing the code of an image: %w", err)
	}
	return fmt.Sprintf("sha256:%x", sum.Sum(nil)), nil
}
