package identity_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/identity"
)

const whole = `{
  "aws": {"role": "arn:aws:iam::123456789012:role/apply", "planRole": "arn:aws:iam::123456789012:role/plan"},
  "gcp": {"provider": "projects/42/locations/global/workloadIdentityPools/terrier/providers/terrier", "serviceAccount": "apply@p.iam.gserviceaccount.com", "planServiceAccount": "plan@p.iam.gserviceaccount.com"},
  "azure": {"tenant": "11111111-1111-1111-1111-111111111111", "client": "22222222-2222-2222-2222-222222222222", "planClient": "33333333-3333-3333-3333-333333333333", "subscription": "44444444-4444-4444-4444-444444444444"},
  "vault": {"address": "https://vault.example.com:8200", "role": "apply", "planRole": "plan"},
  "kubernetes": {"server": "https://k.example.com", "ca": "PEM", "audience": "k"},
  "tokens": [{"name": "ci-cd", "audience": "https://x.example.com", "planAudience": "https://x.example.com/read"}]
}`

func parse(t *testing.T, text string) identity.Request {
	t.Helper()
	r, err := identity.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return *r
}

func TestUsesDifferByPhase(t *testing.T) {
	r := parse(t, whole)
	want := map[identity.Phase][]identity.Use{
		identity.Plan: {
			{"aws", "sts.amazonaws.com", "arn:aws:iam::123456789012:role/plan"},
			{"gcp", "https://iam.googleapis.com/projects/42/locations/global/workloadIdentityPools/terrier/providers/terrier", "plan@p.iam.gserviceaccount.com"},
			{"azure", "api://AzureADTokenExchange", "11111111-1111-1111-1111-111111111111/33333333-3333-3333-3333-333333333333"},
			{"vault", "https://vault.example.com:8200", "https://vault.example.com:8200/jwt/plan"},
			{"kubernetes", "k", ""},
			{"ci-cd", "https://x.example.com/read", ""},
		},
		identity.Apply: {
			{"aws", "sts.amazonaws.com", "arn:aws:iam::123456789012:role/apply"},
			{"gcp", "https://iam.googleapis.com/projects/42/locations/global/workloadIdentityPools/terrier/providers/terrier", "apply@p.iam.gserviceaccount.com"},
			{"azure", "api://AzureADTokenExchange", "11111111-1111-1111-1111-111111111111/22222222-2222-2222-2222-222222222222"},
			{"vault", "https://vault.example.com:8200", "https://vault.example.com:8200/jwt/apply"},
			{"kubernetes", "k", ""},
			{"ci-cd", "https://x.example.com", ""},
		},
	}
	for phase, uses := range want {
		if diff := cmp.Diff(r.Uses(phase), uses); diff != "" {
			t.Errorf("in phase %s (-got +want):\n%s", phase, diff)
		}
	}
}

// Providers find their tokens by variables alone.
func TestWhatProvidersRead(t *testing.T) {
	r := parse(t, whole)
	got := r.Environ(identity.Plan, "/work/identity", "team-a.net.plan-1")
	want := map[string]string{
		"AWS_WEB_IDENTITY_TOKEN_FILE": "/work/identity/aws.token", "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/plan", "AWS_ROLE_SESSION_NAME": "team-a.net.plan-1",
		"GOOGLE_APPLICATION_CREDENTIALS": "/work/identity/gcp.json",
		"ARM_USE_OIDC":                   "true", "ARM_OIDC_TOKEN_FILE_PATH": "/work/identity/azure.token",
		"ARM_TENANT_ID": "11111111-1111-1111-1111-111111111111", "ARM_CLIENT_ID": "33333333-3333-3333-3333-333333333333", "ARM_SUBSCRIPTION_ID": "44444444-4444-4444-4444-444444444444",
		"VAULT_ADDR": "https://vault.example.com:8200", "KUBE_CONFIG_PATH": "/work/identity/kubeconfig", "TERRIER_TOKEN_FILE_CI_CD": "/work/identity/ci-cd.token",
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("variables (-got +want):\n%s", diff)
	}
	if got := r.Values([]identity.Issued{{Name: "aws", Token: "a"}, {Name: "vault", Token: "v"}}); got["TERRAFORM_VAULT_AUTH_JWT"] != "v" || len(got) != 1 {
		t.Errorf("Values() = %v, want the token for Vault alone", got)
	}
	files, err := r.Files(identity.Plan, "/work/identity")
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]any{}
	for _, f := range files {
		var v any
		if err := json.Unmarshal(f.Content, &v); err != nil {
			t.Fatal(err)
		}
		said[f.Name] = v
	}
	if diff := cmp.Diff(said["gcp.json"], any(map[string]any{
		"type": "external_account", "audience": "//iam.googleapis.com/projects/42/locations/global/workloadIdentityPools/terrier/providers/terrier",
		"subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "token_url": "https://sts.googleapis.com/v1/token",
		"service_account_impersonation_url": "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/plan@p.iam.gserviceaccount.com:generateAccessToken",
		"credential_source":                 map[string]any{"file": "/work/identity/gcp.token"},
	})); diff != "" {
		t.Errorf("gcp.json (-got +want):\n%s", diff)
	}
	config := string(files[1].Content)
	for _, want := range []string{`"tokenFile": "/work/identity/kubernetes.token"`, `"certificate-authority-data": "UEVN"`, `"server": "https://k.example.com"`} {
		if !strings.Contains(config, want) {
			t.Errorf("the kubeconfig lacks %s:\n%s", want, config)
		}
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	const role = `"arn:aws:iam::123456789012:role/x"`
	for name, tt := range map[string]struct{ text, want string }{
		"nothing":                        {`{}`, "asks for nothing"},
		"no JSON":                        {`x`, "no request"},
		"an unknown field":               {`{"aws": {"role": ` + role + `, "sub": "x"}}`, `unknown field "sub"`},
		"claims":                         {`{"claims": {"namespace": "other"}}`, `unknown field "claims"`},
		"two objects":                    {`{"aws": {"role": ` + role + `}} {}`, "more than one"},
		"a role that is none":            {`{"aws": {"role": "admin"}}`, "aws.role"},
		"a role for plans alone":         {`{"aws": {"planRole": ` + role + `}}`, "aws.role is missing"},
		"a user in place of a role":      {`{"aws": {"role": "arn:aws:iam::123456789012:user/x"}}`, "aws.role"},
		"a line break in an audience":    {`{"tokens": [{"name": "x", "audience": "a\nb"}]}`, "visible ASCII"},
		"no audience":                    {`{"tokens": [{"name": "x"}]}`, "audience of x is missing"},
		"a name that leads out":          {`{"tokens": [{"name": "../x", "audience": "a"}]}`, "tokens[0].name"},
		"the name of a part":             {`{"tokens": [{"name": "aws", "audience": "a"}]}`, "is taken"},
		"the same name twice":            {`{"tokens": [{"name": "x", "audience": "a"}, {"name": "x", "audience": "b"}]}`, "is taken"},
		"a Vault with a path":            {`{"vault": {"address": "https://v.example.com/x", "role": "r"}}`, "vault.address"},
		"a Vault with a password":        {`{"vault": {"address": "https://a:b@v.example.com", "role": "r"}}`, "vault.address"},
		"a mount that leads out":         {`{"vault": {"address": "https://v.example.com", "role": "r", "mount": "a//b"}}`, "vault.mount"},
		"a cluster without a host":       {`{"kubernetes": {"server": "https://"}}`, "kubernetes.server"},
		"a cluster without TLS":          {`{"kubernetes": {"server": "http://k.example.com"}}`, "kubernetes.server"},
		"a plan account without another": {`{"gcp": {"provider": "projects/1/locations/global/workloadIdentityPools/a/providers/b", "planServiceAccount": "a@b.c"}}`, "gcp.serviceAccount is missing"},
	} {
		if _, err := identity.Parse([]byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

var run = identity.Run{ID: "apply-1", RunKind: "apply", Phase: identity.Apply, Namespace: "team-a", Stack: "net", StackKind: "terraform.infra.contrib.fluxcd.io", StackUID: "u"}

// The subject is what verifiers bind to: it never changes, and no name stands for more than
// one part of it (LQ-66).
func TestSubject(t *testing.T) {
	if got, err := run.Subject(); err != nil || got != "namespace:team-a:kind:terraform.infra.contrib.fluxcd.io:stack:net:phase:apply" {
		t.Errorf("Subject() = %q, %v", got, err)
	}
	for name, change := range map[string]func(*identity.Run){
		"a colon in the namespace": func(r *identity.Run) { r.Namespace = "team-a:phase:apply" },
		"a colon in the name":      func(r *identity.Run) { r.Stack = "net:phase:apply" },
		"a star in the name":       func(r *identity.Run) { r.Stack = "*" },
		"upper case":               func(r *identity.Run) { r.Stack = "Net" },
		"no name":                  func(r *identity.Run) { r.Stack = "" },
		"no phase":                 func(r *identity.Run) { r.Phase = "" },
		"another phase":            func(r *identity.Run) { r.Phase = "apply:x" },
		"too long a name":          func(r *identity.Run) { r.Stack = strings.Repeat("a", 253) },
	} {
		r := run
		change(&r)
		if got, err := r.Subject(); err == nil {
			t.Errorf("%s: Subject() = %q, want an error", name, got)
		}
	}
}

func TestRules(t *testing.T) {
	rules := identity.Rules{Rules: []identity.Rule{
		{Namespaces: []string{"team-*"}, Audiences: []string{"sts.amazonaws.com"}, Roles: []string{"arn:aws:iam::123456789012:role/{namespace}/*"}},
		{Namespaces: []string{"team-b"}, NamespaceUIDs: []string{"new"}, Phases: []identity.Phase{identity.Plan, identity.Apply}, Audiences: []string{"https://x.example.com"}},
		{Namespaces: []string{"team-c"}, Phases: []identity.Phase{identity.Plan}, Audiences: []string{"*"}, Roles: []string{"*"}},
		{Namespaces: []string{"team-d", "team-e"}, Audiences: []string{"k"}},
		{Namespaces: []string{"team-e"}, Audiences: []string{"k"}, Servers: []string{"https://{namespace}.k8s.example.com", "https://*.lab.example.com:6443"}},
	}}
	if err := rules.Check(); err != nil {
		t.Fatal(err)
	}
	aws := func(role string) string { return `{"aws": {"role": "arn:aws:iam::123456789012:role/` + role + `"}}` }
	cluster := func(server string) string { return `{"kubernetes": {"server": "` + server + `", "audience": "k"}}` }
	const token = `{"tokens": [{"name": "x", "audience": "https://x.example.com"}]}`
	for name, tt := range map[string]struct {
		namespace, uid, request string
		want                    string // empty if it is allowed
	}{
		"its own role":                     {"team-a", "u", aws("team-a/apply"), ""},
		"the role of another namespace":    {"team-a", "u", aws("team-b/apply"), "aws: no rule lets the namespace team-a have the role"},
		"a namespace whose name begins so": {"team-ab", "u", aws("team-a/apply"), "no rule"},
		"no rule for the namespace":        {"other", "u", aws("other/apply"), "no rule"},
		"another audience":                 {"team-a", "u", token, "x: no rule lets the namespace team-a have the audience https://x.example.com"},
		"an audience without a role":       {"team-b", "new", token, ""},
		"a namespace that was made again":  {"team-b", "old", token, "no rule"},
		"a role for plans alone":           {"team-c", "u", aws("any"), "in runs of phase apply"},
		"this cluster":                     {"team-d", "u", cluster("https://10.0.0.1"), ""},
		"another address of it":            {"team-d", "u", cluster("https://kubernetes.default.svc:443"), ""},
		"another cluster":                  {"team-d", "u", cluster("https://evil.example.com"), "kubernetes.server: no rule that lets the namespace team-d have the audience k in runs of phase plan names the server https://evil.example.com"},
		"a server that a rule names":       {"team-e", "u", cluster("https://team-e.k8s.example.com"), ""},
		"the server of another namespace":  {"team-e", "u", cluster("https://team-d.k8s.example.com"), "add the address to the servers of the rule"},
		"a pattern of servers":             {"team-e", "u", cluster("https://a.lab.example.com:6443"), ""},
		"another port":                     {"team-e", "u", cluster("https://a.lab.example.com"), "kubernetes.server"},
		"a server without an audience":     {"team-a", "u", cluster("https://10.0.0.1"), "kubernetes: no rule lets the namespace team-a have the audience k"},
	} {
		err := rules.Allows(tt.namespace, tt.uid, []string{"https://10.0.0.1:443", "https://kubernetes.default.svc"}, parse(t, tt.request))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	if err := (identity.Rules{}).Allows("team-a", "u", nil, parse(t, token)); err == nil {
		t.Error("without rules an audience is allowed")
	}
	for name, r := range map[string]identity.Rule{
		"no namespace":     {Audiences: []string{"a"}},
		"no audience":      {Namespaces: []string{"a"}},
		"another phase":    {Namespaces: []string{"a"}, Audiences: []string{"a"}, Phases: []identity.Phase{"x"}},
		"an empty pattern": {Namespaces: []string{""}, Audiences: []string{"a"}},
		"an empty server":  {Namespaces: []string{"a"}, Audiences: []string{"a"}, Servers: []string{""}},
	} {
		if err := (identity.Rules{Rules: []identity.Rule{r}}).Check(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A credential that a provider would prefer, and a variable of the identity itself, are told
// and not passed over.
func TestConflicts(t *testing.T) {
	r := parse(t, whole)
	for _, name := range []string{"AWS_ROLE_ARN", "AWS_ACCESS_KEY_ID", "GOOGLE_APPLICATION_CREDENTIALS", "ARM_CLIENT_SECRET", "VAULT_TOKEN", "KUBE_TOKEN"} {
		if err := r.Conflict(map[string]string{name: "x", "AWS_REGION": "r"}); err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "AWS_REGION") {
			t.Errorf("Conflict(%s) = %v", name, err)
		}
	}
	if err := r.Conflict(map[string]string{"AWS_REGION": "r", "TF_VAR_x": "y"}); err != nil {
		t.Errorf("Conflict() = %v for variables that go together", err)
	}
}

func TestSession(t *testing.T) {
	for _, tt := range []struct{ namespace, name, run, want string }{
		{"team-a", "net", "apply-0123456789ab", "team-a.net.apply-0123456789ab"},
		{"team-a", strings.Repeat("n", 100), "apply-0123456789ab", "team-a." + strings.Repeat("n", 38) + ".apply-0123456789ab"},
		{"", "", strings.Repeat("r", 100), "." + "." + strings.Repeat("r", 62)},
	} {
		if got := identity.Session(tt.namespace, tt.name, tt.run); got != tt.want || len(got) > 64 {
			t.Errorf("Session(%q, %q, %q) = %q, want %q", tt.namespace, tt.name, tt.run, got, tt.want)
		}
	}
}
