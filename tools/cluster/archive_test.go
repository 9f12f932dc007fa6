package main

import (
	"archive/tar"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func randomImage(t *testing.T) v1.Image {
	t.Helper()
	image, err := random.Image(1000, 2)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// pack writes the files below a directory into one tar file.
func pack(t *testing.T, dir string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "images.tar")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := tar.NewWriter(f)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return file
}

// readDigests reads a file of images: each one's digest by its name.
func readDigests(t *testing.T, file string) map[string]string {
	t.Helper()
	found, err := readImages(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := found.close(); err != nil {
			t.Error(err)
		}
	}()
	digests := map[string]string{}
	for _, i := range found.images {
		digest, err := i.content.(interface{ Digest() (v1.Hash, error) }).Digest()
		if err != nil {
			t.Fatal(err)
		}
		digests[i.name] = digest.String()
	}
	return digests
}

func TestReadImages(t *testing.T) {
	image, other := randomImage(t), randomImage(t)
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: image}, mutate.IndexAddendum{Add: other})
	both, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	written, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := written.AppendImage(image, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": "one:1"})); err != nil {
		t.Fatal(err)
	}
	if err := written.AppendIndex(index, layout.WithAnnotations(map[string]string{"io.containerd.image.name": "registry.example/both:2"})); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"one:1": digest.String(), "registry.example/both:2": both.String()}
	for what, file := range map[string]string{"a directory": dir, "an archive": pack(t, dir)} {
		got := readDigests(t, file)
		if len(got) != len(want) || got["one:1"] != want["one:1"] || got["registry.example/both:2"] != want["registry.example/both:2"] {
			t.Errorf("an OCI layout in %s holds %v, want %v", what, got, want)
		}
	}
	saved := filepath.Join(t.TempDir(), "saved.tar")
	tag, err := name.NewTag("saved:3")
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(saved, tag, image); err != nil {
		t.Fatal(err)
	}
	if got := readDigests(t, saved); len(got) != 1 || got["index.docker.io/library/saved:3"] == "" && got["saved:3"] == "" {
		t.Errorf("what docker save wrote holds %v, want one image saved:3", got)
	}
}

func TestReadImagesRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "note"), []byte("no image"), 0o644); err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no archive"), 0o644); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		pack(t, dir):                       "neither an OCI layout nor what docker save writes",
		text:                               "reading " + text,
		filepath.Join(t.TempDir(), "none"): fs.ErrNotExist.Error(),
	} {
		if _, err := readImages(file); err == nil || !strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "no such file") {
			t.Errorf("readImages(%s) = %v, want an error with %q", file, err, want)
		}
	}
}

func TestClaimRefusesForeignDirectories(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := state(dir).claim(); err == nil || !strings.Contains(err.Error(), "no cluster made them") {
		t.Errorf("claiming a directory with files: %v", err)
	}
	if err := state("/var/lib/cluster").claim(); err == nil || !strings.Contains(err.Error(), "another --state") {
		t.Errorf("claiming a directory below /var/lib: %v", err)
	}
	if err := down(t.Context(), state(dir)); err != nil {
		t.Errorf("down where no cluster was: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "lib")); err != nil {
		t.Errorf("down removed what is not a cluster's: %v", err)
	}
}
