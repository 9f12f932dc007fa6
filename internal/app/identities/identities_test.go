package identities_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/app/identities"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/controller"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/identity"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/remote"
	"github.com/terrier-iac/terrier/internal/stack"
)

// platform is what gives runs their identities, with a cluster of two namespaces around it.
type platform struct {
	*identities.Identities
	url     string
	now     time.Time
	current *runner.Report
	audited []audit.Entry
	refuse  error // what the audit log says
}

const rules = `
rules:
  - namespaces: [team-a, team-b]
    audiences: [sts.amazonaws.com, "https://vault.example.com"]
    roles: ["arn:aws:iam::123456789012:role/{namespace}/*", "https://vault.example.com/jwt/{namespace}-*"]
  - namespaces: ["*"]
    audiences: [verifier]
  - namespaces: [team-b]
    audiences: [k]
`

func open(t *testing.T, change ...func(*identities.Options)) *platform {
	t.Helper()
	p := &platform{now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), current: &runner.Report{ID: "apply-1", Phase: runner.Applying}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.ServeHTTP(w, r) }))
	t.Cleanup(server.Close)
	p.url = server.URL
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	store, err := blob.OpenFiles(t.TempDir(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	o := identities.Options{
		Config: identities.Config{Issuer: server.URL, Rules: file, Life: 15 * time.Minute}, Key: "0123456789abcdef", Store: store, Label: "tenant",
		Object: func(r identity.Run) audit.Object { return audit.Object{Namespace: r.Namespace, Name: r.Stack} },
		Audit: func(_ context.Context, e audit.Entry) error {
			if p.refuse == nil {
				p.audited = append(p.audited, e)
			}
			return p.refuse
		},
		Current: func(key string) (*runner.Report, error) {
			if key != "uid-net" {
				return nil, nil
			}
			return p.current, nil
		},
		Namespace: func(_ context.Context, name string) (access.Namespace, error) {
			switch name {
			case "team-a":
				return access.Namespace{UID: "uid-a", Labels: map[string]string{"tenant": "customer"}}, nil
			case "team-b":
				return access.Namespace{UID: "uid-b"}, nil
			default:
				return access.Namespace{}, fault.New(fault.Missing, "", errors.New("there is no such namespace"))
			}
		},
		Here:    []string{"https://10.0.0.1"},
		Cluster: func() string { return "cluster" },
		Server:  func() (string, []byte) { return server.URL, []byte("authority") },
		Now:     func() time.Time { return p.now }, Log: slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&o)
	}
	if p.Identities, err = identities.Open(o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	p.awaitKey(t)
	return p
}

// awaitKey waits until there is a key.
func (p *platform) awaitKey(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		resp, err := http.Get(p.url + identity.PathKeys)
		if err != nil {
			t.Fatal(err)
		}
		var set struct{ Keys []any }
		err = json.NewDecoder(resp.Body).Decode(&set)
		if err := errors.Join(err, resp.Body.Close()); err == nil && len(set.Keys) > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("there is no key")
		}
	}
}

var request = identity.Request{
	AWS:    &identity.AWS{Role: "arn:aws:iam::123456789012:role/team-a/apply", PlanRole: "arn:aws:iam::123456789012:role/team-a/plan"},
	Tokens: []identity.Token{{Name: "x", Audience: "verifier"}},
}

// asked is a run of a stack as the controller asks for its identity.
func (p *platform) asked(kind stack.RunKind) controller.Identified {
	return controller.Identified{
		Run: identity.Run{ID: "apply-1", RunKind: string(kind), Phase: identity.PhaseOf(kind.Writes()), Namespace: "team-a", Stack: "net", StackKind: "terraform.infra.contrib.fluxcd.io", StackUID: "uid-net"},
		Key: "uid-net", Request: request, Until: p.now.Add(time.Hour),
	}
}

func (p *platform) job(t *testing.T, kind stack.RunKind) *runner.Identity {
	t.Helper()
	job, err := p.Of(t.Context(), p.asked(kind))
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// tokens asks for the tokens of a run as its supervisor does.
func (p *platform) tokens(t *testing.T, grant string) (identity.Answer, int, string) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+identity.PathTokens, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set(identity.HeaderGrant, grant)
	w := httptest.NewRecorder()
	p.ServeHTTP(w, q)
	var a identity.Answer
	if w.Code == http.StatusOK {
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
	}
	return a, w.Code, w.Body.String()
}

func (p *platform) claims(t *testing.T, token, audience string) map[string]any {
	t.Helper()
	provider, err := oidc.NewProvider(t.Context(), p.url)
	if err != nil {
		t.Fatal(err)
	}
	got, err := provider.Verifier(&oidc.Config{ClientID: audience, Now: func() time.Time { return p.now }}).Verify(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	var claims map[string]any
	if err := got.Claims(&claims); err != nil {
		t.Fatal(err)
	}
	return claims
}

// A run gets a token for exactly the audiences that its stack asks for, with claims that the
// controller has set; the audit log names each one (LQ-66, KY-07).
func TestARunGetsItsTokens(t *testing.T) {
	p := open(t)
	job := p.job(t, stack.ApplyRun)
	if job.URL != p.url || string(job.Authority) != "authority" || job.Phase != identity.Apply {
		t.Errorf("the job has %+v", job)
	}
	got, status, body := p.tokens(t, job.Grant)
	if status != http.StatusOK || len(got.Tokens) != 2 {
		t.Fatalf("status %d: %s", status, body)
	}
	claims := p.claims(t, got.Tokens[1].Token, "verifier")
	want := map[string]any{
		"sub":       "namespace:team-a:kind:terraform.infra.contrib.fluxcd.io:stack:net:phase:apply",
		"namespace": "team-a", "namespace_uid": "uid-a", "tenant": "customer", "cluster": "cluster", "stack_uid": "uid-net", "phase": "apply", "run_id": "apply-1", "jti": got.Tokens[1].ID,
	}
	for name, value := range want {
		if claims[name] != value {
			t.Errorf("the claim %s is %v, want %v", name, claims[name], value)
		}
	}
	var said []map[string]string
	for _, e := range p.audited {
		if e.What != audit.IdentityIssued || e.Run != "apply-1" || e.Object.Name != "net" || strings.Contains(e.ID, "eyJ") {
			t.Errorf("the audit log has %+v", e)
		}
		said = append(said, e.Details)
	}
	subject := want["sub"].(string)
	if diff := cmp.Diff(said, []map[string]string{
		{"audience": "sts.amazonaws.com", "role": "arn:aws:iam::123456789012:role/team-a/apply", "token": got.Tokens[0].ID, "subject": subject, "phase": "apply", "expires": "2026-11-30T12:15:00Z"},
		{"audience": "verifier", "token": got.Tokens[1].ID, "subject": subject, "phase": "apply", "expires": "2026-11-30T12:15:00Z"},
	}); diff != "" {
		t.Errorf("the audit log (-got +want):\n%s", diff)
	}
}

// A run that asks again and again, as one whose clock is wrong does, or code that has the
// files of an agent, gets the same tokens for a quarter of their life.
func TestTokensAreNotMadeForEachQuestion(t *testing.T) {
	p := open(t)
	grant := p.job(t, stack.ApplyRun).Grant
	first, status, body := p.tokens(t, grant)
	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, body)
	}
	for range 10 {
		p.now = p.now.Add(15 * time.Second)
		again, status, body := p.tokens(t, grant)
		if status != http.StatusOK || again.Tokens[0].ID != first.Tokens[0].ID || again.Tokens[0].Token != first.Tokens[0].Token || !again.Tokens[0].Issued.Equal(p.now) {
			t.Fatalf("status %d, %+v, want the token %s, sent now: %s", status, again.Tokens, first.Tokens[0].ID, body)
		}
	}
	if len(p.audited) != 2 {
		t.Errorf("the audit log has %d tokens, want the two of the run", len(p.audited))
	}
	p.now = p.now.Add(2 * time.Minute)
	if next, status, body := p.tokens(t, grant); status != http.StatusOK || next.Tokens[0].ID == first.Tokens[0].ID {
		t.Errorf("after a quarter of its life the token is not renewed: status %d: %s", status, body)
	}
	p.current = &runner.Report{ID: "apply-1", Phase: runner.Done}
	if _, status, _ := p.tokens(t, grant); status != http.StatusForbidden {
		t.Errorf("status %d after the end of the run, want 403", status)
	}
}

// A plan has another subject than an apply, so that a verifier which binds a role to applies
// takes no token of a plan.
func TestPlansHaveAnotherSubject(t *testing.T) {
	p := open(t)
	for kind, want := range map[stack.RunKind]string{stack.PlanRun: "plan", stack.CheckRun: "plan", stack.PreviewRun: "plan", stack.ApplyRun: "apply", stack.DestroyRun: "apply", stack.ScriptRun: "apply", stack.BreakGlassRun: "apply"} {
		got, status, body := p.tokens(t, p.job(t, kind).Grant)
		if status != http.StatusOK {
			t.Fatalf("%s: status %d: %s", kind, status, body)
		}
		claims := p.claims(t, got.Tokens[1].Token, "verifier")
		if !strings.HasSuffix(claims["sub"].(string), ":phase:"+want) || claims["run_kind"] != string(kind) {
			t.Errorf("%s: the subject is %v", kind, claims["sub"])
		}
	}
}

// The rules of the operator decide what a namespace may ask for. A namespace gets no role of
// another one by editing its objects, and neither does the tenant of a stack come from them.
func TestWhatANamespaceMayAskFor(t *testing.T) {
	p := open(t)
	other := request
	other.AWS = &identity.AWS{Role: "arn:aws:iam::123456789012:role/team-b/apply"}
	vault := identity.Request{Vault: &identity.Vault{Address: "https://vault.example.com", Role: "team-a-net"}}
	kubernetes := identity.Request{Kubernetes: &identity.Kubernetes{Server: "https://k.example.com"}}
	here := identity.Request{Kubernetes: &identity.Kubernetes{Server: "https://10.0.0.1", Audience: "k"}}
	elsewhere := identity.Request{Kubernetes: &identity.Kubernetes{Server: "https://k.example.com", Audience: "k"}}
	for name, tt := range map[string]struct {
		namespace string
		request   identity.Request
		want      fault.Kind
	}{
		"its own role":                 {"team-a", request, fault.None},
		"the role of another":          {"team-a", other, fault.Denied},
		"another, which has that role": {"team-b", other, fault.None},
		"a role of Vault":              {"team-a", vault, fault.None},
		"that role for another":        {"team-b", vault, fault.Denied},
		"an audience that has no rule": {"team-a", kubernetes, fault.Denied},
		"this cluster":                 {"team-b", here, fault.None},
		"a cluster that no rule names": {"team-b", elsewhere, fault.Denied},
		"a namespace that is gone":     {"team-c", request, fault.Later},
	} {
		err := p.Allows(t.Context(), tt.namespace, tt.request)
		if got := fault.Of(err); got != tt.want || tt.want == fault.Denied && !strings.Contains(err.Error(), "--identity-rules") {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// A grant is of one run, and ends with it.
func TestGrantsThatAreRefused(t *testing.T) {
	p := open(t)
	grant := p.job(t, stack.ApplyRun).Grant
	foreign := open(t, func(o *identities.Options) { o.Key = "fedcba9876543210" })
	for name, tt := range map[string]struct {
		change func()
		grant  string
		says   string
	}{
		"after the end of the run":        {func() { p.current = &runner.Report{ID: "apply-1", Phase: runner.Done} }, grant, "does not go on"},
		"while another run has the key":   {func() { p.current = &runner.Report{ID: "apply-2", Phase: runner.Applying} }, grant, "does not go on"},
		"after the run was forgotten":     {func() { p.current = nil }, grant, "does not go on"},
		"after its time":                  {func() { p.now = p.now.Add(time.Hour) }, grant, "expired"},
		"of another installation":         {func() {}, foreign.job(t, stack.ApplyRun).Grant, "not one of this installation"},
		"none":                            {func() {}, "", "not one of this installation"},
		"a token of the registry instead": {func() {}, "terrier-run.x.y", "not one of this installation"},
	} {
		now, current := p.now, p.current
		tt.change()
		if _, status, body := p.tokens(t, tt.grant); status != http.StatusForbidden || !strings.Contains(body, tt.says) {
			t.Errorf("%s: status %d: %s", name, status, body)
		}
		p.now, p.current = now, current
	}
	if len(p.audited) != 0 {
		t.Errorf("the audit log has %d entries", len(p.audited))
	}
	p.refuse = errors.New("the disk is full")
	if _, status, _ := p.tokens(t, grant); status != http.StatusServiceUnavailable {
		t.Errorf("without an audit log: status %d, want 503", status)
	}
}

// The agent of a run gets the tokens of that run, and of no other one whose grant it may have.
func TestAgentsGetTheirOwnTokens(t *testing.T) {
	p := open(t, func(o *identities.Options) { o.Pods = true })
	job := p.job(t, stack.ApplyRun)
	if job.URL != "" || len(job.Authority) != 0 {
		t.Errorf("the job of a pod says where the controller is: %+v", job)
	}
	if _, status, _ := p.tokens(t, job.Grant); status != http.StatusNotFound {
		t.Errorf("without the credential of a pod: status %d, want 404", status)
	}
	own := remote.Reader{Stack: "uid-net", Run: "apply-1", Namespace: "team-a"}
	for name, tt := range map[string]struct {
		by     remote.Reader
		status int
	}{
		"its own":                    {own, http.StatusOK},
		"of another run":             {remote.Reader{Stack: "uid-net", Run: "apply-2", Namespace: "team-a"}, http.StatusForbidden},
		"of another stack":           {remote.Reader{Stack: "uid-other", Run: "apply-1", Namespace: "team-a"}, http.StatusForbidden},
		"of a pod elsewhere":         {remote.Reader{Stack: "uid-net", Run: "apply-1", Namespace: "team-b"}, http.StatusForbidden},
		"of a run beside that stack": {remote.Reader{Stack: "uid-net_x", Run: "apply-1", Namespace: "team-a"}, http.StatusForbidden},
	} {
		q := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/runs/v1/identity"+identity.PathTokens, http.NoBody)
		q.Header.Set(identity.HeaderGrant, job.Grant)
		w := httptest.NewRecorder()
		if err := p.Answer(w, q, tt.by); err != nil || w.Code != tt.status {
			t.Errorf("%s: status %d %s, %v, want %d", name, w.Code, w.Body, err, tt.status)
		}
	}
}

func TestSettings(t *testing.T) {
	const address = "https://id.example.com"
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "rules.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for name, tt := range map[string]struct {
		config identities.Config
		want   string // empty if it is valid
	}{
		"off":                       {identities.Config{Life: time.Hour}, ""},
		"without rules":             {identities.Config{Issuer: address, Life: time.Hour}, ""},
		"with rules":                {identities.Config{Issuer: address, Life: time.Hour, Rules: file(rules)}, ""},
		"rules without an issuer":   {identities.Config{Life: time.Hour, Rules: file(rules)}, "--identity-issuer"},
		"an issuer over plain http": {identities.Config{Issuer: "http://id.example.com", Life: time.Hour}, "--identity-issuer"},
		"a short life":              {identities.Config{Issuer: address, Life: time.Minute}, "--identity-token-life"},
		"a long life":               {identities.Config{Issuer: address, Life: 2 * time.Hour}, "--identity-token-life"},
		"no file":                   {identities.Config{Issuer: address, Life: time.Hour, Rules: "/none"}, "--identity-rules"},
		"an unknown field":          {identities.Config{Issuer: address, Life: time.Hour, Rules: file("rules: [{namespace: a}]")}, "--identity-rules"},
		"a rule for no namespace":   {identities.Config{Issuer: address, Life: time.Hour, Rules: file("rules: [{audiences: [a]}]")}, "rules[0].namespaces"},
	} {
		err := tt.config.Check()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	if none, err := identities.Open(identities.Options{}); none != nil || err != nil || none.Host() != "" {
		t.Errorf("without an issuer Open() = %v, %v", none, err)
	}
}
