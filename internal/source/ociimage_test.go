package source

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/testkit/container"
)

// layerOf is a layer of an image, as a build makes it.
func layerOf(t *testing.T, entries ...container.Entry) v1.Layer {
	t.Helper()
	return container.Layer(t, entries...)
}

// file is an entry of a layer.
func file(name, content string) container.Entry { return container.File(name, content) }

// imageOf is an image with a working directory.
func imageOf(t *testing.T, workdir string, layers ...v1.Layer) v1.Image {
	t.Helper()
	return container.Image(t, v1.Config{WorkingDir: workdir}, layers...)
}

func pushImage(t *testing.T, ref string, image v1.Image) {
	t.Helper()
	container.Push(t, ref, image)
}

// The code is what a container of the image would see below its working directory.
func TestCodeOfImage(t *testing.T) {
	host := serveOCI(t, nil)
	entry := func(h tar.Header) container.Entry { return container.Entry{Header: h} }
	dir := func(name string) container.Entry {
		return entry(tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755})
	}
	base := layerOf(t, dir("etc/"), file("etc/passwd", "root"), dir("app/"), file("app/old.tf", "old"), dir("app/code/"),
		file("app/code/main.tf", "one"), file("app/code/gone.tf", "gone"), file("app/code/mod/a.tf", "a"), file("app/code/mod/b.tf", "b"),
		entry(tar.Header{Name: "bin/sh", Typeflag: tar.TypeSymlink, Linkname: "busybox"}), entry(tar.Header{Name: "dev/null", Typeflag: tar.TypeChar}))
	for name, tt := range map[string]struct {
		workdir string
		layers  []v1.Layer
		want    map[string]string
		kind    fault.Kind
	}{
		"one layer": {"/app/code", []v1.Layer{base}, map[string]string{"main.tf": "one", "gone.tf": "gone", "mod/a.tf": "a", "mod/b.tf": "b"}, ""},
		"layers that replace and delete files": {"/app/code/", []v1.Layer{base, layerOf(t, file("./app/code/main.tf", "two"), file("app/code/.wh.gone.tf", "")), layerOf(t, file("app/code/mod/.wh.a.tf", ""), file("app/code/x.zip", "z"))},
			map[string]string{"main.tf": "two", "mod/b.tf": "b", "x.zip": "z"}, ""},
		"a layer that empties a directory": {"app/code", []v1.Layer{base, layerOf(t, file("app/code/mod/.wh..wh..opq", ""), file("app/code/mod/c.tf", "c"))},
			map[string]string{"main.tf": "one", "gone.tf": "gone", "mod/c.tf": "c"}, ""},
		"a layer that deletes a directory above": {"/app/code", []v1.Layer{base, layerOf(t, file(".wh.app", "")), layerOf(t, file("app/code/new.tf", "new"))},
			map[string]string{"new.tf": "new"}, ""},
		"a layer that empties the root":     {"/app/code", []v1.Layer{base, layerOf(t, file(".wh..wh..opq", ""), file("app/code/new.tf", "new"))}, map[string]string{"new.tf": "new"}, ""},
		"a file in place of a directory":    {"/app/code", []v1.Layer{base, layerOf(t, file("app", "file"))}, nil, fault.Invalid},
		"the working directory is not set":  {"", []v1.Layer{base}, nil, fault.Invalid},
		"the working directory is the root": {"/app/..", []v1.Layer{base}, nil, fault.Invalid},
		"nothing is in it":                  {"/srv", []v1.Layer{base}, nil, fault.Invalid},
		"a device in it":                    {"/dev", []v1.Layer{base}, nil, fault.Invalid},
		"a link in it":                      {"/bin", []v1.Layer{base}, nil, fault.Invalid},
		"a link out of it":                  {"/x", []v1.Layer{layerOf(t, entry(tar.Header{Name: "x/l", Typeflag: tar.TypeLink, Linkname: "etc/passwd"}))}, nil, fault.Invalid},
		"a control character":               {"/x", []v1.Layer{layerOf(t, file("x/a\x01b", ""))}, nil, fault.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			repo := host + "/" + strings.ToLower(strings.ReplaceAll(name, " ", "-"))
			pushImage(t, repo+":1.0.0", imageOf(t, tt.workdir, tt.layers...))
			none := "/.git/"
			_, tree, err := fetch(t, &OCI{URL: "oci://" + repo, Ref: OCIRef{SemVer: "~1.0.0"}, Layer: OCILayer{Code: true}, Ignore: &none, Out: loopback(t), Scratch: scratchDir(t)})
			if got := fault.Of(err); got != tt.kind {
				t.Fatalf("fetch() = %v, of kind %q, want %q", err, got, tt.kind)
			}
			if diff := cmp.Diff(tt.want, tree); diff != "" {
				t.Errorf("the tree differs (-want +got):\n%s", diff)
			}
		})
	}
}

// A tenant's image does not fill the memory of the controller.
func TestCodeOfImageHasBounds(t *testing.T) {
	host := serveOCI(t, nil)
	code := func(repo string) error {
		_, _, err := fetch(t, &OCI{URL: "oci://" + host + "/" + repo, Ref: OCIRef{Tag: "1.0.0"}, Layer: OCILayer{Code: true}, Out: loopback(t), Scratch: scratchDir(t)})
		return err
	}
	image := imageOf(t, "/app", layerOf(t, file("app/main.tf", "one")))

	large, err := mutate.Config(image, v1.Config{WorkingDir: "/app", Labels: map[string]string{"a": strings.Repeat("a", imageConfig)}})
	if err != nil {
		t.Fatal(err)
	}
	pushImage(t, host+"/large:1.0.0", large)
	pushImage(t, host+"/unknown:1.0.0", image)
	manifest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	manifest = manifest.DeepCopy()
	manifest.Config.Size = -1 // a client reads all there is
	raw, err := json.Marshal(manifest)
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(host + "/unknown:1.0.0")
	if err == nil {
		err = remote.Put(tag, rawManifest(raw))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, repo := range []string{"large", "unknown"} {
		if err := code(repo); fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), "the configuration of the image has") {
			t.Errorf("%s: %v, want that the configuration is too large", repo, err)
		}
	}

	few := codeLayer{dir: "app", budget: &layerBudget{entries: 9, names: len("app/a") + len("app/b")}}
	for _, tt := range []struct {
		name string
		kind fault.Kind
	}{{"app/a", ""}, {"elsewhere/" + strings.Repeat("a", imageNames), ""}, {"app/b", ""}, {"app/c", fault.Invalid}} {
		if kept, err := few.keep(tt.name); fault.Of(err) != tt.kind {
			t.Errorf("keep() = %.20q, %v, want %q", kept, err, tt.kind)
		}
	}
	pushImage(t, host+"/name:1.0.0", imageOf(t, "/app", layerOf(t, file("app/"+strings.Repeat("d/", 1<<17)+"d", ""))))
	if err := code("name"); fault.Of(err) != fault.Invalid {
		t.Errorf("fetch() of a name of 256 KiB = %v, want Invalid", err)
	}
}

// A layer does not choose how much memory its decompression takes.
func TestCodeOfImageHasABoundedWindow(t *testing.T) {
	host := serveOCI(t, nil)
	zeros := layerOf(t, file("app/main.tf", "one"), file("app/zeros", strings.Repeat("\x00", 40<<20)))
	for name, tt := range map[string]struct {
		options []zstd.EOption
		refused bool
	}{
		"8 MiB":   {[]zstd.EOption{zstd.WithWindowSize(8 << 20)}, false},
		"32 MiB":  {[]zstd.EOption{zstd.WithWindowSize(32 << 20)}, false},
		"64 MiB":  {[]zstd.EOption{zstd.WithWindowSize(64 << 20)}, true},
		"512 MiB": {[]zstd.EOption{zstd.WithWindowSize(512 << 20)}, true},
		"whole":   {[]zstd.EOption{zstd.WithSingleSegment(true)}, true}, // the content is the window
	} {
		t.Run(name, func(t *testing.T) {
			plain, err := zeros.Uncompressed()
			if err != nil {
				t.Fatal(err)
			}
			content, err := io.ReadAll(plain)
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			w, err := zstd.NewWriter(&b, tt.options...)
			if err != nil {
				t.Fatal(err)
			}
			if name == "whole" {
				b.Write(w.EncodeAll(content, nil))
			} else if _, err := w.Write(content); err != nil {
				t.Fatal(err)
			} else if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			repo := host + "/" + strings.ToLower(strings.ReplaceAll(name, " ", "-"))
			pushImage(t, repo+":1.0.0", imageOf(t, "/app", static.NewLayer(b.Bytes(), types.OCILayerZStd)))
			_, tree, err := fetch(t, &OCI{URL: "oci://" + repo, Ref: OCIRef{Tag: "1.0.0"}, Layer: OCILayer{Code: true}, Out: loopback(t), Scratch: scratchDir(t)})
			switch {
			case tt.refused && (fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), "window of more than 32 MiB")):
				t.Errorf("fetch() = %v, want that the window is refused", err)
			case !tt.refused && (err != nil || tree["main.tf"] != "one"):
				t.Errorf("fetch() = %v, %v, want the code", tree["main.tf"], err)
			}
		})
	}
}

// rawManifest is a manifest as it is sent.
type rawManifest []byte

func (m rawManifest) RawManifest() ([]byte, error) { return m, nil }

// MediaType is what the registry is told that it is.
func (m rawManifest) MediaType() (types.MediaType, error) { return types.DockerManifestSchema2, nil }

// Of an image for several platforms the one of this machine is taken.
func TestCodeOfImageOfSeveralPlatforms(t *testing.T) {
	host := serveOCI(t, nil)
	var index v1.ImageIndex = empty.Index
	for _, arch := range []string{"s390x", runtime.GOARCH} {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: imageOf(t, "/app", layerOf(t, file("app/arch", arch))), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	tag, err := name.NewTag(host + "/net:2.0.0")
	if err == nil {
		err = remote.WriteIndex(tag, index)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, tree, err := fetch(t, &OCI{URL: "oci://" + host + "/net", Ref: OCIRef{SemVer: "2.x"}, Layer: OCILayer{Code: true}, Out: loopback(t), Scratch: scratchDir(t)})
	if err != nil || tree["arch"] != runtime.GOARCH {
		t.Errorf("the tree is %v (%v), want that of %s", tree, err, runtime.GOARCH)
	}
}

// A layer that is not what its digest says is no code.
func TestCodeOfImageIsCompared(t *testing.T) {
	other := layerOf(t, file("app/main.tf", "other"))
	wrong, err := other.Compressed()
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(wrong)
	if err != nil {
		t.Fatal(err)
	}
	layer := layerOf(t, file("app/main.tf", "right"))
	digest, err := layer.Digest()
	if err != nil {
		t.Fatal(err)
	}
	host := serveOCI(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, digest.String()) {
				_, _ = w.Write(content)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	pushImage(t, host+"/net:1.0.0", imageOf(t, "/app", layer))
	if _, tree, err := fetch(t, &OCI{URL: "oci://" + host + "/net", Ref: OCIRef{Tag: "1.0.0"}, Layer: OCILayer{Code: true}, Out: loopback(t), Scratch: scratchDir(t)}); err == nil {
		t.Errorf("the tree is %v, want an error", tree)
	}
}

// inPages has a registry list tags in pages of this many.
func inPages(of int, asked *atomic.Int32) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, "/tags/list") {
				next.ServeHTTP(w, r)
				return
			}
			asked.Add(1)
			last := r.URL.Query().Get("last")
			whole := r.Clone(r.Context())
			whole.URL.RawQuery = "n=" + strconv.Itoa(1<<20)
			rec := httptest.NewRecorder()
			next.ServeHTTP(rec, whole)
			var list struct {
				Name string   `json:"name"`
				Tags []string `json:"tags"`
			}
			if err := json.Unmarshal(rec.Body.Bytes(), &list); err != nil {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			slices.Sort(list.Tags)
			list.Tags = slices.DeleteFunc(list.Tags, func(tag string) bool { return tag <= last })
			if len(list.Tags) > of {
				list.Tags = list.Tags[:of]
				w.Header().Set("Link", fmt.Sprintf(`<%s?n=%d&last=%s>; rel="next"`, r.URL.Path, of, url.QueryEscape(list.Tags[of-1])))
			}
			_ = json.NewEncoder(w).Encode(list)
		})
	}
}

// The newest tag in the range is found on whichever page it is.
func TestNewestTagOfManyPages(t *testing.T) {
	var asked atomic.Int32
	host := serveOCI(t, inPages(10, &asked))
	for minor := range 35 {
		version := fmt.Sprintf("1.%d.0", minor)
		pushImage(t, host+"/net:"+version, imageOf(t, "/app", layerOf(t, file("app/version", version))))
	}
	revision, tree, err := fetch(t, &OCI{URL: "oci://" + host + "/net", Ref: OCIRef{SemVer: ">=1.2.0, <1.34"}, Layer: OCILayer{Code: true}, Out: loopback(t), Scratch: scratchDir(t)})
	if err != nil || tree["version"] != "1.33.0" || !strings.HasPrefix(revision, "1.33.0@sha256:") {
		t.Errorf("the revision is %s with %v (%v), want 1.33.0", revision, tree, err)
	}
	if asked.Load() != 4 {
		t.Errorf("the registry was asked for %d pages, want 4", asked.Load())
	}
}
