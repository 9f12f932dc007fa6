package cluster

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// ProgramImage is an image with one static program in it.
func ProgramImage(tb testing.TB, path string) v1.Image {
	tb.Helper()
	program, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	file := filepath.Base(path)
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := w.WriteHeader(&tar.Header{Name: file, Mode: 0o755, Size: int64(len(program))}); err != nil {
		tb.Fatal(err)
	}
	if _, err := w.Write(program); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil })
	if err != nil {
		tb.Fatal(err)
	}
	image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS: "linux", Architecture: runtime.GOARCH, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{Entrypoint: []string{"/" + file}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	if image, err = mutate.AppendLayers(image, layer); err != nil {
		tb.Fatal(err)
	}
	return image
}

// PushProgram gives the cluster an image with one static program in it, and
// returns the image's name.
func PushProgram(tb testing.TB, path string) string {
	tb.Helper()
	image := ProgramImage(tb, path)
	digest, err := image.Digest()
	if err != nil {
		tb.Fatal(err)
	}
	as := Registry + "/" + filepath.Base(path) + ":" + digest.Hex[:12]
	tag, err := name.NewTag(as)
	if err != nil {
		tb.Fatal(err)
	}
	if err := remote.Write(tag, image, remote.WithContext(tb.Context())); err != nil {
		tb.Fatal(err)
	}
	return as
}

// PushImage gives the cluster one of our images, as make images wrote it, and returns
// its name.
func PushImage(tb testing.TB, of string) string {
	tb.Helper()
	index := imageOf(tb, root, of)
	digest, err := index.Digest()
	if err != nil {
		tb.Fatal(err)
	}
	as := of + ":" + digest.Hex[:12]
	push(tb, index, as)
	return Registry + "/" + as
}

// imageOf is one of our images, as make images wrote it in a tree.
func imageOf(tb testing.TB, tree, of string) v1.ImageIndex {
	tb.Helper()
	dir := filepath.Join(tree, "dist", "images", of)
	all, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		tb.Fatalf("reading %s, which `make images` writes: %v", dir, err)
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		tb.Fatal(err)
	}
	// What is attached to the image comes after it.
	index, err := all.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		tb.Fatal(err)
	}
	return index
}

// push gives the cluster an image under a name.
func push(tb testing.TB, index v1.ImageIndex, as string) {
	tb.Helper()
	tag, err := name.NewTag(Registry + "/" + as)
	if err != nil {
		tb.Fatal(err)
	}
	if err := remote.WriteIndex(tag, index, remote.WithContext(tb.Context())); err != nil {
		tb.Fatal(err)
	}
}
