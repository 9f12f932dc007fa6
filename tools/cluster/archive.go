package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// named is an image, or an index of images, and what its file calls it.
type named struct {
	name    string
	content any
}

// archive is what a file of images holds, while scratch is there.
type archive struct {
	images  []named
	scratch string
}

func (a archive) close() error { return os.RemoveAll(a.scratch) }

// readImages reads an OCI layout or what docker save writes, in one tar file, or
// a directory with an OCI layout.
func readImages(file string) (archive, error) {
	info, err := os.Stat(file)
	if err != nil {
		return archive{}, fmt.Errorf("looking for images: %w", err)
	}
	if info.IsDir() {
		images, err := readLayout(file)
		return archive{images: images}, err
	}
	scratch, err := os.MkdirTemp("", "cluster-load-")
	if err != nil {
		return archive{}, fmt.Errorf("making a directory: %w", err)
	}
	a := archive{scratch: scratch}
	if err := unpack(file, scratch); err != nil {
		return archive{}, errors.Join(err, a.close())
	}
	if _, missing := os.Stat(filepath.Join(scratch, "index.json")); missing == nil {
		a.images, err = readLayout(scratch)
	} else {
		a.images, err = readSaved(file)
	}
	if err != nil {
		return archive{}, errors.Join(err, a.close())
	}
	return a, nil
}

// unpack writes the plain files of an archive below a directory.
func unpack(file, dir string) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("opening the images: %w", err)
	}
	defer f.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("opening a directory: %w", err)
	}
	defer root.Close()
	for r := tar.NewReader(f); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", file, err)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if err := root.MkdirAll(filepath.Dir(filepath.Clean(header.Name)), 0o755); err != nil {
			return fmt.Errorf("unpacking %s: %w", file, err)
		}
		if err := writeEntry(root, filepath.Clean(header.Name), r); err != nil {
			return fmt.Errorf("unpacking %s: %w", file, err)
		}
	}
}

func writeEntry(root *os.Root, name string, from io.Reader) error {
	to, err := root.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}

// readLayout lists the images of an OCI layout. Their names are annotations.
func readLayout(dir string) ([]named, error) {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the image layout: %w", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("reading the image layout: %w", err)
	}
	var found []named
	for _, d := range manifest.Manifests {
		called := d.Annotations["io.containerd.image.name"]
		if called == "" {
			called = d.Annotations["org.opencontainers.image.ref.name"]
		}
		var content any
		if d.MediaType.IsIndex() {
			content, err = index.ImageIndex(d.Digest)
		} else {
			content, err = index.Image(d.Digest)
		}
		if err != nil {
			return nil, fmt.Errorf("reading image %s: %w", called, err)
		}
		found = append(found, named{called, content})
	}
	return found, nil
}

// readSaved lists the images that docker save wrote.
func readSaved(file string) ([]named, error) {
	open := func() (io.ReadCloser, error) { return os.Open(file) }
	manifest, err := tarball.LoadManifest(open)
	if err != nil {
		return nil, fmt.Errorf("%s is neither an OCI layout nor what docker save writes: %w", file, err)
	}
	var found []named
	for _, d := range manifest {
		for _, called := range d.RepoTags {
			tag, err := name.NewTag(called)
			if err != nil {
				return nil, fmt.Errorf("reading an image's name: %w", err)
			}
			var image v1.Image
			if image, err = tarball.Image(open, &tag); err != nil {
				return nil, fmt.Errorf("reading image %s: %w", called, err)
			}
			found = append(found, named{called, image})
		}
	}
	return found, nil
}
