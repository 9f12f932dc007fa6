package runnertest

import (
	"archive/zip"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/plan/usage"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// PlatformHost is the name of a PlatformRegistry in the addresses of modules. No server has
// it.
const PlatformHost = "registry.example.com"

// PlatformToken is the token by which a PlatformRegistry knows a run.
const PlatformToken = "run-token-canary-4711"

// PlatformRegistry is the registry of the platform as a run reaches it: with a module and
// the mirror of a provider. It serves only runs with the right token.
type PlatformRegistry struct {
	t        testing.TB
	mu       sync.Mutex
	packages map[string][]byte // archives by path
	away     int               // the status of every answer; 0 if it answers
	asked    []string          // paths of requests
}

// NewPlatformRegistry returns a registry with the module team/greeting/any 1.2.0, and with
// hashicorp/random 3.6.1 whose program is that of a mirror.
func NewPlatformRegistry(t testing.TB, mirror string) *PlatformRegistry {
	t.Helper()
	return &PlatformRegistry{t: t, packages: map[string][]byte{
		"random": packageOf(t, mirror, "hashicorp/random", "3.6.1"),
		"module": zipped(t, "main.tf", "output \"text\" {\n  value = \"hello from the registry\"\n}\n"),
	}}
}

// zipped is an archive of one file.
func zipped(t testing.TB, name, content string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, err := z.Create(name)
	if err == nil {
		_, err = io.WriteString(w, content)
	}
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Fail makes the registry answer everything with a status; with 0 it serves again.
func (r *PlatformRegistry) Fail(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = status
}

// Asked are the paths of all requests so far.
func (r *PlatformRegistry) Asked() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.asked)
}

// elsewhere is the hash of a package for another platform.
const elsewhere = "zh:00000000000000000000000000000000000000000000000000000000000000ff"

// ServeHTTP implements http.Handler.
func (r *PlatformRegistry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, q.URL.Path)
	const mirror, module = "/v1/mirror/registry.opentofu.org/hashicorp/random/", "/v1/modules/team/greeting/any/"
	archive, isArchive := strings.CutPrefix(q.URL.Path, "/v1/archives/")
	answer := func(status int, what any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(what)
	}
	refuse := func(status int, why string) { answer(status, map[string]any{"errors": []string{why}}) }
	switch {
	case r.away != 0:
		refuse(r.away, "the registry says why it cannot")
	case isArchive && q.URL.Query().Get("signature") == "good":
		_, _ = w.Write(r.packages[archive])
	case q.Header.Get("Authorization") != "Bearer "+PlatformToken:
		refuse(http.StatusUnauthorized, "this is no token of a run")
	case q.URL.Path == mirror+"index.json":
		answer(http.StatusOK, map[string]any{"versions": map[string]any{"3.6.1": map[string]any{}}})
	case q.URL.Path == mirror+"3.6.1.json":
		answer(http.StatusOK, map[string]any{"archives": map[string]any{
			runtime.GOOS + "_" + runtime.GOARCH: map[string]any{"url": "/v1/archives/random?signature=good", "hashes": []string{"zh:" + sum(r.packages["random"])}},
			"plan9_mips":                        map[string]any{"url": "/v1/archives/none", "hashes": []string{elsewhere}},
		}})
	case q.URL.Path == module+"versions":
		answer(http.StatusOK, map[string]any{"modules": []any{map[string]any{"versions": []any{map[string]string{"version": "1.2.0"}}}}})
	case q.URL.Path == module+"1.2.0/download":
		const at = "/v1/archives/module?signature=good&archive=zip"
		w.Header().Set("X-Terraform-Get", at)
		answer(http.StatusOK, map[string]any{"location": at})
	default:
		refuse(http.StatusNotFound, "there is no such thing")
	}
}

// reach is how runs of the fixture reach a registry of the platform.
func (f Fixture) reach(t *testing.T, r Runner, registry http.Handler) *runner.Registry {
	t.Helper()
	if f.Registry != nil {
		return f.Registry(t, r, registry)
	}
	certificate, authority := Certificate(t, "127.0.0.1")
	server := httptest.NewUnstartedServer(registry)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	return &runner.Registry{URL: server.URL, Authority: authority, Token: PlatformToken}
}

// fromRegistry is a module whose module and provider the registry of the platform has, and
// no other place.
const fromRegistry = `
terraform {
  required_providers {
    random = {
      source  = "hashicorp/random"
      version = "~> 3.6"
    }
  }
}
module "greeting" {
  source  = "` + PlatformHost + `/team/greeting/any"
  version = "~> 1.0"
}
resource "random_id" "a" {
  byte_length = 4
}
output "text" {
  value = module.greeting.text
}
`

// withRegistry is a stack without a network whose runs have the registry of the platform.
func withRegistry(t *testing.T, f Fixture) (*Stack, *PlatformRegistry) {
	t.Helper()
	if f.Mirror == "" {
		t.Skip("there is no directory of providers to take a program from")
	}
	registry := NewPlatformRegistry(t, f.Mirror)
	r := f.New(t)
	s := f.stack(t, r, fromRegistry)
	s.Job.Registry = f.reach(t, r, registry)
	s.Job.Registry.Hosts, s.Job.Registry.Mirror = []string{PlatformHost}, true
	return s, registry
}

// A run without a network installs a module and a provider, and its lock file has the
// hashes of all platforms (LQ-20, LQ-24, RG-02, RG-10).
func installsFromRegistry(t *testing.T, f Fixture) {
	s, registry := withRegistry(t, f)
	plan := s.Must(stack.PlanRun)
	for _, want := range []string{`version     = "3.6.1"`, "h1:", "zh:" + sum(registry.packages["random"]), elsewhere} {
		if !Has(want, plan.LockFile) {
			t.Errorf("the lock file lacks %s:\n%s", want, plan.LockFile)
		}
	}
	if plan.Providers[runner.FromRegistry] == 0 {
		t.Errorf("providers came %v, want the registry", plan.Providers)
	}
	usesTheRegistry(t, plan)
	if len(plan.Diagnostics) != 0 {
		t.Errorf("diagnostics = %+v, want none", plan.Diagnostics)
	}
	applied := s.Must(stack.ApplyRun, Saved(plan))
	if !Has("hello from the registry", applied.Outputs) {
		t.Errorf("the outputs are %s", applied.Outputs)
	}
	for name, d := range map[string]Done{"plan": plan, "apply": applied} {
		report, err := json.Marshal(d.Report)
		if err != nil {
			t.Fatal(err)
		}
		if Has(PlatformToken, d.Log, d.Events, d.Plan, d.Doc, report) {
			t.Errorf("the token of the run is in what the %s left", name)
		}
	}
	s.Must(stack.CheckRun)
}

// usesTheRegistry checks what a plan says that the module uses.
func usesTheRegistry(t *testing.T, plan Done) {
	t.Helper()
	got, err := usage.Parse(plan.Uses)
	if err != nil {
		t.Fatalf("the plan says that it uses %q: %v", plan.Uses, err)
	}
	want := usage.Usage{
		Modules: []usage.Module{{Path: "module.greeting", File: "main.tf", Line: 10, Declared: PlatformHost + "/team/greeting/any", Constraint: "~> 1.0",
			Source: PlatformHost + "/team/greeting/any", Location: usage.Location{Kind: usage.Registry, Address: PlatformHost + "/team/greeting/any"}, Version: "1.2.0"}},
		Providers: []usage.Provider{{Source: "registry.opentofu.org/hashicorp/random", Version: "3.6.1", Constraint: "~> 3.6",
			Required: []usage.Requirement{{Name: "random", Declared: "hashicorp/random", Constraint: "~> 3.6"}}}},
	}
	if len(got.Providers) == 1 && slices.Contains(got.Providers[0].Hashes, elsewhere) {
		got.Providers[0].Hashes = nil
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what the plan uses differs (-want +got):\n%s", diff)
	}
}

// What keeps the registry from serving a run is in the message, with what to do.
func registryIsAway(t *testing.T, f Fixture) {
	s, registry := withRegistry(t, f)
	for status, says := range map[int][]string{
		http.StatusServiceUnavailable: {"The registry of this platform did not serve", "says why it cannot", "tried again"},
		http.StatusForbidden:          {"The registry of this platform refused", "says why it cannot", "Ask the operator"},
	} {
		registry.Fail(status)
		d := s.Finish(s.Start(stack.PlanRun))
		if d.Outcome != stack.Failed || d.Step != "init" {
			t.Errorf("%d: ended %s in %q, want Failed in init", status, d.Outcome, d.Step)
		}
		for _, want := range says {
			if !strings.Contains(d.Message, want) {
				t.Errorf("%d: the message lacks %q: %s", status, want, d.Message)
			}
		}
	}
	registry.Fail(0)
	s.Must(stack.PlanRun)
	before := len(registry.Asked())
	registry.Fail(http.StatusServiceUnavailable)
	if !f.Fresh {
		s.Must(stack.CheckRun) // which installs nothing
		if asked := registry.Asked()[before:]; len(asked) > 0 {
			t.Errorf("a check of a prepared directory asked for %q", asked)
		}
	}
}

// What a script calls installs from the registry as well. The script sees a secret that is
// worth nothing outside of its sandbox, and not the token (LQ-24).
func scriptInstallsFromRegistry(t *testing.T, f Fixture) {
	s, registry := withRegistry(t, f)
	before := len(registry.Asked())
	d := s.Must(stack.ScriptRun, scripted("set -e\nrm -rf .terraform .terraform.lock.hcl\nterraform init\nterraform apply -auto-approve\n"+
		"grep token \"$TF_CLI_CONFIG_FILE\"\nenv\n"))
	if !Has("hello from the registry", d.Log) || len(registry.Asked()) < before+2*4 {
		t.Errorf("the script asked for %q:\n%s", registry.Asked(), d.Log)
	}
	if !Has("token = ", d.Log) || Has(PlatformToken, d.Log, d.Events) {
		t.Errorf("the script has seen the token of the run, or no secret at all:\n%s", d.Log)
	}
}

// A stack's own configuration of the engine keeps its meaning beside the registry.
func ownConfigurationStays(t *testing.T, f Fixture) {
	s, registry := withRegistry(t, f)
	s.Job.Files = append(s.Job.Files, workdir.File{Path: runner.CLIConfig, Mode: 0o600,
		Content: []byte("disable_checkpoint = true\n\nhost \"" + PlatformHost + "\" {\n  services = {\n  }\n}\n")})
	d := s.Finish(s.Start(stack.PlanRun))
	if d.Outcome != stack.Failed || !strings.Contains(d.Message, PlatformHost) {
		t.Errorf("ended %s: %s", d.Outcome, d.Message)
	}
	for _, path := range registry.Asked() {
		if strings.HasPrefix(path, "/v1/modules/") {
			t.Errorf("the registry was asked for %s, although the stack says where the host is", path)
		}
	}
}
