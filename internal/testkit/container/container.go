// Package container makes images of containers for tests, out of files that a test
// writes down, and pushes them.
//
// It starts no registry, and runs nothing. Start reading at Image.
package container

import (
	"archive/tar"
	"bytes"
	"io"
	"maps"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Entry is an entry of a layer. One without a type is a file.
type Entry struct {
	tar.Header
	Content string // of a file
}

// File is a file of a layer.
func File(name, content string) Entry {
	return Entry{Header: tar.Header{Name: name, Mode: 0o644}, Content: content}
}

// Layer is a layer of an image, as a build makes it.
func Layer(tb testing.TB, entries ...Entry) v1.Layer {
	tb.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if e.Typeflag == 0 {
			e.Typeflag = tar.TypeReg
		}
		e.Size = int64(len(e.Content))
		if err := w.WriteHeader(&e.Header); err != nil {
			tb.Fatal(err)
		}
		if _, err := io.WriteString(w, e.Content); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
	if err != nil {
		tb.Fatal(err)
	}
	return layer
}

// Files is a layer of files, each of which is executable.
func Files(tb testing.TB, files map[string]string) v1.Layer {
	tb.Helper()
	var all []Entry
	for _, name := range slices.Sorted(maps.Keys(files)) {
		e := File(name, files[name])
		e.Mode = 0o755
		all = append(all, e)
	}
	return Layer(tb, all...)
}

// Image is an image for Linux on this machine.
func Image(tb testing.TB, config v1.Config, layers ...v1.Layer) v1.Image {
	tb.Helper()
	image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH, RootFS: v1.RootFS{Type: "layers"}, Config: config})
	if err == nil {
		image, err = mutate.AppendLayers(image, layers...)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return image
}

// Push pushes an image to a registry that asks for no login.
func Push(tb testing.TB, ref string, image v1.Image) {
	tb.Helper()
	tag, err := name.NewTag(ref)
	if err == nil {
		err = remote.Write(tag, image, remote.WithContext(tb.Context()))
	}
	if err != nil {
		tb.Fatal(err)
	}
}
