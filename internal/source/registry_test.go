package source

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/crane"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// diskRegistry serves a registry on dir.
func diskRegistry(t *testing.T, dir string, o RegistryOptions) *httptest.Server {
	t.Helper()
	handler, err := NewRegistry(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s
}

func TestRegistryWithARealClient(t *testing.T) {
	dir := t.TempDir()
	s := diskRegistry(t, dir, RegistryOptions{})
	host := strings.TrimPrefix(s.URL, "http://")
	image, err := random.Image(100_000, 3)
	if err != nil {
		t.Fatal(err)
	}
	index, err := random.Index(1000, 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	want, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	repo := host + "/team/blobs/uploads/net" // a name that looks like a path of the protocol
	for _, tag := range []string{"v1", "v2"} {
		if err := crane.Push(image, repo+":"+tag); err != nil {
			t.Fatal(err)
		}
	}
	if err := crane.Copy(repo+":v1", host+"/mounted:v1"); err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(host + "/index:latest")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(ref, index); err != nil {
		t.Fatal(err)
	}
	s.Close()

	// Everything is still there for another process.
	s = diskRegistry(t, dir, RegistryOptions{})
	moved := strings.TrimPrefix(s.URL, "http://")
	repo = strings.Replace(repo, host, moved, 1)
	tags, err := crane.ListTags(repo)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"v1", "v2"}, tags); diff != "" {
		t.Errorf("the tags differ (-want +got):\n%s", diff)
	}
	for _, ref := range []string{repo + ":v1", repo + "@" + want.String(), moved + "/mounted:v1"} {
		if got, err := crane.Digest(ref); err != nil || got != want.String() {
			t.Errorf("Digest(%s) = %q, %v, want %q", ref, got, err, want)
		}
		pulled, err := crane.Pull(ref)
		if err != nil {
			t.Fatal(err)
		}
		layers, err := pulled.Layers()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range layers {
			content, err := l.Compressed()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, content); err != nil {
				t.Errorf("reading a layer of %s: %v", ref, err)
			}
		}
	}
	if got, err := crane.Digest(moved + "/index:latest"); err != nil || got == "" {
		t.Errorf("Digest() of the index = %q, %v", got, err)
	}
	if err := crane.Delete(repo + "@" + want.String()); err != nil {
		t.Fatal(err)
	}
	if _, err := crane.Digest(repo + ":v1"); err == nil {
		t.Error("a tag of a deleted manifest still answers")
	}
}

func TestRegistryServesOurSources(t *testing.T) {
	host := strings.TrimPrefix(diskRegistry(t, t.TempDir(), RegistryOptions{}).URL, "http://")
	digest := pushTree(t, "oci://"+host+"/team/net:1.0.0", map[string]string{"main.tf": "a"})
	revision, tree, err := fetch(t, &OCI{URL: "oci://" + host + "/team/net", Ref: OCIRef{SemVer: "*"}, Out: loopback(t), Scratch: scratchDir(t)})
	if err != nil || revision != "1.0.0@"+digest || tree["main.tf"] != "a" {
		t.Errorf("fetch() = %q, %v, %v, want what was pushed", revision, tree, err)
	}
}

// client speaks the protocol in steps that no library takes.
type client struct {
	t   *testing.T
	url string
}

func (c client) do(method, path, contentType, body string, headers ...string) *http.Response {
	c.t.Helper()
	req, err := http.NewRequest(method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		c.t.Fatal(err)
	}
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(content))
	return resp
}

func (c client) want(resp *http.Response, status int) {
	c.t.Helper()
	if resp.StatusCode != status {
		body, _ := io.ReadAll(resp.Body)
		c.t.Errorf("%s %s = %d %s, want %d", resp.Request.Method, resp.Request.URL.Path, resp.StatusCode, body, status)
	}
}

func digestOf(content string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(content))) }

func TestRegistryChunks(t *testing.T) {
	c := client{t, diskRegistry(t, t.TempDir(), RegistryOptions{}).URL}
	at := c.do("POST", "/v2/repo/blobs/uploads/", "", "").Header.Get("Location")
	c.want(c.do("PATCH", at, "", "abc", "Content-Range", "0-2"), 202)
	c.want(c.do("PATCH", at, "", "xyz", "Content-Range", "1-3"), 416)
	status := c.do("GET", at, "", "")
	c.want(status, 204)
	if got := status.Header.Get("Range"); got != "0-2" {
		t.Errorf("Range = %q, want 0-2", got)
	}
	c.want(c.do("PATCH", at, "", "def", "Content-Range", "3-5"), 202)
	c.want(c.do("PUT", at+"?digest="+digestOf("abcdefghi"), "", "ghi"), 201)
	blob := c.do("GET", "/v2/repo/blobs/"+digestOf("abcdefghi"), "", "", "Range", "bytes=3-5")
	c.want(blob, 206)
	if body, _ := io.ReadAll(blob.Body); string(body) != "def" {
		t.Errorf("the range holds %q, want def", body)
	}
	c.want(c.do("GET", at, "", ""), 404)

	at = c.do("POST", "/v2/repo/blobs/uploads/", "", "").Header.Get("Location")
	c.want(c.do("DELETE", at, "", ""), 204)
	c.want(c.do("PATCH", at, "", "abc"), 404)
	c.want(c.do("POST", "/v2/repo/blobs/uploads/?digest="+digestOf("whole"), "", "whole"), 201)
	c.want(c.do("HEAD", "/v2/repo/blobs/"+digestOf("whole"), "", ""), 200)
	c.want(c.do("POST", "/v2/repo/other/blobs/uploads/?mount="+digestOf("whole")+"&from=repo", "", ""), 201)
	c.want(c.do("POST", "/v2/repo/third/blobs/uploads/?mount="+digestOf("whole")+"&from=repo/gone", "", ""), 202)
	// The right to write to one namespace is none to read another.
	c.want(c.do("POST", "/v2/other/blobs/uploads/?mount="+digestOf("whole")+"&from=repo", "", ""), 202)
	c.want(c.do("GET", "/v2/other/blobs/"+digestOf("whole"), "", ""), 404)
	c.want(c.do("GET", "/v2/fourth/blobs/"+digestOf("whole"), "", ""), 404)
}

func TestRegistryRefuses(t *testing.T) {
	dir := t.TempDir()
	c := client{t, diskRegistry(t, dir, RegistryOptions{BlobBytes: 10, ManifestBytes: 200}).URL}
	c.want(c.do("POST", "/v2/repo/blobs/uploads/?digest="+digestOf("x"), "", "x"), 201)
	at := c.do("POST", "/v2/repo/blobs/uploads/", "", "").Header.Get("Location")
	manifest := func(digest string) string { return `{"layers":[{"digest":"` + digest + `"}]}` }
	const oci = "application/vnd.oci.image.manifest.v1+json"
	for name, tt := range map[string]struct {
		method, path, contentType, body string
		status                          int
	}{
		"a name that goes up":               {"GET", "/v2/../../etc/blobs/" + digestOf("x"), "", "", 400},
		"an escaped name that goes up":      {"GET", "/v2/a%2f..%2f..%2frepo/manifests/v1", "", "", 400},
		"a name with an underscore first":   {"GET", "/v2/repo/_blobs/manifests/v1", "", "", 400},
		"a name with capitals":              {"POST", "/v2/Repo/blobs/uploads/", "", "", 400},
		"no name":                           {"GET", "/v2//manifests/v1", "", "", 400},
		"a name that is too long":           {"GET", "/v2/" + strings.Repeat("a", 256) + "/manifests/v1", "", "", 400},
		"a tag that goes up":                {"PUT", "/v2/repo/manifests/..", oci, "{}", 400},
		"a tag with a slash":                {"PUT", "/v2/repo/manifests/a%2fb", oci, "{}", 400},
		"a digest that goes up":             {"GET", "/v2/repo/blobs/sha256:..%2f..%2f_tags", "", "", 400},
		"another digest":                    {"GET", "/v2/repo/blobs/md5:1", "", "", 400},
		"an upload that goes up":            {"PATCH", "/v2/repo/blobs/uploads/..%2f..%2fx", "", "x", 404},
		"an upload that nobody began":       {"PATCH", "/v2/repo/blobs/uploads/" + strings.Repeat("a", 26), "", "x", 404},
		"a blob of another digest":          {"POST", "/v2/repo/blobs/uploads/?digest=" + digestOf("y"), "", "x", 400},
		"a blob that is too large":          {"PATCH", at, "", "01234567890", 413},
		"a large blob in one piece":         {"POST", "/v2/repo/blobs/uploads/?digest=" + digestOf("01234567890"), "", "01234567890", 413},
		"a manifest that is too large":      {"PUT", "/v2/repo/manifests/v1", oci, strings.Repeat(" ", 201), 413},
		"a manifest that is no JSON":        {"PUT", "/v2/repo/manifests/v1", oci, "x", 400},
		"a manifest without a type":         {"PUT", "/v2/repo/manifests/v1", "", "{}", 400},
		"a manifest of another digest":      {"PUT", "/v2/repo/manifests/" + digestOf("x"), oci, "{}", 400},
		"a manifest of what is not there":   {"PUT", "/v2/repo/manifests/v1", oci, manifest(digestOf("gone")), 400},
		"a manifest with a hostile digest":  {"PUT", "/v2/repo/manifests/v1", oci, manifest("sha256:../../x"), 400},
		"a manifest of another repository":  {"PUT", "/v2/other/manifests/v1", oci, manifest(digestOf("x")), 400},
		"a manifest that is not there":      {"GET", "/v2/repo/manifests/v1", "", "", 404},
		"tags of a repository that is none": {"GET", "/v2/gone/tags/list", "", "", 404},
		"something else":                    {"GET", "/etc/passwd", "", "", 404},
		"another method":                    {"POST", "/v2/repo/manifests/v1", "", "", 405},
	} {
		t.Run(name, func(t *testing.T) {
			c := client{t, c.url}
			c.want(c.do(tt.method, tt.path, tt.contentType, tt.body), tt.status)
		})
	}
	c.want(c.do("PUT", "/v2/repo/manifests/v1", oci, manifest(digestOf("x"))), 201)
	var outside []string
	matches, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range matches {
		if b := filepath.Base(m); b != "repos" && b != "uploads" {
			outside = append(outside, b)
		}
	}
	if len(outside) > 0 {
		t.Errorf("written outside: %v", outside)
	}
}

func TestRegistryDropsUploadsThatWereGivenUp(t *testing.T) {
	now := time.Now()
	dir := t.TempDir()
	c := client{t, diskRegistry(t, dir, RegistryOptions{Uploads: 2, UploadAge: time.Hour, Now: func() time.Time { return now }}).URL}
	for range 2 {
		c.want(c.do("POST", "/v2/repo/blobs/uploads/", "", ""), 202)
	}
	c.want(c.do("POST", "/v2/repo/blobs/uploads/", "", ""), 429)
	c.want(c.do("POST", "/v2/gone/blobs/uploads/", "", ""), 202)
	now = now.Add(2 * time.Hour)
	c.want(c.do("POST", "/v2/repo/blobs/uploads/", "", ""), 202)
	left, err := os.ReadDir(filepath.Join(dir, "uploads", "repo"))
	if err != nil || len(left) != 1 {
		t.Errorf("%d uploads are left, %v, want 1", len(left), err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "uploads", "gone")); err != nil || len(left) > 0 {
		t.Errorf("%d uploads of another namespace are left, %v, want none", len(left), err)
	}
}

func TestRegistryPages(t *testing.T) {
	c := client{t, diskRegistry(t, t.TempDir(), RegistryOptions{}).URL}
	for _, tag := range []string{"a", "b", "c"} {
		c.want(c.do("PUT", "/v2/repo/manifests/"+tag, "application/vnd.oci.image.index.v1+json", `{"manifests":[]}`), 201)
	}
	first := c.do("GET", "/v2/repo/tags/list?n=2", "", "")
	if body, _ := io.ReadAll(first.Body); strings.TrimSpace(string(body)) != `{"name":"repo","tags":["a","b"]}` {
		t.Errorf("the first page is %s", body)
	}
	if got, want := first.Header.Get("Link"), `</v2/repo/tags/list?last=b&n=2>; rel="next"`; got != want {
		t.Errorf("Link = %s, want %s", got, want)
	}
	second := c.do("GET", "/v2/repo/tags/list?last=b&n=2", "", "")
	if body, _ := io.ReadAll(second.Body); strings.TrimSpace(string(body)) != `{"name":"repo","tags":["c"]}` || second.Header.Get("Link") != "" {
		t.Errorf("the last page is %s, Link %q", body, second.Header.Get("Link"))
	}
	c.want(c.do("GET", "/v2/repo/tags/list?n=x", "", ""), 400)
}
