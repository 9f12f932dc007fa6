package e2e

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	oci "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// Where runs are processes, the image of a stack is in its registry before the first run,
// and the run has the code that was read back from there. While the registry is out, new
// code is not run, and what is there already is destroyed.
func TestImageOfAProcess(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	images := oci.New(oci.Logger(log.New(io.Discard, "", 0)))
	var out atomic.Bool
	var readBack atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if out.Load() {
			http.Error(w, "out of order", http.StatusInternalServerError)
			return
		}
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			readBack.Add(1)
		}
		images.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	repository := strings.TrimPrefix(server.URL, "http://") + "/team/network"

	g := testkit.NewGit(t)
	g.Username = ""
	module := func(value string) map[string]string {
		return map[string]string{"terraform/main.tf": w.HCL() + "\nresource \"world_thing\" \"a\" {\n  name  = \"a\"\n  value = \"" + value + "\"\n}\n"}
	}
	first := g.Commit(module("one"))
	s := newImaged(t, c, "inline.yaml", g.URL+"/terraform", repository)
	s.await(t, "Success", first, first)
	repo, err := name.NewRepository(repository)
	if err != nil {
		t.Fatal(err)
	}
	tags, err := remote.List(repo)
	if err != nil || len(tags) != 1 {
		t.Fatalf("the registry has the tags %v, %v, want one", tags, err)
	}
	image, err := remote.Image(repo.Tag(tags[0]))
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil || !strings.Contains(config.Config.Labels["org.opencontainers.image.revision"], first) {
		t.Errorf("the image says %+v, %v, want the revision %s", config, err, first)
	}
	if layers, err := image.Layers(); err != nil || len(layers) != 1 || readBack.Load() == 0 {
		t.Errorf("the image has %d layers, %v, and %d were read back", len(layers), err, readBack.Load())
	}

	out.Store(true)
	second := g.Commit(module("two"))
	s.lookNow(t)
	s.await(t, "Failed", "building and pushing the image "+repository, "")
	if all := w.Named("a"); len(all) != 1 || *all[0].Value != "one" {
		t.Errorf("without an image of commit %s the world holds %+v, want the first one", second, all)
	}
	s.delete(t)
	s.awaitGone(t)
	if all := w.Things(); len(all) != 0 {
		t.Errorf("after the deletion the world holds %+v", all)
	}
}
