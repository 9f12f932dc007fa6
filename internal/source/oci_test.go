package source

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	ggcr "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
)

// serveOCI runs a registry of another vendor.
func serveOCI(t *testing.T, around func(http.Handler) http.Handler) (host string) {
	t.Helper()
	handler := ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0)))
	if around != nil {
		handler = around(handler)
	}
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// pushLayers pushes an artifact with the given layers by media type, in order.
func pushLayers(t *testing.T, ref string, layers ...[2]string) {
	t.Helper()
	image := mutate.Annotations(mutate.MediaType(empty.Image, types.OCIManifestSchema1), map[string]string{"team": "a"}).(v1.Image)
	for _, l := range layers {
		var err error
		if image, err = mutate.AppendLayers(image, static.NewLayer([]byte(l[1]), types.MediaType(l[0]))); err != nil {
			t.Fatal(err)
		}
	}
	tag, err := name.NewTag(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(tag, image); err != nil {
		t.Fatal(err)
	}
}

func tarOf(t *testing.T, files map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, content := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func pushTree(t *testing.T, url string, files map[string]string) string {
	t.Helper()
	digest, err := Push(context.Background(), plant(t, files), url, PushOptions{Out: loopback(t), Source: "here", Revision: "main@sha1:1"})
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

func TestOCIReferences(t *testing.T) {
	host := serveOCI(t, nil)
	repo := "oci://" + host + "/team/net"
	digests := map[string]string{}
	for _, tag := range []string{"latest", "1.0.0", "1.1.0", "2.0.0-rc.1", "1.2.0-dev", "main"} {
		digests[tag] = pushTree(t, repo+":"+tag, map[string]string{"main.tf": tag})
	}
	for name, tt := range map[string]struct {
		ref      OCIRef
		revision string
		content  string
		kind     fault.Kind
	}{
		"nothing means latest":                {OCIRef{}, "latest@" + digests["latest"], "latest", ""},
		"a tag":                               {OCIRef{Tag: "main"}, "main@" + digests["main"], "main", ""},
		"a range takes the highest tag":       {OCIRef{SemVer: "1.x"}, "1.1.0@" + digests["1.1.0"], "1.1.0", ""},
		"a range over the tags that fit":      {OCIRef{SemVer: ">=1.0.0-0", Filter: `.*-dev$`}, "1.2.0-dev@" + digests["1.2.0-dev"], "1.2.0-dev", ""},
		"a range wins over a tag":             {OCIRef{SemVer: "1.0.x", Tag: "main"}, "1.0.0@" + digests["1.0.0"], "1.0.0", ""},
		"a digest wins over everything":       {OCIRef{Digest: digests["main"], SemVer: "1.x"}, digests["main"], "main", ""},
		"a tag that is not there is missing":  {OCIRef{Tag: "gone"}, "", "", fault.Missing},
		"a digest that is not there":          {OCIRef{Digest: "sha256:" + strings.Repeat("1", 64)}, "sha256:" + strings.Repeat("1", 64), "", fault.Missing},
		"a range without a tag is missing":    {OCIRef{SemVer: "9.x"}, "", "", fault.Missing},
		"a range that is none is invalid":     {OCIRef{SemVer: "newest"}, "", "", fault.Invalid},
		"a filter that is none is invalid":    {OCIRef{SemVer: "1.x", Filter: "("}, "", "", fault.Invalid},
		"a digest that is none is invalid":    {OCIRef{Digest: "sha256:1"}, "", "", fault.Invalid},
		"a tag that cannot be one is invalid": {OCIRef{Tag: "a/../b"}, "", "", fault.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			revision, tree, err := fetch(t, &OCI{URL: repo, Ref: tt.ref, Out: loopback(t), Scratch: scratchDir(t)})
			if got := fault.Of(err); got != tt.kind || revision != tt.revision || tree["main.tf"] != tt.content {
				t.Errorf("fetch() = %q, %v, %v, want %q, %q, kind %q", revision, tree, err, tt.revision, tt.content, tt.kind)
			}
		})
	}
}

func TestOCILayers(t *testing.T) {
	host := serveOCI(t, nil)
	pushLayers(t, host+"/layers:latest",
		[2]string{"application/one", tarOf(t, map[string]string{"one.tf": "1"})},
		[2]string{"application/two", tarOf(t, map[string]string{"two.tf": "2", "x.zip": "3"})},
		[2]string{"application/text", "just text"})
	pushLayers(t, host+"/hostile:latest", [2]string{"application/one", tarOf(t, map[string]string{"../evil": "1"})})
	pushLayers(t, host+"/empty:latest")
	for name, tt := range map[string]struct {
		repo  string
		layer OCILayer
		want  map[string]string
		kind  fault.Kind
	}{
		"the first one":                  {"layers", OCILayer{}, map[string]string{"one.tf": "1"}, ""},
		"by media type":                  {"layers", OCILayer{MediaType: "application/two"}, map[string]string{"two.tf": "2"}, ""},
		"a media type that is not there": {"layers", OCILayer{MediaType: "application/gone"}, nil, fault.Invalid},
		"one that is no archive":         {"layers", OCILayer{MediaType: "application/text"}, nil, fault.Invalid},
		"one with a name that leads out": {"hostile", OCILayer{}, nil, fault.Invalid},
		"an artifact without any":        {"empty", OCILayer{}, nil, fault.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			_, tree, err := fetch(t, &OCI{URL: "oci://" + host + "/" + tt.repo, Layer: tt.layer, Out: loopback(t), Scratch: scratchDir(t)})
			if got := fault.Of(err); got != tt.kind {
				t.Fatalf("fetch() = %v, of kind %q, want %q", err, got, tt.kind)
			}
			if diff := cmp.Diff(tt.want, tree); diff != "" {
				t.Errorf("the tree differs (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("copied as it is", func(t *testing.T) {
		o := &OCI{URL: "oci://" + host + "/layers", Layer: OCILayer{MediaType: "application/text", Copy: true}, Out: loopback(t), Scratch: scratchDir(t)}
		found, err := o.Resolve(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		metadata, err := o.Fetch(context.Background(), found, &b)
		if err != nil || b.String() != "just text" || metadata["team"] != "a" {
			t.Errorf("Fetch() = %v, %q, %v, want the text and the annotations", metadata, b.String(), err)
		}
	})
}

func TestOCIComparesDigests(t *testing.T) {
	var flip atomic.Bool
	host := serveOCI(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !flip.Load() || r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/") {
				next.ServeHTTP(w, r)
				return
			}
			answer := httptest.NewRecorder()
			next.ServeHTTP(answer, r)
			body := answer.Body.Bytes()
			body[len(body)/2] ^= 1
			w.Write(body)
		})
	})
	url := "oci://" + host + "/repo"
	pushTree(t, url+":latest", map[string]string{"main.tf": "a"})
	flip.Store(true)
	if _, tree, err := fetch(t, &OCI{URL: url, Out: loopback(t), Scratch: scratchDir(t)}); err == nil {
		t.Errorf("fetch() = %v, want a refusal of the flipped bit", tree)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// A manifest is held in memory, so a registry cannot send a large one, also by way of another
// address.
func TestOCIManifestsAreBounded(t *testing.T) {
	var led bool
	host := serveOCI(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case strings.HasPrefix(r.URL.Path, "/elsewhere"), strings.Contains(r.URL.Path, "/manifests/") && !led:
				w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
				_, _ = io.Copy(w, io.LimitReader(zeros{}, mostManifest+1))
			case strings.Contains(r.URL.Path, "/manifests/"):
				http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
			default:
				next.ServeHTTP(w, r)
			}
		})
	})
	o := &OCI{URL: "oci://" + host + "/team/net", Ref: OCIRef{Digest: digestOf("x")}, Out: loopback(t), Scratch: scratchDir(t)}
	for _, led = range []bool{false, true} {
		if _, _, err := fetch(t, o); fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), "a manifest of more than 4 MiB") {
			t.Errorf("with a large manifest, elsewhere %t, the error is %v", led, err)
		}
	}
}

// The list of tags is held in memory, so a registry cannot send a large one, however many pages
// it has.
func TestOCITagsAreBounded(t *testing.T) {
	page := `{"name": "net", "tags": ["1.0.0"` + strings.Repeat(`, "x"`, 1<<20) + `]}` // 5 MiB
	host := serveOCI(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, "/tags/list") {
				next.ServeHTTP(w, r)
				return
			}
			if at := r.URL.Query().Get("last"); len(at) < 5 {
				w.Header().Set("Link", "</v2/net/tags/list?last="+at+`x>; rel="next"`)
			}
			_, _ = io.WriteString(w, page)
		})
	})
	pushTree(t, "oci://"+host+"/net:1.0.0", map[string]string{"main.tf": "a"})
	o := &OCI{URL: "oci://" + host + "/net", Ref: OCIRef{SemVer: "*"}, Out: loopback(t), Scratch: scratchDir(t)}
	if found, err := o.Resolve(t.Context()); fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), "more than 16 MiB of tags") {
		t.Errorf("Resolve() = %+v, %v, want a refusal", found, err)
	}
}

func TestOCICredentials(t *testing.T) {
	host := serveOCI(t, only(func(r *http.Request) bool {
		user, password, _ := r.BasicAuth()
		return user == "u" && password == "canary"
	}))
	keys := func(config string) *Keyring {
		k, err := ParseKeyring([]byte(strings.ReplaceAll(config, "HOST", host)))
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	good := keys(`{"auths":{"https://HOST/v1/":{"username":"u","password":"canary"},"other.example":{"username":"x","password":"y"}}}`)
	if _, err := Push(context.Background(), plant(t, map[string]string{"main.tf": "a"}), "oci://"+host+"/repo:latest", PushOptions{Out: loopback(t), Keys: good}); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		keys *Keyring
		kind fault.Kind
	}{
		"those of the registry":            {good, ""},
		"encoded as Docker does it":        {keys(`{"auths":{"HOST":{"auth":"dTpjYW5hcnk="}}}`), ""},
		"those of the repository go first": {keys(`{"auths":{"HOST":{"auth":"eDp5"},"HOST/repo":{"auth":"dTpjYW5hcnk="}}}`), ""},
		"those of another repository":      {keys(`{"auths":{"HOST/rep":{"auth":"dTpjYW5hcnk="}}}`), fault.Denied},
		"wrong ones":                       {keys(`{"auths":{"HOST":{"username":"u","password":"wrong"}}}`), fault.Denied},
		"none":                             {nil, fault.Denied},
	} {
		t.Run(name, func(t *testing.T) {
			_, tree, err := fetch(t, &OCI{URL: "oci://" + host + "/repo", Keys: tt.keys, Out: loopback(t), Scratch: scratchDir(t)})
			if got := fault.Of(err); got != tt.kind || tt.kind == "" && tree["main.tf"] != "a" {
				t.Errorf("fetch() = %v, %v, of kind %q, want %q", tree, err, got, tt.kind)
			}
		})
	}
	if _, err := ParseKeyring([]byte(`{"auths": canary`)); fault.Of(err) != fault.Invalid || strings.Contains(err.Error(), "canary") {
		t.Errorf("ParseKeyring() = %v, want Invalid without a quotation", err)
	}
}

func TestOCIURLs(t *testing.T) {
	for _, url := range []string{"", "https://example.com/repo", "oci://", "oci://example.com/Repo", "oci://example.com/repo:tag", "oci://example.com/../repo", "oci://user:canary@example.com/repo"} {
		_, err := (&OCI{URL: url, Out: loopback(t), Scratch: scratchDir(t)}).Resolve(context.Background())
		if fault.Of(err) != fault.Invalid {
			t.Errorf("Resolve(%q) = %v, want Invalid", url, err)
		}
	}
}

func TestOCIOverPlainHTTP(t *testing.T) {
	host := serveOCI(t, nil)
	pushTree(t, "oci://"+host+"/repo:latest", map[string]string{"main.tf": "a"})
	allow, err := outbound.ParseAllow("127.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	strict := outbound.New(outbound.Policy{Allow: allow, Resolver: loopbackResolver{}})
	t.Cleanup(strict.Close)
	_, port, _ := strings.Cut(host, ":")
	for name, tt := range map[string]struct {
		host     string
		insecure bool
		kind     fault.Kind
	}{
		"a registry on this machine":                   {host, false, ""},
		"one elsewhere":                                {"registry.example:" + port, false, fault.Broken}, // https fails, and nothing else is tried
		"one elsewhere, though the source asks for it": {"registry.example:" + port, true, fault.Denied},
		"one whose name only begins like this machine": {"localhost.example:" + port, false, fault.Broken},
	} {
		t.Run(name, func(t *testing.T) {
			_, tree, err := fetch(t, &OCI{URL: "oci://" + tt.host + "/repo", Insecure: tt.insecure, Out: strict, Scratch: scratchDir(t)})
			if got := fault.Of(err); got != tt.kind || tt.kind == "" && tree["main.tf"] != "a" {
				t.Errorf("fetch() = %v, %v, of kind %q, want %q", tree, err, got, tt.kind)
			}
		})
	}
}

// loopbackResolver finds every name on this machine.
type loopbackResolver struct{}

func (loopbackResolver) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

func TestPush(t *testing.T) {
	host := serveOCI(t, nil)
	files := map[string]string{
		"main.tf": "a", "archive.zip": "b", ".git/config": "c", ".terraform/providers/x": "d", "terraform.tfstate": "e",
		"secret.auto.tfvars": "f", ".sourceignore": "*.auto.tfvars\n",
	}
	first := pushTree(t, "oci://"+host+"/a:1", files)
	if second := pushTree(t, "oci://"+host+"/b:2", files); second != first {
		t.Errorf("pushing a tree twice makes %s and %s, want one digest", first, second)
	}
	image, err := remote.Image(mustTag(t, host+"/a:1"))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if string(manifest.Config.MediaType) != MediaTypeConfig || len(manifest.Layers) != 1 || string(manifest.Layers[0].MediaType) != MediaTypeContent {
		t.Errorf("the manifest is %+v, want Flux's media types", manifest)
	}
	want := map[string]string{"org.opencontainers.image.source": "here", "org.opencontainers.image.revision": "main@sha1:1"}
	if diff := cmp.Diff(want, manifest.Annotations); diff != "" {
		t.Errorf("the annotations differ (-want +got):\n%s", diff)
	}
	all := ""
	_, tree, err := fetch(t, &OCI{URL: "oci://" + host + "/a", Ref: OCIRef{Tag: "1"}, Ignore: &all, Out: loopback(t), Scratch: scratchDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"main.tf": "a", "archive.zip": "b", ".sourceignore": "*.auto.tfvars\n"}, tree); diff != "" {
		t.Errorf("the tree differs (-want +got):\n%s", diff)
	}
}

func mustTag(t *testing.T, ref string) name.Tag {
	t.Helper()
	tag, err := name.NewTag(ref)
	if err != nil {
		t.Fatal(err)
	}
	return tag
}
