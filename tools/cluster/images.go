package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// registryAddress is the registry inside the cluster's network.
const registryAddress = "127.0.0.1:5000"

// pushOwnImages gives the registry the images that the cluster itself needs.
func pushOwnImages(ctx context.Context) error {
	for _, program := range []string{"pause", "coredns"} {
		image, err := programImage(builtProgram(program))
		if err != nil {
			return err
		}
		if err := push(ctx, registryAddress, "localhost:5000/"+program+":1", image); err != nil {
			return err
		}
	}
	return nil
}

// programImage is an image with one static program in it. Its layer lies in a
// file: some programs are large.
func programImage(path string) (v1.Image, error) {
	archive := filepath.Join("/run/tmp", filepath.Base(path)+".tar")
	if err := writeArchive(archive, path); err != nil {
		return nil, fmt.Errorf("making a layer: %w", err)
	}
	layer, err := tarball.LayerFromFile(archive, tarball.WithCompressionLevel(gzip.BestSpeed))
	if err != nil {
		return nil, fmt.Errorf("making a layer: %w", err)
	}
	base, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS: "linux", Architecture: runtime.GOARCH, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{Entrypoint: []string{"/" + filepath.Base(path)}},
	})
	if err != nil {
		return nil, fmt.Errorf("making an image: %w", err)
	}
	image, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return nil, fmt.Errorf("making an image: %w", err)
	}
	return image, nil
}

func writeArchive(archive, path string) error {
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	to, err := os.Create(archive)
	if err != nil {
		return err
	}
	w := tar.NewWriter(to)
	if err := w.WriteHeader(&tar.Header{Name: filepath.Base(path), Mode: 0o755, Size: info.Size()}); err != nil {
		return errors.Join(err, to.Close())
	}
	_, err = io.Copy(w, from)
	return errors.Join(err, w.Close(), to.Close())
}

// push gives an image to the registry at an address. The host of the image's own
// name is dropped: pods find every image there, whatever its registry.
func push(ctx context.Context, address, as string, what any) error {
	reference, err := name.ParseReference(as)
	if err != nil {
		return fmt.Errorf("reading the image's name: %w", err)
	}
	target := address + "/" + reference.Context().RepositoryStr()
	if tag, ok := reference.(name.Tag); ok {
		target += ":" + tag.TagStr()
	}
	to, err := name.NewTag(target, name.Insecure)
	if err != nil {
		return fmt.Errorf("reading the image's name: %w", err)
	}
	switch what := what.(type) {
	case v1.Image:
		err = remote.Write(to, what, remote.WithContext(ctx))
	case v1.ImageIndex:
		err = remote.WriteIndex(to, what, remote.WithContext(ctx))
	default:
		err = fmt.Errorf("%T is no image", what)
	}
	if err != nil {
		return fmt.Errorf("pushing %s: %w", as, err)
	}
	return nil
}

// load pushes the images of a file to the registry, from the machine's side, or
// from inside where exec runs it.
func load(ctx context.Context, s state, file, as string) (err error) {
	address, err := os.ReadFile(s.path("registry"))
	if err != nil {
		return fmt.Errorf("no cluster runs in %s: make cluster-up starts it (%w)", s, err)
	}
	if os.Getenv(insideVariable) == string(s) {
		address = []byte(registryAddress)
	}
	found, err := readImages(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, found.close()) }()
	if as != "" && len(found.images) != 1 {
		return fmt.Errorf("%s holds %d images, which cannot all be called %s: leave the name out", file, len(found.images), as)
	}
	for _, image := range found.images {
		called := image.name
		if as != "" {
			called = as
		}
		if called == "" {
			return fmt.Errorf("an image of %s has no name: give one, as in: cluster load %s terrier:dev", file, file)
		}
		if err := push(ctx, strings.TrimSpace(string(address)), called, image.content); err != nil {
			return err
		}
		fmt.Printf("cluster: loaded %s\n", called)
	}
	return nil
}
