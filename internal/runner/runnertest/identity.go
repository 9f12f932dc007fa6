package runnertest

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/identity"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Grant is the grant of runs that have an identity, and signature how the tokens of a
// TokenIssuer end.
const (
	Grant     = "grant-canary-4711"
	signature = "signature-canary-4711-"
)

// TokenIssuer gives tokens to runs with the right grant. Each token is another one.
type TokenIssuer struct {
	Life time.Duration // of a token

	mu     sync.Mutex
	given  int
	status int // of every answer; 0 if it gives tokens
	served chan struct{}
}

// NewTokenIssuer returns one whose tokens are renewed all the time.
func NewTokenIssuer() *TokenIssuer {
	return &TokenIssuer{Life: 4 * time.Second, served: make(chan struct{}, 100)}
}

// Fail makes it answer everything with a status.
func (i *TokenIssuer) Fail(status int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.status = status
}

// Renewed waits until it gave tokens again.
func (i *TokenIssuer) Renewed(t testing.TB) {
	t.Helper()
	for len(i.served) > 0 {
		<-i.served
	}
	for range 2 { // the first may be underway into the file
		select {
		case <-i.served:
		case <-time.After(patience):
			t.Fatal("the tokens of the run are not renewed")
		}
	}
}

// ServeHTTP implements http.Handler.
func (i *TokenIssuer) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.status != 0:
		http.Error(w, "no identity for you", i.status)
		return
	case q.Method != http.MethodPost || q.Header.Get(identity.HeaderGrant) != Grant:
		http.Error(w, "this is no grant", http.StatusForbidden)
		return
	}
	i.given++
	now := time.Now()
	answer := identity.Answer{Tokens: []identity.Issued{
		{Name: "aws", Audience: "sts.amazonaws.com", Token: fmt.Sprintf("long-head.claims.%s%d", signature, i.given)},
		{Name: "vault", Audience: "https://vault.example.com", Token: fmt.Sprintf("long-head.claims.%svault%d", signature, i.given)},
	}}
	for n := range answer.Tokens {
		t := &answer.Tokens[n]
		t.ID, t.Issued, t.Expires = fmt.Sprintf("id-%s-%d", t.Name, i.given), now, now.Add(i.Life)
	}
	_ = json.NewEncoder(w).Encode(answer)
	select {
	case i.served <- struct{}{}:
	default:
	}
}

// reachIssuer is how runs of the fixture reach an issuer.
func (f Fixture) reachIssuer(t *testing.T, r Runner, issuer http.Handler) *runner.Identity {
	t.Helper()
	if f.Identity != nil {
		return f.Identity(t, r, issuer)
	}
	certificate, authority := Certificate(t, "127.0.0.1")
	server := httptest.NewUnstartedServer(issuer)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	return &runner.Identity{URL: server.URL, Authority: authority}
}

// WithIdentity makes the job of a stack one whose runs have an identity.
func WithIdentity(d *runner.Identity) func(*runner.Job) {
	return func(j *runner.Job) {
		own := *d
		own.Grant, own.Phase = Grant, identity.PhaseOf(j.Kind.Writes())
		own.Request = identity.Request{
			AWS:   &identity.AWS{Role: "arn:aws:iam::123456789012:role/apply", PlanRole: "arn:aws:iam::123456789012:role/plan"},
			Vault: &identity.Vault{Address: "https://vault.example.com", Role: "r"},
		}
		j.Identity = &own
	}
}

// signsIn is a module that shows its token in every way that a module has.
const signsIn = `
variable "out" {
  type    = string
  default = ""
}
variable "gate" {
  type    = string
  default = ""
}
output "token" {
  value = file("${path.module}/../identity/aws.token")
}
resource "terraform_data" "a" {
  provisioner "local-exec" {
    command = <<-EOT
      set -e
      cat "$AWS_WEB_IDENTITY_TOKEN_FILE"
      base64 -w0 "$AWS_WEB_IDENTITY_TOKEN_FILE"
      echo; echo "$TERRAFORM_VAULT_AUTH_JWT" >&2
      cp "$AWS_WEB_IDENTITY_TOKEN_FILE" ${var.out}/first
      stat -c '%a %u' "$AWS_WEB_IDENTITY_TOKEN_FILE" > ${var.out}/mode
      id -u > ${var.out}/user
      echo "$AWS_ROLE_ARN $AWS_ROLE_SESSION_NAME $VAULT_ADDR" > ${var.out}/env
      ${var.gate}
      cp "$AWS_WEB_IDENTITY_TOKEN_FILE" ${var.out}/second
      cat "$AWS_WEB_IDENTITY_TOKEN_FILE"
    EOT
  }
}
`

// A run has the tokens that its stack asks for in files, which are renewed while it goes on,
// with the role of its phase; and nothing that is stored of the run shows one (KY-06, LQ-66).
func hasIdentity(t *testing.T, f Fixture) {
	issuer := NewTokenIssuer()
	r := f.New(t)
	s := f.stack(t, r, signsIn)
	s.Job.Options.ReadableText = true
	with := WithIdentity(f.reachIssuer(t, r, issuer))
	out := f.dir(t)
	gate := newGate(t, f.dir(t))
	s.Allow(out)
	s.Allow(gate.Dir)
	s.Job.Env = map[string]string{"TF_VAR_out": out, "TF_VAR_gate": gate.Command()}

	sweep := func(id string) {
		t.Helper()
		for _, file := range []string{runner.FileLog, runner.FileEvents, runner.FilePlanDoc, runner.FilePlanTxt} {
			if data := s.Read(id, file); Has("canary-4711", data) || Has("c2lnbmF0dXJlLWNhbmFyeS", data) {
				t.Errorf("%s of %s shows a token or the grant:\n%s", file, id, data)
			}
		}
		report, err := json.Marshal(s.Current())
		if err != nil || Has("canary-4711", report) {
			t.Errorf("the report of %s shows a token or the grant: %s, %v", id, report, err)
		}
	}
	id := s.Start(stack.PlanRun, with)
	s.Await()
	sweep(id)
	plan := s.Finish(id)
	if plan.Outcome != stack.Succeeded {
		t.Fatalf("the plan ended %s: %s\n%s", plan.Outcome, plan.Message, plan.Log)
	}
	if d := plan.Identity; d == nil || d.Phase != identity.Plan || len(d.Tokens) != 2 || d.Tokens[0].Role != "arn:aws:iam::123456789012:role/plan" || !strings.HasPrefix(d.Tokens[0].ID, "id-aws-") {
		t.Errorf("the report of the plan says of its identity: %+v", d)
	}
	id = s.Start(stack.ApplyRun, Saved(plan), with)
	gate.Arrived(t)
	issuer.Renewed(t)
	gate.Open(t)
	s.Await()
	sweep(id)
	applied := s.Finish(id)
	if applied.Outcome != stack.Succeeded {
		t.Fatalf("the apply ended %s: %s\n%s", applied.Outcome, applied.Message, applied.Log)
	}
	if d := applied.Identity; d == nil || d.Phase != identity.Apply || d.Renewed == 0 || d.Tokens[0].Role != "arn:aws:iam::123456789012:role/apply" {
		t.Errorf("the report of the apply says of its identity: %+v", d)
	}
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(data))
	}
	first, second := read("first"), read("second")
	if !strings.HasPrefix(first, "long-head.claims."+signature) || first == second {
		t.Errorf("the file of the token holds %q, and later %q", first, second)
	}
	if got, want := read("mode"), "600 "+read("user"); got != want {
		t.Errorf("the file of the token has the mode and the owner %s, want %s", got, want)
	}
	if got, want := read("env"), "arn:aws:iam::123456789012:role/apply "; !strings.HasPrefix(got, want) || !strings.HasSuffix(got, applied.ID+" https://vault.example.com") {
		t.Errorf("the environment says %q", got)
	}
}

// A run that gets no identity does not begin, and is tried again.
func identityIsRefused(t *testing.T, f Fixture) {
	issuer := NewTokenIssuer()
	issuer.Fail(http.StatusForbidden)
	r := f.New(t)
	s := f.stack(t, r, `output "a" { value = 1 }`)
	d := s.Finish(s.Start(stack.PlanRun, WithIdentity(f.reachIssuer(t, r, issuer))))
	if d.Outcome != stack.Failed || d.Fault != fault.Later || !strings.Contains(d.Message, "no identity for you") || len(d.Steps) != 0 {
		t.Errorf("ended %s with a fault %q after %d steps: %s", d.Outcome, d.Fault, len(d.Steps), d.Message)
	}
}
