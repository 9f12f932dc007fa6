package protocol_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/protocol"
	"github.com/terrier-iac/terrier/internal/registry/registrytest"
	"github.com/terrier-iac/terrier/internal/registry/registrytest/enginetest"
	"github.com/terrier-iac/terrier/internal/registry/rights"
)

// Tokens of the callers of a test.
const (
	admin  = "token-of-the-administrator"
	reader = "token-of-a-reader"
)

// callers are the rights of a test: the administrator may do all, and the reader may read
// in the namespace team.
type callers struct{}

func (callers) Caller(r *http.Request) (protocol.Caller, error) {
	switch r.Header.Get("Authorization") {
	case "Bearer " + admin:
		return protocol.Caller{Name: "ann", Tenant: "platform"}, nil
	case "Bearer " + reader:
		return protocol.Caller{Name: "bob", Tenant: "team"}, nil
	}
	return protocol.Caller{}, protocol.Unauthenticated(errors.New("the request has no token that is known"))
}

func (callers) May(_ context.Context, c protocol.Caller, v protocol.Verb, namespace string) error {
	if c.Name == "ann" || v == protocol.Read && namespace == "team" {
		return nil
	}
	return fault.New(fault.Denied, "AccessDenied", fmt.Errorf("%s may not %s in the namespace %s", c.Name, v, namespace))
}

// service is a registry over TLS.
type service struct {
	URL string
	*http.Client
	store blob.Versions
	ca    string // a file

	mu     sync.Mutex
	now    time.Time // zero: that of the machine
	log    bytes.Buffer
	change func(http.Handler) http.Handler
	broken int64            // if not zero, reading an archive fails after so many bytes
	served map[string]int64 // by tenant
}

func (s *service) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now.IsZero() {
		return time.Now()
	}
	return s.now
}

func (s *service) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(p)
}

// between puts a handler in front of the registry, as a proxy or an older registry.
func (s *service) between(change func(http.Handler) http.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change = change
}

func start(t *testing.T) *service {
	t.Helper()
	store, err := blob.OpenVersionedFiles(t.TempDir(), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return startOn(t, store)
}

// startOn starts a registry on a store that others may have as well.
func startOn(t *testing.T, store blob.Versions) *service {
	t.Helper()
	s := &service{store: store, served: map[string]int64{}}
	log := slog.New(slog.NewTextHandler(s, &slog.HandlerOptions{Level: slog.LevelDebug}))
	handler, err := protocol.New(protocol.Options{
		Registry: registry.New(breaking{store, s}, registry.Options{Scratch: t.TempDir(), MaxArchive: 4 << 20, Now: s.clock, Log: log}),
		Rights:   callers{},
		Now:      s.clock,
		Signer:   rights.NewSigner(rights.NewKey(), s.clock),
		Served: func(tenant, _ string, bytes int64) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.served[tenant] += bytes
		},
		Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		change := s.change
		s.mu.Unlock()
		if change == nil {
			handler.ServeHTTP(w, r)
			return
		}
		change(handler).ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s.URL, s.Client = server.URL, server.Client()
	s.ca = enginetest.Authority(t, server)
	return s
}

// breaking is the store of a service.
type breaking struct {
	blob.Versions
	s *service
}

func (b breaking) Open(ctx context.Context, key string) (blob.Value, error) {
	v, err := b.Versions.Open(ctx, key)
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	if err == nil && b.s.broken > 0 && strings.HasPrefix(key, "modules/") {
		v.ReadSeekCloser = &breaksOff{v.ReadSeekCloser, b.s.broken}
	}
	return v, err
}

type breaksOff struct {
	io.ReadSeekCloser
	left int64
}

func (b *breaksOff) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, errors.New("the store is gone")
	}
	n, err := b.ReadSeekCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// host is how a configuration names the registry.
func (s *service) host() string { return strings.TrimPrefix(s.URL, "https://") }

// answer is what a request got.
type answer struct {
	*http.Response
	body string
}

// ask sends a request with a token.
func (s *service) ask(t *testing.T, method, path, token string, body io.Reader, headers ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := s.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{res, string(b)}
}

// want checks the status of an answer, and what its error says.
func (a answer) want(t *testing.T, status int, says string) {
	t.Helper()
	var e struct {
		Errors []string `json:"errors"`
	}
	if says != "" {
		if err := json.Unmarshal([]byte(a.body), &e); err != nil || len(e.Errors) != 1 || !strings.Contains(e.Errors[0], says) {
			t.Errorf("%s %s answers %s, want an error that says %q", a.Request.Method, a.Request.URL.Path, a.body, says)
		}
	}
	if a.StatusCode != status {
		t.Errorf("%s %s has the status %d, want %d: %s", a.Request.Method, a.Request.URL.Path, a.StatusCode, status, a.body)
	}
}

// push publishes a version of a module.
func (s *service) push(t *testing.T, module, version string, archive []byte) {
	t.Helper()
	s.ask(t, "PUT", "/v1/modules/"+module+"/"+version, admin, bytes.NewReader(archive)).want(t, http.StatusCreated, "")
}

// publish publishes a release of a provider.
func (s *service) publish(t *testing.T, signer *registrytest.Signer, r *registrytest.Release) {
	t.Helper()
	s.ask(t, "PUT", "/v1/providers/"+r.Namespace+"/signing-keys", admin, strings.NewReader(signer.Key(t).Armor)).want(t, http.StatusCreated, "")
	s.stage(t, r)
	s.ask(t, "POST", "/v1/providers/"+r.Namespace+"/"+r.Type+"/"+r.Version+"/publish", admin, nil).want(t, http.StatusCreated, "")
}

func (s *service) stage(t *testing.T, r *registrytest.Release) {
	t.Helper()
	name := "terraform-provider-" + r.Type + "_" + r.Version + "_"
	all := map[string][]byte{"SHA256SUMS": r.Sums, "SHA256SUMS.sig": r.Signature}
	for platform, data := range r.Archives {
		all[platform+".zip"] = data
	}
	for end, data := range all {
		s.ask(t, "PUT", "/v1/providers/"+r.Namespace+"/"+r.Type+"/"+r.Version+"/"+name+end, admin, bytes.NewReader(data)).want(t, http.StatusNoContent, "")
	}
}

// tarGz packs files.
func tarGz(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(files)) {
		errs = append(errs, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name])), Typeflag: tar.TypeReg}))
		_, err := io.WriteString(w, files[name])
		errs = append(errs, err)
	}
	if err := errors.Join(append(errs, w.Close(), z.Close())...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// saying is the archive of a module with an output, and of one in a directory of it.
func saying(t *testing.T, text string) []byte {
	t.Helper()
	output := func(text string) string { return fmt.Sprintf("output \"says\" {\n  value = %q\n}\n", text) }
	return tarGz(t, map[string]string{"main.tf": output(text), "modules/inner/main.tf": output(text + " inside")})
}

// engine is the real engine with a token. More is added to its CLI configuration.
func (s *service) engine(token, more string) enginetest.Client {
	if token != "" {
		more += enginetest.Credentials(s.host(), token)
	}
	return enginetest.Client{Authority: s.ca, Config: more}
}

// refused runs init, and wants it to fail with a text.
func (s *service) refused(t *testing.T, dir, token, says string) {
	t.Helper()
	if out, err := s.engine(token, "").Init(t, dir); err == nil || !strings.Contains(out, says) {
		t.Errorf("tofu init: %v: %s, want that it fails and says %q", err, out, says)
	}
}

// altered puts a function between the registry and its clients that changes answers to
// addresses with an end.
func (s *service) altered(end string, alter func(header http.Header, body []byte) (int, []byte)) {
	s.between(func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, end) {
				h.ServeHTTP(w, r)
				return
			}
			recorded := httptest.NewRecorder()
			h.ServeHTTP(recorded, r)
			status, body := recorded.Code, recorded.Body.Bytes()
			if status == http.StatusOK {
				status, body = alter(recorded.Header(), body)
			}
			recorded.Header().Del("Content-Length")
			maps.Copy(w.Header(), recorded.Header())
			w.WriteHeader(status)
			_, _ = w.Write(body) // the client may have left
		})
	})
}

func zipOf(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(files)) {
		w, err := z.Create(name)
		if err == nil {
			_, err = io.WriteString(w, files[name])
		}
		errs = append(errs, err)
	}
	if err := errors.Join(append(errs, z.Close())...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
