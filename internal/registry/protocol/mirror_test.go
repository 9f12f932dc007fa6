package protocol_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/mirror"
	"github.com/terrier-iac/terrier/internal/registry/protocol"
	"github.com/terrier-iac/terrier/internal/registry/registrytest"
	"github.com/terrier-iac/terrier/internal/registry/registrytest/enginetest"
	"github.com/terrier-iac/terrier/internal/registry/rights"
)

const (
	other   = "plan9_386"
	public  = "registry.opentofu.org"
	private = "registry.example.com"
)

// served is a mirror over TLS, its upstream, and the requests of its clients.
type served struct {
	*httptest.Server
	mirror    *mirror.Mirror
	upstream  *registrytest.Upstream
	authority string // the file of its certificate
	namespace string // where its clients may read
	ahead     atomic.Int64
	log       logged

	mu    sync.Mutex
	asked []*http.Request
}

// logged is a log that a test reads.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (s *served) now() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }

// Caller implements protocol.Rights: a token is the name of its tenant, behind "token-".
func (s *served) Caller(r *http.Request) (protocol.Caller, error) {
	tenant, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer token-")
	if !ok {
		return protocol.Caller{}, protocol.Unauthenticated(errors.New("the token is not known here"))
	}
	return protocol.Caller{Name: tenant, Tenant: tenant}, nil
}

// May denies all but one namespace: namespaces are not what the mirror is about.
func (s *served) May(_ context.Context, _ protocol.Caller, v protocol.Verb, namespace string) error {
	if v == protocol.Read && namespace != "" && namespace == s.namespace {
		return nil
	}
	return errors.New("the mirror asks for a right in a namespace")
}

func serveMirror(t *testing.T, u *registrytest.Upstream, rules ...mirror.Rule) *served {
	t.Helper()
	store, err := blob.OpenVersionedFiles(t.TempDir(), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return serveMirrorOf(t, store, u, rules...)
}

// serveMirrorOf starts a mirror on a store that others may have as well.
func serveMirrorOf(t testing.TB, store blob.Versions, u *registrytest.Upstream, rules ...mirror.Rule) *served {
	t.Helper()
	s := &served{upstream: u}
	ca := filepath.Join(t.TempDir(), "upstream.pem")
	if err := os.WriteFile(ca, u.Authority, 0o600); err != nil {
		t.Fatal(err)
	}
	allow, err := outbound.ParseAllow("127.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), &s.log), nil))
	up := mirror.Upstream{URL: u.URL, CAFile: ca}
	s.mirror, err = mirror.New(store, mirror.Options{
		Settings: mirror.Settings{Upstreams: map[string]mirror.Upstream{public: up, private: up}, Rules: rules},
		Policy:   outbound.Policy{Allow: allow}, Scratch: t.TempDir(), Patience: time.Minute, Now: s.now, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := protocol.New(protocol.Options{
		Registry: registry.New(store, registry.Options{Now: s.now}), Rights: s, Signer: rights.NewSigner(rights.NewKey(), s.now), Now: s.now, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	handler.ServeMirror(s.mirror)
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked = append(s.asked, r)
		s.mu.Unlock()
		handler.ServeHTTP(w, r)
	}))
	s.authority = enginetest.Authority(t, s.Server)
	t.Cleanup(func() {
		s.Close()
		s.mirror.Close()
	})
	return s
}

// engine is the real engine with a token, behind the mirror. More are lines of the block
// that names the mirror.
func (s *served) engine(token, more string) enginetest.Client {
	config := enginetest.NetworkMirror(s.URL+protocol.MirrorPath, more) + enginetest.Credentials(strings.TrimPrefix(s.URL, "https://"), token)
	return enginetest.Client{Authority: s.authority, Config: config}
}

func (s *served) init(t *testing.T, dir, token string) (string, error) {
	t.Helper()
	return s.engine(token, "").Init(t, dir)
}

// RG-10: the engine installs through the mirror. Its token goes along with the documents
// and not with archives.
func TestMirrorWithEngine(t *testing.T) {
	signer := registrytest.NewSigner(t)
	r := registrytest.NewRelease(t, signer, "acme/cloud", "1.2.0", 50_000, here, other)
	u := registrytest.New(t)
	u.Publish(r, registrytest.NewRelease(t, signer, "acme/cloud", "2.0.0", 0, here), registrytest.NewRelease(t, signer, "acme/cloudier", "1.9.0", 0, here))
	s := serveMirror(t, u)
	dir := enginetest.Requiring(t, private+"/acme/cloud", "~> 1.0")
	if out, err := s.init(t, dir, "token-team-a"); err != nil {
		t.Fatalf("init: %v\n%s", err, out)
	}
	h1, zh := r.Hashes(t, here)
	lock := enginetest.LockFile(t, dir)
	if !strings.Contains(lock, `version     = "1.2.0"`) || !strings.Contains(lock, h1) || !strings.Contains(lock, zh) {
		t.Errorf("the lock file has not 1.2.0, %s and %s:\n%s", h1, zh, lock)
	}
	s.mu.Lock()
	for _, asked := range s.asked {
		document := strings.HasSuffix(asked.URL.Path, ".json")
		if got := asked.Header.Get("Authorization"); (got == "Bearer token-team-a") != document || !document && got != "" {
			t.Errorf("%s was asked for with the authorization %q", asked.URL.Path, got)
		}
	}
	s.mu.Unlock()

	// RG-12: the upstream is down, and another stack installs, with and without a lock file.
	u.Fail("", registrytest.Status(502))
	s.ahead.Add(int64(time.Hour))
	for _, locked := range []bool{false, true} {
		next := enginetest.Requiring(t, private+"/acme/cloud", ">= 1.0.0")
		if locked {
			if err := os.WriteFile(filepath.Join(next, ".terraform.lock.hcl"), []byte(lock), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := s.init(t, next, "token-team-b"); err != nil {
			t.Errorf("init while the upstream is down, locked: %v: %v\n%s", locked, err, out)
		}
	}
	if out, err := s.init(t, enginetest.Requiring(t, private+"/acme/cloudier", "1.9.0"), "token-team-a"); err == nil || !strings.Contains(out, "503") {
		t.Errorf("init of what is not stored: %v\n%s", err, out)
	}
	if text := s.log.String(); !regexp.MustCompile(`msg="request to the mirror not served" path=\S+/acme/cloudier/\S+ reason=Upstream\w+ err=`).MatchString(text) {
		t.Errorf("the log does not say why: %s", text)
	}
	if got := u.Count(".zip"); got != 1 {
		t.Errorf("the upstream sent %d archives, want 1", got)
	}
}

// RG-07: with trust_all_hashes, the lock file has all hashes of all platforms that the
// mirror has, for sources of the public registry.
func TestMirrorFillsLockFiles(t *testing.T) {
	r := registrytest.NewRelease(t, registrytest.NewSigner(t), "acme/cloud", "1.0.0", 0, here, other)
	u := registrytest.New(t)
	u.Publish(r)
	s := serveMirror(t, u)
	// Another client made the mirror store the archive of its here.
	s.get(t, s.archive(t, public, "1.0.0", other), "", http.StatusOK)
	s.get(t, s.archive(t, public, "1.0.0", here), "", http.StatusOK)
	dir := enginetest.Requiring(t, "acme/cloud", "1.0.0")
	if out, err := s.engine("token-team-a", "    trust_all_hashes = true\n").Init(t, dir); err != nil {
		t.Fatalf("init: %v\n%s", err, out)
	}
	for _, on := range []string{here, other} {
		h1, zh := r.Hashes(t, on)
		if lock := enginetest.LockFile(t, dir); !strings.Contains(lock, h1) || !strings.Contains(lock, zh) {
			t.Errorf("the lock file has not %s and %s of %s:\n%s", h1, zh, on, lock)
		}
	}
}

// RG-14, RG-19: the engine says that a caller is not known, or that a provider is denied.
func TestMirrorDenies(t *testing.T) {
	u := registrytest.New(t)
	u.Publish(registrytest.NewRelease(t, registrytest.NewSigner(t), "acme/cloud", "1.0.0", 0, here))
	s := serveMirror(t, u, mirror.Rule{Tenants: []string{"team-b"}, Deny: []mirror.Pattern{{Provider: "*/acme/*", Reason: "use acme-two"}}})
	for token, want := range map[string]struct {
		status int
		says   string
	}{
		"canary-4711":  {http.StatusUnauthorized, "the token is not known here"},
		"token-team-b": {http.StatusForbidden, "denied to the tenant team-b: use acme-two"},
	} {
		out, err := s.init(t, enginetest.Requiring(t, private+"/acme/cloud", "1.0.0"), token)
		if err == nil || !strings.Contains(out, "rejected the given authentication credentials") {
			t.Errorf("%s: init ended with %v\n%s", token, err, out)
		}
		for _, file := range []string{"index.json", "1.0.0.json"} {
			body := s.get(t, protocol.MirrorPath+private+"/acme/cloud/"+file, token, want.status)
			var reply struct{ Errors []string }
			if err := json.Unmarshal(body, &reply); err != nil || len(reply.Errors) != 1 && file == "index.json" || !strings.Contains(string(body), want.says) {
				t.Errorf("%s: %s is %s, want an error that says %q", token, file, body, want.says)
			}
		}
	}
}

// get sends a request and checks the status.
func (s *served) get(t *testing.T, path, token string, status int) []byte {
	t.Helper()
	resp, body := s.do(t, http.MethodGet, path, token, nil)
	if resp.StatusCode != status {
		t.Errorf("GET %s is %s %s, want %d", path, resp.Status, body, status)
	}
	return body
}

func (s *served) do(t *testing.T, method, path, token string, header http.Header) (*http.Response, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, body
}

// archive is the path of an archive as VERSION.json names it.
func (s *served) archive(t *testing.T, host, version, on string) string {
	t.Helper()
	dir := protocol.MirrorPath + host + "/acme/cloud/"
	var found struct {
		Archives map[string]struct{ URL string }
	}
	if err := json.Unmarshal(s.get(t, dir+version+".json", "token-team-a", http.StatusOK), &found); err != nil {
		t.Fatal(err)
	}
	base, err := url.Parse(dir)
	if err != nil {
		t.Fatal(err)
	}
	at, err := base.Parse(found.Archives[on].URL)
	if err != nil {
		t.Fatal(err)
	}
	return at.String()
}

// Archives are served by signed addresses alone, in ranges, and with their checksum for a
// tag.
func TestMirrorArchives(t *testing.T) {
	r := registrytest.NewRelease(t, registrytest.NewSigner(t), "acme/cloud", "1.0.0", 10_000, here)
	u := registrytest.New(t)
	u.Publish(r)
	s := serveMirror(t, u)
	address, data := s.archive(t, private, "1.0.0", here), r.Archives[here]
	resp, body := s.do(t, http.MethodGet, address, "", nil)
	if resp.StatusCode != http.StatusOK || !bytes.Equal(body, data) || resp.ContentLength != int64(len(data)) || resp.Header.Get("Etag") != `"`+registrytest.Sum(data)+`"` {
		t.Errorf("GET is %s with %d bytes of %d, and the tag %s", resp.Status, len(body), resp.ContentLength, resp.Header.Get("Etag"))
	}
	resp, body = s.do(t, http.MethodGet, address, "", http.Header{"Range": {"bytes=100-199"}})
	if resp.StatusCode != http.StatusPartialContent || !bytes.Equal(body, data[100:200]) {
		t.Errorf("GET of a range is %s with %d bytes", resp.Status, len(body))
	}
	resp, body = s.do(t, http.MethodHead, address, "", nil)
	if resp.StatusCode != http.StatusOK || len(body) != 0 || resp.ContentLength != int64(len(data)) {
		t.Errorf("HEAD is %s with a length of %d", resp.Status, resp.ContentLength)
	}
	resp, _ = s.do(t, http.MethodGet, address, "", http.Header{"If-None-Match": {`"` + registrytest.Sum(data) + `"`}})
	if resp.StatusCode != http.StatusNotModified {
		t.Errorf("GET of a known tag is %s", resp.Status)
	}

	parsed, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	forged := func(name, value string) string {
		query := parsed.Query()
		query.Set(name, value)
		return parsed.Path + "?" + query.Encode()
	}
	for what, path := range map[string]string{
		"no signature":          parsed.Path,
		"another tenant":        forged("for", "team-b"),
		"a later end":           forged("expires", "99999999999"),
		"another signature":     forged("signature", "AAAA"),
		"the address of others": strings.Replace(address, "1.0.0", "1.0.1", 1),
	} {
		if resp, body := s.do(t, http.MethodGet, path, "token-team-a", nil); resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: GET is %s %s, want 403", what, resp.Status, body)
		}
	}
	s.ahead.Add(int64(16 * time.Minute))
	if body := s.get(t, address, "", http.StatusForbidden); !strings.Contains(string(body), "has expired") {
		t.Errorf("an address that has expired is %s", body)
	}
	for path, want := range map[string]int{
		"registry.example.com:8443/acme/cloud/index.json": http.StatusUnprocessableEntity, // D5
		private + "/acme/cloud/latest.json":               http.StatusNotFound,
		private + "/acme/cloud/1.0.0.tar":                 http.StatusNotFound,
		private + "/acme/nothing/index.json":              http.StatusNotFound,
		private + "/acme/cloud/2.0.0.json":                http.StatusNotFound,
		"other.example.com/acme/cloud/index.json":         http.StatusNotFound,
		private + "/acme/cloud/../cloud/x/index.json":     http.StatusNotFound,
		private + "/acme/xn--cloud/index.json":            http.StatusUnprocessableEntity,
	} {
		resp, body := s.do(t, http.MethodGet, protocol.MirrorPath+path, "token-team-a", nil)
		if resp.StatusCode != want {
			t.Errorf("GET %s is %s %s, want %d", path, resp.Status, body, want)
		}
	}
}

// RG-11: engines that start at the same time share one download.
func TestMirrorColdEngines(t *testing.T) {
	r := registrytest.NewRelease(t, registrytest.NewSigner(t), "acme/cloud", "1.0.0", 1<<20, here)
	u := registrytest.New(t)
	u.Publish(r)
	s := serveMirror(t, u)
	var all sync.WaitGroup
	for range 4 {
		dir := enginetest.Requiring(t, private+"/acme/cloud", "1.0.0")
		all.Go(func() {
			if out, err := s.init(t, dir, "token-team-a"); err != nil {
				t.Errorf("init: %v\n%s", err, out)
			}
		})
	}
	address := s.archive(t, private, "1.0.0", here)
	for range 50 {
		all.Go(func() {
			if resp, body := s.do(t, http.MethodGet, address, "", nil); resp.StatusCode != http.StatusOK || !bytes.Equal(body, r.Archives[here]) {
				t.Errorf("GET is %s with %d bytes", resp.Status, len(body))
			}
		})
	}
	all.Wait()
	if got := u.Count(".zip"); got != 1 {
		t.Errorf("the upstream sent %d archives, want 1", got)
	}
}

// RG-13: what `tofu providers mirror` made is imported by a mirror that reaches nothing,
// and what that one exports is a filesystem_mirror of the engine.
func TestMirrorBundlesOfTheEngine(t *testing.T) {
	r := registrytest.NewRelease(t, registrytest.NewSigner(t), "acme/cloud", "1.0.0", 0, here)
	u := registrytest.New(t)
	u.Publish(r)
	authority := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(authority, u.Authority, 0o600); err != nil {
		t.Fatal(err)
	}
	dir, bundle := enginetest.Requiring(t, private+"/acme/cloud", "1.0.0"), t.TempDir()
	direct := fmt.Sprintf("host %q {\n  services = {\n    \"providers.v1\" = %q\n  }\n}\n", private, u.URL+"v1/providers/")
	if out, err := (enginetest.Client{Authority: authority, Config: direct}).Run(t, dir, "providers", "mirror", bundle); err != nil {
		t.Fatalf("providers mirror: %v\n%s", err, out)
	}
	s := serveMirror(t, u)
	u.Fail("", registrytest.Status(503))
	if got, err := s.mirror.Import(t.Context(), os.DirFS(bundle), "alice"); err != nil || got.Archives != 1 {
		t.Fatalf("Import() = %+v, %v, want one archive", got, err)
	}
	if out, err := s.init(t, dir, "token-team-a"); err != nil {
		t.Fatalf("init through the mirror: %v\n%s", err, out)
	}
	exported := t.TempDir()
	if got, err := s.mirror.Export(t.Context(), exported, mirror.Selection{}); err != nil || got != 1 {
		t.Fatalf("Export() = %d, %v, want one archive", got, err)
	}
	next := enginetest.Requiring(t, private+"/acme/cloud", "1.0.0")
	files := fmt.Sprintf("provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", exported)
	if out, err := (enginetest.Client{Authority: authority, Config: files}).Init(t, next); err != nil {
		t.Fatalf("init from the exported bundle: %v\n%s", err, out)
	}
	h1, _ := r.Hashes(t, here)
	for _, d := range []string{dir, next} {
		if lock := enginetest.LockFile(t, d); !strings.Contains(lock, h1) {
			t.Errorf("the lock file has not %s:\n%s", h1, lock)
		}
	}
	var names []string
	found, err := filepath.Glob(filepath.Join(exported, private, "acme/cloud/*"))
	for _, f := range found {
		names = append(names, filepath.Base(f))
	}
	if want := []string{"1.0.0.json", "index.json", "terraform-provider-cloud_1.0.0_" + here + ".zip"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("the bundle has %q, %v, want %q", names, err, want)
	}
}
