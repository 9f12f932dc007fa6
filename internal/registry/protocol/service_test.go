package protocol_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	s.ca = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(s.ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
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

// using is the directory of a configuration that uses a module.
func using(t *testing.T, source, version string) string {
	t.Helper()
	return written(t, fmt.Sprintf("module \"m\" {\n  source  = %q\n  version = %q\n}\n\noutput \"says\" {\n  value = module.m.says\n}\n", source, version))
}

// requiring is the directory of a configuration that requires a provider.
func requiring(t *testing.T, source, version string) string {
	t.Helper()
	return written(t, fmt.Sprintf("terraform {\n  required_providers {\n    cloud = {\n      source  = %q\n      version = %q\n    }\n  }\n}\n", source, version))
}

func written(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

var decoration = regexp.MustCompile("\x1b\\[[0-9;]*m|[│╷╵]")

// tofu runs the real engine in a directory. More is added to its CLI configuration.
func (s *service) tofu(t *testing.T, dir, token, more string, args ...string) (string, error) {
	t.Helper()
	binary, err := filepath.Abs("../../../bin/tofu")
	if err == nil {
		_, err = os.Stat(binary)
	}
	if err != nil {
		t.Fatalf("the test needs bin/tofu: run make bin/tofu: %v", err)
	}
	config := filepath.Join(t.TempDir(), "cli.tfrc")
	text := "disable_checkpoint = true\n" + more
	if token != "" {
		text += fmt.Sprintf("credentials %q {\n  token = %q\n}\n", s.host(), token)
	}
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, binary, args...)
	command.Dir = dir
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "SSL_CERT_FILE=" + s.ca, "TF_CLI_CONFIG_FILE=" + config, "NO_COLOR=1", "TF_IN_AUTOMATION=1"}
	out, err := command.CombinedOutput()
	// Messages are coloured, and wrapped to the width of a terminal.
	return strings.Join(strings.Fields(decoration.ReplaceAllString(string(out), " ")), " "), err
}

// installed runs init and output, and returns what the module says.
func (s *service) installed(t *testing.T, dir, more string) string {
	t.Helper()
	if out, err := s.tofu(t, dir, reader, more, "init", "-input=false"); err != nil {
		t.Fatalf("tofu init: %v: %s", err, out)
	}
	if out, err := s.tofu(t, dir, reader, more, "apply", "-input=false", "-auto-approve"); err != nil {
		t.Fatalf("tofu apply: %v: %s", err, out)
	}
	out, err := s.tofu(t, dir, reader, more, "output", "-raw", "says")
	if err != nil {
		t.Fatalf("tofu output: %v: %s", err, out)
	}
	return out
}

// refused runs init, and wants it to fail with a text.
func (s *service) refused(t *testing.T, dir, token, says string) {
	t.Helper()
	if out, err := s.tofu(t, dir, token, "", "init", "-input=false"); err == nil || !strings.Contains(out, says) {
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
