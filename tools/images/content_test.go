package main

import (
	"archive/tar"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// entries are those of an image, links with their targets.
func entries(t *testing.T, image v1.Image) map[string]*tar.Header {
	t.Helper()
	all := map[string]*tar.Header{}
	r := mutate.Extract(image)
	defer func() { _ = r.Close() }()
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(h.Name, "/")] = h
	}
}

// images are those of a layout, by platform.
func images(t *testing.T, dir string) map[string]v1.Image {
	t.Helper()
	all, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	index, err := all.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	platforms, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]v1.Image{}
	for _, d := range platforms.Manifests {
		if found[d.Platform.String()], err = index.Image(d.Digest); err != nil {
			t.Fatal(err)
		}
	}
	return found
}

func contentOfImages(t *testing.T, p *place) {
	for _, r := range recipes {
		for on, image := range images(t, filepath.Join(p.out, r.name)) {
			t.Run(r.name+" "+on, func(t *testing.T) {
				checkSafety(t, image)
				checkConfiguration(t, r, image)
				has := entries(t, image)
				for _, want := range []string{"etc/ssl/certs/ca-certificates.crt", "etc/passwd", "usr/local/bin/" + r.name, "var/lib/dpkg/status.d/base-files", "usr/share/doc/terrier/LICENSE"} {
					if has[want] == nil {
						t.Errorf("/%s is missing", want)
					}
				}
				for _, not := range []string{"usr/bin/perl", "usr/bin/who", "usr/bin/ssh-keygen", "usr/lib/git-core/git-send-email", "usr/share/ca-certificates"} {
					if has[not] != nil {
						t.Errorf("/%s is in it", not)
					}
				}
				git := has["usr/bin/git"] != nil && has["usr/lib/git-core/git-remote-https"] != nil && has["usr/lib/x86_64-linux-gnu/libpcre2-8.so.0"] != nil &&
					has["usr/share/doc/gcc-12-base/copyright"] != nil && has["usr/local/bin/tofu"] != nil
				if git != (r.name == "terrier-runner") {
					t.Errorf("has git, its libraries, the engine and their copyrights: %t", git)
				}
				shell := has["usr/bin/bash"] != nil && has["usr/bin/env"] != nil && has["usr/bin/["] != nil && has["usr/bin/awk"] != nil
				if shell != (r.name == "terrier-runner") {
					t.Errorf("has a shell and the tools of scripts: %t", shell)
				}
			})
		}
	}
}

// checkSafety looks for what an image must not have.
func checkSafety(t *testing.T, image v1.Image) {
	t.Helper()
	const setuid, sticky, others = 0o6000, 0o1000, 0o022
	owned := map[string]bool{"home/terrier": true, "var/lib/terrier": true}
	for p, h := range entries(t, image) {
		switch {
		case h.Mode&setuid != 0:
			t.Errorf("/%s is setuid or setgid", p)
		case h.Typeflag != tar.TypeSymlink && h.Mode&others != 0 && !(p == "tmp" && h.Mode&sticky != 0):
			t.Errorf("/%s has mode %o: others may write it", p, h.Mode)
		case (h.Uid != 0 || h.Gid != 0) != owned[p]:
			t.Errorf("/%s belongs to %d:%d", p, h.Uid, h.Gid)
		}
	}
}

func checkConfiguration(t *testing.T, r recipe, image v1.Image) {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := config.Config
	if c.User != "65532:65532" || c.StopSignal != "SIGTERM" || !slices.Equal(c.Entrypoint, []string{"/usr/local/bin/" + r.name}) || len(c.ExposedPorts) != len(r.ports) {
		t.Errorf("configuration %+v", c)
	}
	for _, label := range []string{"title", "description", "licenses", "version", "revision", "created", "source"} {
		if c.Labels["org.opencontainers.image."+label] == "" {
			t.Errorf("no label %s", label)
		}
	}
}

func TestTheBundleHasAllAuthoritiesInOrder(t *testing.T) {
	all := tree{}
	all.text("usr/share/ca-certificates/mozilla/B.crt", "second\n")
	all.text("usr/share/ca-certificates/mozilla/A.crt", "first\n")
	bundleAuthorities(all)
	if got := string(all["etc/ssl/certs/ca-certificates.crt"].data); got != "first\nsecond\n" || len(all) != 1 {
		t.Errorf("bundle %q, %d entries", got, len(all))
	}
}

func archivesAreTheImages(t *testing.T, p *place) {
	tag, err := name.NewTag("terrier:v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := tarball.ImageFromPath(filepath.Join(p.out, "terrier-linux-amd64.tar"), &tag)
	if err != nil {
		t.Fatal(err)
	}
	got, err := loaded.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	want, err := images(t, filepath.Join(p.out, "terrier"))["linux/amd64"].ConfigName()
	if err != nil || got != want {
		t.Errorf("the archive has the image %s, want %s (%v)", got, want, err)
	}
}
