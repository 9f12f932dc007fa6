package image

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/source"
)

// store is a registry in memory that counts what is sent to it.
type store struct {
	host     string
	blobs    atomic.Int32 // uploads that were begun
	tags     atomic.Int32 // manifests that were sent
	spoils   atomic.Bool  // it serves other blobs than those that were sent
	password atomic.Value // asked for if it is not empty
	down     atomic.Bool  // answers nothing
}

func newStore(t *testing.T) *store {
	t.Helper()
	s := &store{}
	s.password.Store("")
	memory := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if want := s.password.Load().(string); want != "" {
			if _, got, _ := r.BasicAuth(); got != want {
				w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
		}
		switch {
		case r.Method == http.MethodPost:
			s.blobs.Add(1)
		case r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/"):
			s.tags.Add(1)
		}
		if s.spoils.Load() && r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			got := httptest.NewRecorder()
			memory.ServeHTTP(got, r)
			spoilt := got.Body.Bytes()
			spoilt[len(spoilt)-1] ^= 1
			w.Header().Set("Content-Length", fmt.Sprint(len(spoilt)))
			_, _ = w.Write(spoilt)
			return
		}
		memory.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s.host = strings.TrimPrefix(server.URL, "http://")
	return s
}

// sent returns how many blobs and manifests were sent since the last call.
func (s *store) sent() string {
	return fmt.Sprintf("%d blobs, %d manifests", s.blobs.Swap(0), s.tags.Swap(0))
}

func (s *store) keys(t *testing.T, password string) *source.Keyring {
	t.Helper()
	config, err := json.Marshal(map[string]any{"auths": map[string]any{s.host: map[string]string{"username": "u", "password": password}}})
	if err != nil {
		t.Fatal(err)
	}
	k, err := source.ParseKeyring(config)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (s *store) put(t *testing.T, repository string, image v1.Image) string {
	t.Helper()
	ref, err := name.NewTag(s.host + "/" + repository)
	if err == nil {
		err = remote.Write(ref, image)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.sent()
	return ref.String()
}

func builder(t *testing.T, base string) *Builder {
	t.Helper()
	allow, err := outbound.ParseAllow("127.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	out := outbound.New(outbound.Policy{Allow: allow, PlainHTTP: true})
	t.Cleanup(out.Close)
	b := &Builder{Base: base, Out: out, Scratch: t.TempDir()}
	t.Cleanup(func() {
		if left, err := os.ReadDir(b.Scratch); err != nil || len(left) > 0 {
			t.Errorf("left in the scratch directory: %v, %v", left, err)
		}
	})
	return b
}

// code packs files as the artifact of a source.
func code(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for file, content := range files {
		path := filepath.Join(dir, file)
		mode := os.FileMode(0o644)
		if strings.HasSuffix(file, ".sh") {
			mode = 0o755
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	if err := archive.Pack(dir, nil, &b, archive.Limits{}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "artifact.tar.gz")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func digestOf(t *testing.T, ref string) name.Digest {
	t.Helper()
	digest, err := name.NewDigest(ref)
	if err != nil {
		t.Fatalf("%q is no name with a digest: %v", ref, err)
	}
	return digest
}

func pull(t *testing.T, ref string) v1.Image {
	t.Helper()
	image, err := remote.Image(digestOf(t, ref))
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func randomImage(t *testing.T) v1.Image {
	t.Helper()
	image, err := random.Image(256, 2)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// The image is the base and the code. What did not change is neither built nor sent
// again, by the same process or the next one; two namespaces share no tag.
func TestAnImageIsTheBaseAndTheCode(t *testing.T) {
	s, bases := newStore(t), newStore(t)
	b := builder(t, bases.put(t, "terrier/runner", randomImage(t)))
	w := Wanted{Name: s.host + "/team/net", Namespace: "team-a", Source: "sha256:1", Revision: "main@sha1:1",
		Archive: code(t, map[string]string{"terraform/main.tf": "# net", "apply.sh": "#!/bin/sh\n"})}
	ensure := func(b *Builder, w Wanted, want string) string {
		t.Helper()
		made, err := b.Ensure(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.sent(); got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
		return made.Ref
	}
	first := ensure(b, w, "4 blobs, 1 manifests") // two layers of the base, the code, the configuration
	image := pull(t, first)
	layers, err := image.Layers()
	if err != nil || len(layers) != 3 {
		t.Fatalf("the image has %d layers, %v, want the two of the base and the code", len(layers), err)
	}
	content, err := layers[2].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := archive.Extract(content, dir, archive.Limits{}); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(dir, filepath.FromSlash(Directory))
	text, err := os.ReadFile(filepath.Join(at, "terraform/main.tf"))
	script, err2 := os.Stat(filepath.Join(at, "apply.sh"))
	if err != nil || err2 != nil || string(text) != "# net" || script.Mode().Perm()&0o100 == 0 {
		t.Errorf("the code in the image is %q, %v, %v, want the artifact", text, err, err2)
	}
	config, err := image.ConfigFile()
	if err != nil || config.Config.Labels["org.opencontainers.image.revision"] != w.Revision || !config.Created.Equal(epoch.Time) {
		t.Errorf("the image says %+v of itself, %v", config, err)
	}

	if again := ensure(b, w, "0 blobs, 0 manifests"); again != first {
		t.Errorf("the same code is %s, then %s", first, again)
	}
	w.Archive = code(t, map[string]string{"terraform/main.tf": "# net", "apply.sh": "#!/bin/sh\n"}) // another file with the same content
	if again := ensure(builder(t, b.Base), w, "0 blobs, 0 manifests"); again != first {
		t.Errorf("the next process makes %s of what was %s", again, first)
	}

	other := w
	other.Namespace = "team-b"
	if ref := ensure(b, other, "1 blobs, 1 manifests"); ref == first {
		t.Errorf("two namespaces have one image %s", ref)
	}
	next := w
	next.Archive, next.Source, next.Revision = code(t, map[string]string{"terraform/main.tf": "# more"}), "sha256:2", "main@sha1:2"
	if ref := ensure(b, next, "2 blobs, 1 manifests"); ref == first {
		t.Errorf("two revisions have one image %s", ref)
	}
	bases.put(t, "terrier/runner", randomImage(t))
	if ref := ensure(b, w, "3 blobs, 1 manifests"); ref == first {
		t.Error("another base is the same image")
	}
	tags, err := remote.List(digestOf(t, first).Context())
	if err != nil || len(tags) != 4 {
		t.Errorf("the repository has the tags %v, %v, want one for each image", tags, err)
	}
}

// A user of the registry who moves a tag gets no run to start from another image.
func TestATagThatWasMovedIsPutBack(t *testing.T) {
	s := newStore(t)
	b := builder(t, s.put(t, "terrier/runner", empty.Image))
	w := Wanted{Name: s.host + "/team/net", Namespace: "a", Source: "sha256:1", Archive: code(t, map[string]string{"main.tf": ""})}
	first, err := b.Ensure(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	tags, err := remote.List(digestOf(t, first.Ref).Context())
	if err != nil || len(tags) != 1 {
		t.Fatalf("the tags are %v, %v", tags, err)
	}
	s.put(t, "team/net:"+tags[0], randomImage(t))
	if again, err := b.Ensure(t.Context(), w); err != nil || again != first {
		t.Errorf("Ensure() = %v, %v, want %v", again, err, first)
	}
}

func TestABaseOfSeveralPlatformsStaysSo(t *testing.T) {
	s := newStore(t)
	index := v1.ImageIndex(empty.Index)
	for _, arch := range []string{"amd64", "arm64"} {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: randomImage(t), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: randomImage(t), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "unknown", Architecture: "unknown"}}})
	base, err := name.NewTag(s.host + "/terrier/runner:v1")
	if err == nil {
		err = remote.WriteIndex(base, index)
	}
	if err != nil {
		t.Fatal(err)
	}
	image, err := builder(t, base.String()).Ensure(t.Context(), Wanted{Name: s.host + "/team/net", Source: "sha256:1", Archive: code(t, map[string]string{"main.tf": ""})})
	if err != nil {
		t.Fatal(err)
	}
	made, err := remote.Index(digestOf(t, image.Ref))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := made.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, m := range manifest.Manifests {
		platforms = append(platforms, m.Platform.Architecture)
	}
	if !slices.Equal(platforms, []string{"amd64", "arm64"}) {
		t.Errorf("the image is of %v, want both platforms and no attestation of the base", platforms)
	}
}

func TestAnImageThatCannotBeMadeSaysWhy(t *testing.T) {
	s := newStore(t)
	base := s.put(t, "terrier/runner", empty.Image)
	good := Wanted{Name: s.host + "/team/net", Source: "sha256:1", Archive: code(t, map[string]string{"main.tf": ""})}
	hostile := filepath.Join(t.TempDir(), "artifact")
	if err := os.WriteFile(hostile, []byte("no archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.password.Store("open sesame")
	good.Keys = s.keys(t, "open sesame")
	for name, tt := range map[string]struct {
		change func(*Builder, *Wanted)
		kind   fault.Kind
		reason string
	}{
		"wrong credentials":          {func(_ *Builder, w *Wanted) { w.Keys = s.keys(t, "open barley") }, fault.Denied, ReasonAuth},
		"no credentials":             {func(_ *Builder, w *Wanted) { w.Keys = nil }, fault.Denied, ReasonAuth},
		"no base":                    {func(b *Builder, _ *Wanted) { b.Base = s.host + "/terrier/gone" }, fault.Missing, ReasonBase},
		"a base that has no name":    {func(b *Builder, _ *Wanted) { b.Base = "Runner!" }, fault.Invalid, ReasonBase},
		"code that is no archive":    {func(_ *Builder, w *Wanted) { w.Archive, w.Source = hostile, "sha256:9" }, fault.Invalid, archive.Reason},
		"code that is larger":        {func(b *Builder, w *Wanted) { b.Limits.Entries, w.Source = 1, "sha256:8" }, fault.Invalid, archive.Reason},
		"a registry behind the door": {func(b *Builder, _ *Wanted) { b.Out = outbound.New(outbound.Policy{}) }, fault.Denied, outbound.ReasonAddress},
	} {
		t.Run(name, func(t *testing.T) {
			b, w := builder(t, base), good
			b.BaseKeys = good.Keys
			tt.change(b, &w)
			made, err := b.Ensure(t.Context(), w)
			if fault.Of(err) != tt.kind || fault.Reason(err, "") != tt.reason || strings.Contains(fmt.Sprint(err), "barley") {
				t.Errorf("Ensure() = %v, %v (%s, %s), want %s, %s", made, err, fault.Of(err), fault.Reason(err, ""), tt.kind, tt.reason)
			}
		})
	}
}
