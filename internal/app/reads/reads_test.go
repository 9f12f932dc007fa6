package reads_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/app/reads"
	"github.com/terrier-iac/terrier/internal/controller"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/remote"
	"github.com/terrier-iac/terrier/internal/secret"
)

var now = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func open(t *testing.T, change func(*reads.Options)) *reads.Registry {
	t.Helper()
	o := reads.Options{
		Key: "0123456789abcdef", Names: []string{"registry.example.com"}, Mirror: func() bool { return true }, Account: "default",
		Server: func() (string, []byte) { return "https://127.0.0.1:4711", []byte("authority") }, Now: func() time.Time { return now },
		Current: func(key string) (*runner.Report, error) {
			return &runner.Report{ID: "plan-1", Phase: runner.Planning}, nil
		},
	}
	if change != nil {
		change(&o)
	}
	r, err := reads.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// roles is a cluster whose group of ServiceAccounts of team-a may read from platform.
type roles struct{}

func (roles) Authenticate(_ context.Context, token secret.Text) (access.User, error) {
	return access.User{Name: "user of " + token.Reveal()}, nil
}

func (roles) Authorize(_ context.Context, u access.User, a access.Request) error {
	if slices.Contains(u.Groups, "system:serviceaccounts:team-a") && u.Name == "system:serviceaccount:team-a:default" && a.Namespace == "platform" {
		return nil
	}
	return fault.New(fault.Denied, "X", errors.New("no"))
}

var reader = controller.RegistryReader{Run: "plan-1", Key: "uid", Namespace: "team-a", Until: now.Add(time.Hour)}

// A run reads what is of its namespace and what roles give to it, and nothing else (LQ-24, RG-19).
func TestWhatARunMayDo(t *testing.T) {
	r := open(t, nil)
	job, err := r.Of(reader)
	if err != nil {
		t.Fatal(err)
	}
	auth := r.Known(roles{})
	run, err := auth.Authenticate(t.Context(), secret.New(job.Token))
	if err != nil || reads.Namespace(run) != "team-a" {
		t.Fatalf("Authenticate() = %+v, %v", run, err)
	}
	for name, tt := range map[string]struct {
		request access.Request
		want    fault.Kind
	}{
		"its own namespace":           {access.Request{Verb: "get", Resource: access.ResourceRegistry, Namespace: "team-a"}, fault.None},
		"one that roles give to it":   {access.Request{Verb: "get", Resource: access.ResourceRegistry, Namespace: "platform"}, fault.None},
		"one of others":               {access.Request{Verb: "get", Resource: access.ResourceRegistry, Namespace: "team-b"}, fault.Denied},
		"all namespaces":              {access.Request{Verb: "get", Resource: access.ResourceRegistry}, fault.Denied},
		"to publish":                  {access.Request{Verb: "update", Resource: access.ResourceRegistry, Namespace: "team-a"}, fault.Denied},
		"logs of stacks":              {access.Request{Verb: "get", Resource: access.ResourceLog, Namespace: "team-a"}, fault.Denied},
		"more where roles give a lot": {access.Request{Verb: "update", Resource: access.ResourceRegistry, Namespace: "platform"}, fault.Denied},
	} {
		if got := fault.Of(auth.Authorize(t.Context(), run, tt.request)); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	err = auth.Authorize(t.Context(), run, access.Request{Verb: "get", Resource: access.ResourceRegistry, Namespace: "team-b"})
	if err == nil || !strings.Contains(err.Error(), "system:serviceaccounts:team-a get terraforms.infra.contrib.fluxcd.io/registry in the namespace team-b") {
		t.Errorf("the refusal does not say what to do: %v", err)
	}
	if other, err := auth.Authenticate(t.Context(), secret.New("another")); err != nil || other.Name != "user of another" {
		t.Errorf("another token is that of %+v, %v", other, err)
	}
}

func TestTokensThatAreRefused(t *testing.T) {
	job, err := open(t, nil).Of(reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]*reads.Registry{
		"after its time":          open(t, func(o *reads.Options) { o.Now = func() time.Time { return now.Add(time.Hour) } }),
		"at another installation": open(t, func(o *reads.Options) { o.Key = "fedcba9876543210" }),
	} {
		_, err := r.Known(roles{}).Authenticate(t.Context(), secret.New(job.Token))
		if fault.Of(err) != fault.Denied || fault.Reason(err, "") != access.ReasonUnknownUser {
			t.Errorf("%s: %v, want an unknown user", name, err)
		}
	}
}

// A token that is shown again after its run is worth nothing, long before it expires.
func TestATokenEndsWithItsRun(t *testing.T) {
	var asked []string
	var current *runner.Report
	var failed error
	r := open(t, func(o *reads.Options) {
		o.Current = func(key string) (*runner.Report, error) {
			asked = append(asked, key)
			return current, failed
		}
	})
	beside := reader
	beside.Key = runner.Key("uid", "preview")
	job, err := r.Of(beside)
	if err != nil {
		t.Fatal(err)
	}
	replay := func() error {
		_, err := r.Known(roles{}).Authenticate(t.Context(), secret.New(job.Token))
		return err
	}
	current = &runner.Report{ID: "plan-1", Phase: runner.Planning}
	if err := replay(); err != nil {
		t.Errorf("while the run goes on: %v", err)
	}
	for name, rep := range map[string]*runner.Report{
		"after the run":               {ID: "plan-1", Phase: runner.Done},
		"during the run after it":     {ID: "apply-2", Phase: runner.Planning},
		"after the run was forgotten": nil,
	} {
		current = rep
		if err := replay(); fault.Of(err) != fault.Denied || fault.Reason(err, "") != access.ReasonUnknownUser || !strings.Contains(err.Error(), "does not go on") {
			t.Errorf("%s: %v, want that the token is refused", name, err)
		}
	}
	current, failed = nil, errors.New("the disk is gone")
	if err := replay(); err == nil || fault.Of(err) == fault.Denied {
		t.Errorf("while it is not known whether the run goes on: %v, want an error that passes", err)
	}
	if slices.ContainsFunc(asked, func(key string) bool { return key != beside.Key }) {
		t.Errorf("asked was for %q, want the run with the key %q alone", asked, beside.Key)
	}
}

func TestWhatTheJobHas(t *testing.T) {
	want := &runner.Registry{Hosts: []string{"registry.example.com", "127.0.0.1:4711"}, Mirror: true}
	got, err := open(t, func(o *reads.Options) { o.Pods = true }).Of(reader)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("the order of a pod (-want +got): %v\n%s", err, diff)
	}
	got, err = open(t, nil).Of(reader)
	want.URL, want.Authority, want.Token = "https://127.0.0.1:4711", []byte("authority"), got.Token
	if diff := cmp.Diff(want, got); err != nil || diff != "" || got.Token == "" {
		t.Errorf("the job of a process (-want +got): %v\n%s", err, diff)
	}
}

// What an agent asks for is answered as to its run.
func TestAgents(t *testing.T) {
	r := open(t, nil)
	auth := r.Known(roles{})
	r.Serve(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		token, _ := strings.CutPrefix(q.Header.Get("Authorization"), "Bearer ")
		u, err := auth.Authenticate(q.Context(), secret.New(token))
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, q.URL.Path+" for "+reads.Namespace(u))
	}))
	w := httptest.NewRecorder()
	if err := r.Answer(w, httptest.NewRequest(http.MethodGet, "/v1/mirror/a", nil), remote.Reader{Stack: "uid", Run: "plan-1", Namespace: "team-b"}); err != nil {
		t.Fatal(err)
	}
	if got := w.Body.String(); got != "/v1/mirror/a for team-b" {
		t.Errorf("the agent was answered %q", got)
	}
	if err := r.Answer(w, httptest.NewRequest(http.MethodGet, "/v1/mirror/a", nil), remote.Reader{Stack: "uid"}); err == nil {
		t.Error("a run without a namespace is answered")
	}
	for _, other := range []string{"/", "/api/v1/stacks", "/v1/modules/../../api/v1/stacks", "/v2/"} {
		w := httptest.NewRecorder()
		if err := r.Answer(w, httptest.NewRequest(http.MethodGet, other, nil), remote.Reader{Stack: "uid", Run: "plan-1", Namespace: "team-b"}); err != nil || w.Code != http.StatusNotFound {
			t.Errorf("%s: %d, %v, want 404", other, w.Code, err)
		}
	}
}

func TestCheckDirect(t *testing.T) {
	if err := reads.CheckDirect([]string{"registry.example.com/acme/cloud", "registry.example.com/acme/*", "registry.example.com:8443/*/*"}); err != nil {
		t.Errorf("CheckDirect() = %v", err)
	}
	for _, pattern := range []string{"", "acme/cloud", "*/*/*", "registry.example.com/*/cloud", "registry.example.com/acme/cl*", "registry.example.com/acme", "localhost/acme/cloud",
		"https://registry.example.com/acme/*", "Registry.example.com/acme/cloud", "registry.example.com/acme/cloud/1.0.0", "registry.example.com/acme/\"]\n"} {
		if err := reads.CheckDirect([]string{pattern}); fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), "--run-direct") {
			t.Errorf("CheckDirect(%q) = %v", pattern, err)
		}
	}
}

func TestCheckNames(t *testing.T) {
	if err := reads.CheckNames([]string{"registry.example.com", "127.0.0.1:8443"}); err != nil {
		t.Errorf("CheckNames() = %v", err)
	}
	for _, name := range []string{"localhost", "https://registry.example.com", "Registry.example.com", "registry.example.com/x", ""} {
		if err := reads.CheckNames([]string{name}); fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), "--registry-host") {
			t.Errorf("CheckNames(%q) = %v", name, err)
		}
	}
}
