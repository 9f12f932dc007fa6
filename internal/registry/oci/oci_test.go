package oci_test

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
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/crane"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/mirror"
	"github.com/terrier-iac/terrier/internal/registry/oci"
	"github.com/terrier-iac/terrier/internal/registry/protocol"
	"github.com/terrier-iac/terrier/internal/registry/registrytest"
	"github.com/terrier-iac/terrier/internal/registry/registrytest/enginetest"
	"github.com/terrier-iac/terrier/internal/source"
)

// here is the platform of the engine that the tests run.
var here = runtime.GOOS + "_" + runtime.GOARCH

const upstreamHost = "registry.example.com"

// callers are the rights of a test: the password of a caller is its name. The
// administrator may read all, and the others what is in the namespace team. The caller
// capital may also read what is in the namespace Private, which is not private.
type callers struct{}

func (callers) Caller(r *http.Request) (protocol.Caller, error) {
	_, name, ok := r.BasicAuth()
	if !ok {
		return protocol.Caller{}, protocol.Unauthenticated(errors.New("the request has no token that is known"))
	}
	tenant := name
	if name == "admin" {
		tenant = "" // a person
	}
	return protocol.Caller{Name: name, Tenant: tenant}, nil
}

func (callers) May(_ context.Context, c protocol.Caller, v protocol.Verb, namespace string) error {
	if c.Name == "admin" || v == protocol.Read && (namespace == "team" || c.Name == "capital" && namespace == "Private") {
		return nil
	}
	return fault.New(fault.Denied, "AccessDenied", fmt.Errorf("%s may not %s in the namespace %s", c.Name, v, namespace))
}

// service is a registry over TLS.
type service struct {
	*httptest.Server
	t        *testing.T
	store    blob.Versions
	registry *registry.Registry
	upstream *registrytest.Upstream
	mirror   *mirror.Mirror
	inside   *source.Registry
	ca       string // a file
}

func start(t *testing.T) *service {
	t.Helper()
	store, err := blob.OpenVersionedFiles(t.TempDir(), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	inside, err := source.NewRegistry(t.TempDir(), source.RegistryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := &service{t: t, store: store, upstream: registrytest.New(t), inside: inside, registry: registry.New(store, registry.Options{Scratch: t.TempDir()})}
	ca := filepath.Join(t.TempDir(), "upstream.pem")
	if err := os.WriteFile(ca, s.upstream.Authority, 0o600); err != nil {
		t.Fatal(err)
	}
	allow, err := outbound.ParseAllow("127.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	m, err := mirror.New(store, mirror.Options{
		Settings: mirror.Settings{
			Upstreams: map[string]mirror.Upstream{upstreamHost: {URL: s.upstream.URL, CAFile: ca}},
			Rules:     []mirror.Rule{{Tenants: []string{"other"}, Deny: []mirror.Pattern{{Provider: "*/*/*", Reason: "not for them"}}}},
		},
		Policy: outbound.Policy{Allow: allow}, Scratch: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.mirror = m
	s.Server = httptest.NewTLSServer(s.handler(m))
	s.ca = enginetest.Authority(t, s.Server)
	t.Cleanup(func() {
		s.Close()
		m.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// handler is a registry over the store, as a process has it.
func (s *service) handler(m *mirror.Mirror) http.Handler {
	h, err := oci.New(oci.Options{
		Registry: s.registry, Mirror: m, Rights: callers{}, Store: s.store, Inside: s.inside, Pushed: s.inside.Pushed, Scratch: s.t.TempDir(),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return h
}

func (s *service) host() string { return strings.TrimPrefix(s.URL, "https://") }

// as are the options of a client that has the password of a caller.
func (s *service) as(name string) []crane.Option {
	return []crane.Option{crane.WithTransport(s.Client().Transport), crane.WithAuth(&authn.Basic{Username: "any", Password: name})}
}

// ask sends a request of a caller.
func (s *service) ask(method, path, name string, headers ...string) (*http.Response, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.URL+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if name != "" {
		req.SetBasicAuth("any", name)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp, string(body)
}

// refused wants an error with a status, a code and a text.
func (s *service) refused(method, path, name string, status int, code, says string) {
	s.t.Helper()
	resp, body := s.ask(method, path, name)
	var e struct {
		Errors []struct{ Code, Message string }
	}
	if err := json.Unmarshal([]byte(body), &e); err != nil || len(e.Errors) != 1 {
		s.t.Errorf("%s %s answers %s %q, want an error", method, path, resp.Status, body)
		return
	}
	if got := e.Errors[0]; resp.StatusCode != status || got.Code != code || !strings.Contains(got.Message, says) {
		s.t.Errorf("%s %s answers %s %s, want %d %s and a text that says %q", method, path, resp.Status, body, status, code, says)
	}
}

func (s *service) publish(module, version string, archive []byte) {
	s.t.Helper()
	m, err := address.ParseModule(module)
	if err == nil {
		_, err = s.registry.PublishModule(s.t.Context(), m, address.Version(version), registry.Upload{By: "ann", Content: bytes.NewReader(archive)})
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *service) publishProvider(r *registrytest.Release, signer *registrytest.Signer) {
	s.t.Helper()
	p, v := address.Provider{Namespace: r.Namespace, Type: r.Type}, address.Version(r.Version)
	files := map[string][]byte{"SHA256SUMS": r.Sums, "SHA256SUMS.sig": r.Signature}
	for on, data := range r.Archives {
		files[on+".zip"] = data
	}
	_, err := s.registry.AddKey(s.t.Context(), r.Namespace, signer.Key(s.t).Armor, "ann")
	for end, data := range files {
		err = errors.Join(err, s.registry.StageProvider(s.t.Context(), p, v, "terraform-provider-"+r.Type+"_"+r.Version+"_"+end, registry.Upload{Content: bytes.NewReader(data)}))
	}
	if err == nil {
		_, err = s.registry.PublishProvider(s.t.Context(), p, v, "ann", nil)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// file is a file of an archive.
type file struct {
	name, content string
	mode          int64
}

// saying is a module with an output, and a program.
func saying(text string) []file {
	return []file{{"./main.tf", fmt.Sprintf("output \"says\" {\n  value = %q\n}\n", text), 0o644}, {"./run.sh", "#!/bin/sh\n", 0o755}}
}

func tarGz(t *testing.T, files []file) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	var errs []error
	for _, f := range files {
		errs = append(errs, w.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), Typeflag: tar.TypeReg, ModTime: time.Unix(1e9, 0)}))
		_, err := io.WriteString(w, f.content)
		errs = append(errs, err)
	}
	if err := errors.Join(append(errs, w.Close(), z.Close())...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zipOf(t *testing.T, files []file) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	var errs []error
	for _, f := range files {
		w, err := z.Create(strings.TrimPrefix(f.name, "./"))
		if err == nil {
			_, err = io.WriteString(w, f.content)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(append(errs, z.Close())...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// engine is the real engine, as a caller. More is added to its CLI configuration.
func (s *service) engine(name, more string) enginetest.Client {
	more += fmt.Sprintf("oci_credentials %q {\n  username = \"any\"\n  password = %q\n}\n", s.host(), name)
	return enginetest.Client{Authority: s.ca, Config: more}
}

// locked are the hashes in the lock file of a directory.
func locked(t *testing.T, dir string, hashes ...string) {
	t.Helper()
	text := enginetest.LockFile(t, dir)
	for _, hash := range hashes {
		if !strings.Contains(text, fmt.Sprintf("%q", hash)) {
			t.Errorf("the lock file does not have %s:\n%s", hash, text)
		}
	}
}

func (s *service) digest(ref string) string {
	s.t.Helper()
	d, err := crane.Digest(s.host()+"/"+ref, s.as("team")...)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

func (s *service) module(text string) address.Module {
	s.t.Helper()
	m, err := address.ParseModule(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

func sorted(tags []string) []string {
	slices.Sort(tags)
	return tags
}
