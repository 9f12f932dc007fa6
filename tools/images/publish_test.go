package main

import (
	"context"
	"io"
	"log"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func pushBringsAll(t *testing.T, p *place) {
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://") + "/team"
	if err := push(context.Background(), p.out, host); err != nil {
		t.Fatal(err)
	}
	for _, r := range recipes {
		ref, err := name.ParseReference(host + "/" + r.name + ":v1.2.3")
		if err != nil {
			t.Fatal(err)
		}
		index, err := remote.Index(ref)
		if err != nil {
			t.Fatal(err)
		}
		if got := referrers(t, ref.Context(), index); !slices.Equal(got, []string{string(provenanceType)}) {
			t.Errorf("the index of %s has %q attached", r.name, got)
		}
		for on, image := range images(t, filepath.Join(p.out, r.name)) {
			if got := referrers(t, ref.Context(), image); !slices.Equal(got, []string{string(sbomType), string(provenanceType)}) {
				t.Errorf("%s for %s has %q attached", r.name, on, got)
			}
		}
	}
}

// referrers lists the types of what refers to a manifest in a registry.
func referrers(t *testing.T, repository name.Repository, to partial.Describable) []string {
	t.Helper()
	digest, err := to.Digest()
	if err != nil {
		t.Fatal(err)
	}
	found, err := remote.Referrers(repository.Digest(digest.String()))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := found.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, d := range manifest.Manifests {
		image, err := remote.Image(repository.Digest(d.Digest.String()))
		if err != nil {
			t.Fatal(err)
		}
		artifact, err := image.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, artifact.ArtifactType)
	}
	slices.Sort(kinds)
	return kinds
}
