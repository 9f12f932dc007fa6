package controller

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/blob/blobtest"
	"github.com/terrier-iac/terrier/internal/controller/vaults"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/identity"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/vault"
	"github.com/terrier-iac/terrier/internal/vault/vaulttest"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// issued allows the namespace team-a, and keeps what it was asked for.
type issued struct{ asked *Identified }

func (i issued) Allows(_ context.Context, namespace string, _ identity.Request) error {
	switch namespace {
	case "team-a":
		return nil
	case "away":
		return fault.New(fault.Later, "", errors.New("the API server is away"))
	default:
		return fault.New(fault.Denied, "", errors.New("no rule lets the namespace have it"))
	}
}

func (i issued) Of(_ context.Context, by Identified) (*runner.Identity, error) {
	*i.asked = by
	return &runner.Identity{Request: by.Request, Phase: by.Run.Phase, Grant: "grant"}, nil
}

func (i issued) Token(_ context.Context, by Identified, use identity.Use) (secret.Text, error) {
	*i.asked = by
	return secret.New("good token for " + use.Audience), nil
}

// A stack may ask the controller to sign its runs in to Vault: only the copy of the job that is
// started has the token, which is hidden, and the role is that of the phase.
func TestARunIsSignedInToItsVault(t *testing.T) {
	vaulttest.Each(t, func(t *testing.T, s vaulttest.Server) {
		if s.Real {
			t.Skip("the token is verified there")
		}
		s.Ask(t, http.MethodPost, "auth/jwt/role/apply", map[string]any{"role_type": "jwt", "token_policies": "app", "token_ttl": "90s"})
		var asked Identified
		logins := (&vaults.Vaults{Config: vaults.Config{Server: vault.Server{HTTP: http.DefaultClient}}, Records: blobtest.Files(t, 1<<20), Logins: true, Now: time.Now, Log: slog.New(slog.DiscardHandler)}).Open()
		c := takeApart(&Stacks{Identities: issued{&asked}, Logins: logins}).jobs.identifier
		p := identified("team-a")
		p.id, p.entry = "uid", &entry{id: "uid"}
		p.st.Configuration.Identity = &identity.Request{Vault: &identity.Vault{Address: s.URL.String(), Role: "apply", PlanRole: "plan", Login: true}}
		recorded := map[string]string{"A": "b"}
		job := runner.Job{ID: "apply-1", Stack: "uid", Kind: stack.ApplyRun, Env: recorded}
		if err := signedIn(t, c, p, &job); err != nil {
			t.Fatal(err)
		}
		token := job.Env[identity.EnvVaultToken]
		if token == "" || !slices.Contains(job.Mask, token) || job.Env[identity.EnvVaultChild] != "true" || len(recorded) != 1 {
			t.Errorf("the environment is %v, hidden is %v, and recorded %v", job.Env, job.Mask, recorded)
		}
		job.Kind = stack.PlanRun
		if err := signedIn(t, c, p, &job); fault.Reason(err, "") != vault.ReasonSignIn || !strings.Contains(err.Error(), "the role plan") {
			t.Errorf("a plan, whose role is not there: %v", err)
		}
		if err := c.logins.Release(t.Context(), "uid"); err != nil {
			t.Error(err)
		}
	})
}

// signedIn gives a job its identity, and then its session.
func signedIn(t *testing.T, c identifier, p *pass, job *runner.Job) error {
	t.Helper()
	by, err := c.identify(t.Context(), p, job)
	if err != nil {
		return err
	}
	if job.Env[identity.EnvVaultToken] != "" {
		t.Error("the run is signed in before it is known to have room")
	}
	return c.login(t.Context(), p, job, by)
}

func identified(namespace string) *pass {
	obj := &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "net", UID: "uid", Labels: map[string]string{"tenant": "another"}}}
	p := &pass{dialect: infra.Dialect{}, obj: obj, st: dialect.Stack{Configuration: stack.Configuration{Identity: &identity.Request{AWS: &identity.AWS{Role: "arn:aws:iam::123456789012:role/x"}}}}}
	p.o.Now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	return p
}

// A stack that may not have what it asks for does not run, and says why.
func TestStacksThatMayNotSignIn(t *testing.T) {
	long := identified("team-a")
	long.obj.SetName(strings.Repeat("n", 250))
	static := identified("team-a")
	static.in.Resolved.Environment = map[string]string{"AWS_ACCESS_KEY_ID": "x"}
	with := &Stacks{Identities: issued{&Identified{}}}
	for name, tt := range map[string]struct {
		on     *Stacks
		p      *pass
		reason stack.Reason
		says   string
	}{
		"no issuer":                     {&Stacks{}, identified("team-a"), stack.SpecInvalid, "--identity-issuer"},
		"allowed":                       {with, identified("team-a"), "", ""},
		"no rule":                       {with, identified("team-b"), stack.SpecInvalid, "no rule"},
		"the namespace cannot be read":  {with, identified("away"), stack.InputsFailed, "away"},
		"a credential in its place":     {with, static, stack.SpecInvalid, "AWS_ACCESS_KEY_ID"},
		"a name that makes it too long": {with, long, stack.SpecInvalid, "255"},
		"nothing is asked for":          {&Stacks{}, &pass{}, "", ""},
	} {
		b := takeApart(tt.on).jobs.identifier.findIdentity(t.Context(), tt.p)
		if (b == nil) != (tt.reason == "") || b != nil && (b.Reason != tt.reason || !strings.Contains(b.Message, tt.says) || !strings.Contains(b.Message, identity.Annotation)) {
			t.Errorf("%s: %+v, want %s with %q", name, b, tt.reason, tt.says)
		}
	}
}

// Who a run is follows from its object and its kind; a recorded job loses the credentials that
// the identity takes the place of, and only the copy that is started has the grant.
func TestWhoARunIs(t *testing.T) {
	var asked Identified
	c := takeApart(&Stacks{Identities: issued{&asked}}).jobs.identifier
	p := identified("team-a")
	p.o.PlanInputs.Source, p.in.origin, p.in.revision = "sha256:a", "https://git.example.com/net", "main@sha1:b"
	p.o.PlanInputs.Revision = "main@sha1:earlier" // as the status names the part of the source, perhaps of another repository
	recorded := map[string]string{"AWS_ACCESS_KEY_ID": "old", "AWS_REGION": "r"}
	job := runner.Job{ID: "destroy-1", Stack: "uid", Kind: stack.DestroyRun, Tree: runner.Tree{Digest: "sha256:a"}, Env: recorded}
	if _, err := c.identify(t.Context(), p, &job); err != nil {
		t.Fatal(err)
	}
	want := identity.Run{ID: "destroy-1", RunKind: "destroy", Phase: identity.Apply, Namespace: "team-a", Stack: "net", StackKind: "terraform.infra.contrib.fluxcd.io", StackUID: "uid",
		SourceURL: "https://git.example.com/net", SourceRevision: "main@sha1:b"}
	if asked.Run != want || asked.Key != "uid" {
		t.Errorf("asked for %+v of %s, want %+v", asked.Run, asked.Key, want)
	}
	if _, ok := job.Env["AWS_ACCESS_KEY_ID"]; ok || job.Env["AWS_REGION"] != "r" || recorded["AWS_ACCESS_KEY_ID"] != "old" {
		t.Errorf("the environment is %v, and that of the record %v", job.Env, recorded)
	}
	for name, with := range map[string]func(*runner.Job){
		"configuration that the stack brings": func(j *runner.Job) { j.Files = []workdir.File{{Path: "evil.tf"}} },
		"the text of a script":                func(j *runner.Job) { j.Script = &runner.Script{Destroy: []byte("rm -r .")} },
		"a module that the stack brings":      func(j *runner.Job) { j.Files = []workdir.File{{Path: "modules/net/evil.tf"}} },
		"a configuration of git":              func(j *runner.Job) { j.Home = []workdir.File{{Path: ".gitconfig"}} },
		"an image of its own": func(j *runner.Job) {
			j.Pod = &runner.Pod{Template: []byte(`{"spec":{"containers":[{"image":"evil"}]}}`)}
		},
		"steps after an apply":  func(j *runner.Job) { j.Kind = stack.StepsRun },
		"the command of a user": func(j *runner.Job) { j.Kind = stack.BreakGlassRun },
	} {
		other := job
		with(&other)
		if _, err := c.identify(t.Context(), p, &other); err != nil || asked.Run.SourceURL != "" {
			t.Errorf("with %s, the run says that its code is that of %s (%v)", name, asked.Run.SourceURL, err)
		}
	}
	p.st.Configuration.CLIConfig = &stack.Ref{Name: "cli"}
	if _, err := c.identify(t.Context(), p, &job); err != nil || asked.Run.SourceURL != "" {
		t.Errorf("with other registries, the run says that its code is that of %s (%v)", asked.Run.SourceURL, err)
	}
	p.st.Configuration.CLIConfig = nil
	job.Kind, job.Tree.Digest = stack.PlanRun, "sha256:other"
	if _, err := c.identify(t.Context(), p, &job); err != nil || asked.Run.Phase != identity.Plan || asked.Run.SourceURL != "" {
		t.Errorf("a plan of other content is %+v, %v", asked.Run, err)
	}
	job.Kind = stack.HealthRun
	if _, err := c.identify(t.Context(), p, &job); err != nil || job.Identity != nil {
		t.Errorf("health checks have the identity %+v, %v", job.Identity, err)
	}
	job.Kind = stack.ApplyRun
	if _, err := c.identify(t.Context(), identified("team-b"), &job); fault.Of(err) != fault.Denied {
		t.Errorf("a namespace without a rule gets %+v, %v", job.Identity, err)
	}
}
