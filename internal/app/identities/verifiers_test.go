package identities_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/terrier-iac/terrier/internal/identity"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/vault/vaulttest"
)

// sts is a stand-in for the Security Token Service of AWS: it knows roles by the subjects that
// their trust policies name, and verifies a token as any OpenID Connect verifier does.
type sts struct {
	issuer string
	trust  map[string]string // by ARN: a pattern of subjects, in which * stands for any characters
	now    func() time.Time

	mu      sync.Mutex
	assumed []string // role and session
}

func (s *sts) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.FormValue("Action") == "GetCallerIdentity" && strings.Contains(r.Header.Get("Authorization"), "Credential=ASIAEXAMPLE/") {
		fmt.Fprint(w, `<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult><Arn>arn:aws:sts::123456789012:assumed-role/x/y</Arn><UserId>u</UserId><Account>123456789012</Account></GetCallerIdentityResult></GetCallerIdentityResponse>`)
		return
	}
	role, session := r.FormValue("RoleArn"), r.FormValue("RoleSessionName")
	if err := s.check(r.Context(), r.FormValue("Action"), role, r.FormValue("WebIdentityToken")); err != nil {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, `<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>%s</Message></Error><RequestId>r</RequestId></ErrorResponse>`, err)
		return
	}
	s.mu.Lock()
	s.assumed = append(s.assumed, role+" "+session)
	s.mu.Unlock()
	type secrets struct {
		AccessKeyID     string `xml:"AccessKeyId"`
		SecretAccessKey string
		SessionToken    string
		Expiration      time.Time
	}
	type answer struct {
		XMLName xml.Name `xml:"https://sts.amazonaws.com/doc/2011-06-15/ AssumeRoleWithWebIdentityResponse"`
		Result  struct {
			Credentials     secrets
			AssumedRoleUser struct {
				Arn           string
				AssumedRoleID string `xml:"AssumedRoleId"`
			}
		} `xml:"AssumeRoleWithWebIdentityResult"`
	}
	var a answer
	a.Result.Credentials = secrets{"ASIAEXAMPLE", "secret", "session", time.Now().Add(time.Hour)}
	a.Result.AssumedRoleUser.Arn, a.Result.AssumedRoleUser.AssumedRoleID = role, "id:"+session
	_ = xml.NewEncoder(w).Encode(a)
}

func (s *sts) check(ctx context.Context, action, role, token string) error {
	if action != "AssumeRoleWithWebIdentity" {
		return fmt.Errorf("the action %s is not known", action)
	}
	p, err := oidc.NewProvider(ctx, s.issuer)
	if err != nil {
		return err
	}
	id, err := p.Verifier(&oidc.Config{ClientID: "sts.amazonaws.com", Now: s.now}).Verify(ctx, token)
	if err != nil {
		return err
	}
	begin, end, _ := strings.Cut(s.trust[role], "*")
	if s.trust[role] == "" || !strings.HasPrefix(id.Subject, begin) || !strings.HasSuffix(id.Subject, end) {
		return fmt.Errorf("not authorized to perform sts:AssumeRoleWithWebIdentity on %s", role)
	}
	return nil
}

// aws starts a stand-in with the trust policies of docs/identities.md.
func aws(t *testing.T, p *platform) (*sts, string) {
	t.Helper()
	s := &sts{issuer: p.url, now: func() time.Time { return p.now }, trust: map[string]string{
		"arn:aws:iam::123456789012:role/team-a/plan":  "namespace:team-a:*:phase:plan",
		"arn:aws:iam::123456789012:role/team-a/apply": "namespace:team-a:*:phase:apply",
		"arn:aws:iam::123456789012:role/team-b/apply": "namespace:team-b:*:phase:apply",
	}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, server.URL
}

// home are the files of a run with new tokens, and its environment.
func (p *platform) home(t *testing.T, kind stack.RunKind, q identity.Request, change ...func(*identity.Run)) (string, map[string]string) {
	t.Helper()
	by := p.asked(kind)
	by.Request = q
	for _, c := range change {
		c(&by.Run)
	}
	job, err := p.Of(t.Context(), by)
	if err != nil {
		t.Fatal(err)
	}
	got, status, body := p.tokens(t, job.Grant)
	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, body)
	}
	dir := t.TempDir()
	files, err := q.Files(by.Run.Phase, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range got.Tokens {
		files = append(files, identity.File{Name: identity.Use{Name: i.Name}.TokenFile(), Content: []byte(i.Token)})
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f.Name), f.Content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	env := q.Environ(by.Run.Phase, dir, identity.Session("team-a", "net", "apply-1"))
	for name, value := range q.Values(got.Tokens) {
		env[name] = value
	}
	return dir, env
}

// assume is what a client of AWS does with the environment of a run.
func assume(url string, env map[string]string) error {
	c, err := credentials.NewSTSWebIdentity(url, func() (*credentials.WebIdentityToken, error) {
		token, err := os.ReadFile(env["AWS_WEB_IDENTITY_TOKEN_FILE"])
		return &credentials.WebIdentityToken{Token: string(token)}, err
	}, func(i *credentials.STSWebIdentity) { i.RoleARN, i.Client = env["AWS_ROLE_ARN"], http.DefaultClient })
	if err != nil {
		return err
	}
	v, err := c.GetWithContext(nil)
	if err == nil && v.AccessKeyID != "ASIAEXAMPLE" {
		err = fmt.Errorf("got the key %s", v.AccessKeyID)
	}
	return err
}

// A role of AWS is for the runs that its trust policy names: not for plans of the same stack,
// not for another tenant, and not after the end of the token (LQ-66).
func TestRolesOfAWS(t *testing.T) {
	p := open(t)
	_, url := aws(t, p)
	for name, tt := range map[string]struct {
		kind   stack.RunKind
		role   string // in place of the one that the stack asks for
		change func(*identity.Run)
		after  time.Duration
		denied bool
	}{
		"an apply":                         {kind: stack.ApplyRun},
		"a plan":                           {kind: stack.PlanRun},
		"a destroy":                        {kind: stack.DestroyRun},
		"a plan that takes the apply role": {kind: stack.PlanRun, role: "arn:aws:iam::123456789012:role/team-a/apply", denied: true},
		"the role of another tenant":       {kind: stack.ApplyRun, role: "arn:aws:iam::123456789012:role/team-b/apply", denied: true},
		"a stack that is called as one":    {kind: stack.ApplyRun, change: func(r *identity.Run) { r.Namespace, r.Stack = "team-b", "namespace.team-a" }, denied: true},
		"a role that there is none of":     {kind: stack.ApplyRun, role: "arn:aws:iam::123456789012:role/none", denied: true},
		"a token that is used again later": {kind: stack.ApplyRun, after: 16 * time.Minute, denied: true},
	} {
		_, env := p.home(t, tt.kind, request, func(r *identity.Run) {
			if tt.change != nil {
				tt.change(r)
			}
		})
		if tt.role != "" {
			env["AWS_ROLE_ARN"] = tt.role // a module can write any role into its provider
		}
		now := p.now
		p.now = p.now.Add(tt.after)
		if err := assume(url, env); (err != nil) != tt.denied {
			t.Errorf("%s: %v, want denied %v", name, err, tt.denied)
		}
		p.now = now
	}
	// A token for another audience is none for AWS.
	dir, env := p.home(t, stack.ApplyRun, request)
	env["AWS_WEB_IDENTITY_TOKEN_FILE"] = filepath.Join(dir, "x.token")
	if err := assume(url, env); err == nil {
		t.Error("a token for another audience is taken")
	}
}

// The engine's own client of AWS finds its token by the environment alone: a state in S3 is
// read as the role of the run.
func TestTheEngineAssumesItsRole(t *testing.T) {
	tofu, err := filepath.Abs("../../../bin/tofu")
	if err == nil {
		_, err = os.Stat(tofu)
	}
	if err != nil {
		t.Skip("there is no engine here: make bin/tofu")
	}
	p := open(t)
	service, url := aws(t, p)
	backend := s3mem.New()
	if err := backend.CreateBucket("states"); err != nil {
		t.Fatal(err)
	}
	s3 := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(s3.Close)
	for kind, want := range map[stack.RunKind]string{stack.PlanRun: "plan", stack.ApplyRun: "apply"} {
		_, env := p.home(t, kind, request)
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(fmt.Sprintf(`
terraform {
  backend "s3" {
    bucket                      = "states"
    key                         = "net.tfstate"
    region                      = "eu-central-1"
    endpoints                   = { s3 = %q }
    use_path_style              = true
    skip_metadata_api_check     = true
    skip_requesting_account_id  = true
    skip_region_validation      = true
    skip_s3_checksum            = true
  }
}
output "a" {
  value = 1
}
`, s3.URL)), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), tofu, "init", "-input=false", "-no-color")
		cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "CHECKPOINT_DISABLE=1", "AWS_ENDPOINT_URL_STS=" + url, "AWS_EC2_METADATA_DISABLED=true"}
		for name, value := range env {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", kind, err, out)
			continue
		}
		service.mu.Lock()
		if got, want := strings.Join(service.assumed, ","), "arn:aws:iam::123456789012:role/team-a/"+want+" team-a.net.apply-1"; !strings.Contains(got, want) {
			t.Errorf("%s: the engine assumed %q, want %q", kind, got, want)
		}
		service.assumed = nil
		service.mu.Unlock()
	}
}

// bao is a real OpenBao, if `make bin/bao` has built it: that takes minutes.
type bao struct{ url string }

const rootToken = "root"

func startBao(t *testing.T) bao {
	t.Helper()
	return bao{vaulttest.Start(t).URL.String()}
}

// ask makes a request, as its administrator if token is empty.
func (b bao) ask(t *testing.T, method, path, token string, in any) (map[string]any, error) {
	t.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, b.url+"/v1/"+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token == "" {
		token = rootToken
	}
	r.Header.Set("X-Vault-Token", token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s %s: %s %s", method, path, resp.Status, text)
	}
	out := map[string]any{}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &out); err != nil {
			t.Fatal(err)
		}
	}
	return out, nil
}

// A real OpenBao gives its roles to the runs that their claims name (KY-02, KY-06).
func TestRolesOfOpenBao(t *testing.T) {
	b := startBao(t)
	p := open(t)
	p.now = time.Now() // OpenBao has no other clock
	must := func(method, path string, in any) {
		t.Helper()
		if _, err := b.ask(t, method, path, "", in); err != nil {
			t.Fatal(err)
		}
	}
	must(http.MethodPost, "sys/auth/jwt", map[string]string{"type": "jwt"})
	must(http.MethodPost, "auth/jwt/config", map[string]string{"oidc_discovery_url": p.url})
	must(http.MethodPost, "secret/data/team-a", map[string]any{"data": map[string]string{"key": "value"}})
	must(http.MethodPut, "sys/policies/acl/reads", map[string]string{"policy": `path "secret/data/team-a" { capabilities = ["read"] }`})
	for _, phase := range []string{"plan", "apply"} {
		must(http.MethodPost, "auth/jwt/role/team-a-"+phase, map[string]any{
			"role_type": "jwt", "user_claim": "sub", "bound_audiences": []string{"https://vault.example.com"},
			"bound_claims":   map[string]string{"namespace": "team-a", "namespace_uid": "uid-a", "phase": phase},
			"claim_mappings": map[string]string{"run_id": "run", "stack": "stack"}, "token_policies": []string{"reads"}, "token_ttl": "15m",
		})
	}
	q := identity.Request{Vault: &identity.Vault{Address: "https://vault.example.com", Role: "team-a-apply", PlanRole: "team-a-plan"}, Tokens: []identity.Token{{Name: "x", Audience: "verifier"}}}
	login := func(role, token string) (string, error) {
		t.Helper()
		got, err := b.ask(t, http.MethodPost, "auth/jwt/login", "", map[string]string{"role": role, "jwt": token})
		if err != nil {
			return "", err
		}
		auth, _ := got["auth"].(map[string]any)
		text, _ := auth["client_token"].(string)
		if said, _ := json.Marshal(auth["metadata"]); !strings.Contains(string(said), `"run":"apply-1"`) {
			t.Errorf("the audit log of OpenBao would say %s of the run", said)
		}
		return text, nil
	}
	for kind, role := range map[stack.RunKind]string{stack.PlanRun: "team-a-plan", stack.ApplyRun: "team-a-apply"} {
		_, env := p.home(t, kind, q)
		token, err := login(role, env[identity.EnvVaultJWT])
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if _, err := b.ask(t, http.MethodGet, "secret/data/team-a", token, nil); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	dir, env := p.home(t, stack.PlanRun, q)
	if _, err := login("team-a-apply", env[identity.EnvVaultJWT]); err == nil {
		t.Error("a plan has the role of applies")
	}
	other, err := os.ReadFile(filepath.Join(dir, "x.token"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := login("team-a-plan", string(other)); err == nil {
		t.Error("a token for another audience opens OpenBao")
	}
	_, env = p.home(t, stack.ApplyRun, q, func(r *identity.Run) { r.Namespace = "team-b" })
	if _, err := login("team-a-apply", env[identity.EnvVaultJWT]); err == nil {
		t.Error("another tenant has the role")
	}
	p.now = time.Now().Add(-time.Hour)
	_, env = p.home(t, stack.ApplyRun, q)
	if _, err := login("team-a-apply", env[identity.EnvVaultJWT]); err == nil {
		t.Error("a token that expired is taken")
	}
}
