package e2e

import (
	"context"
	"crypto"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/testkit"
)

const identityIssuer = "https://id.example.com"

// identityFlags allow every namespace one audience, and nothing else.
func identityFlags(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "rules.yaml", "rules: [{namespaces: [\"*\"], audiences: [verifier]}]\n")
	return []string{"--identity-issuer", identityIssuer, "--identity-rules", filepath.Join(dir, "rules.yaml")}
}

// identified is a stack that keeps a token of its plan, as no module should.
func identified(name, audience string) string {
	return `
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata:
  name: ` + name + `
  annotations:
    terrier.dev/identity: |
      tokens:
        - {name: x, audience: ` + audience + `}
spec:
  approvePlan: auto
  interval: 1h
  values:
    hcl: |
      output "token" { value = file("${path.module}/../identity/x.token") }
      resource "terraform_data" "prints" {
        provisioner "local-exec" {
          command = "cat \"$TERRIER_TOKEN_FILE_X\"; ls -l \"$TERRIER_TOKEN_FILE_X\""
        }
      }
  writeOutputsToSecret: {name: ` + name + `-outputs}
`
}

// verifiesIdentity runs a stack with an identity, and verifies its token with the keys that
// the command line writes, as a cloud would from a bucket.
func verifiesIdentity(t *testing.T, c *testkit.Cluster) {
	t.Helper()
	c.Apply(t, identified("signed", "verifier"))
	c.AwaitReady(t, "signed")
	token := c.Secret(t, "signed-outputs")["token"]

	dir := t.TempDir()
	c.Terrier(t, "identity", "jwks", "--dir", dir)
	data, err := os.ReadFile(filepath.Join(dir, ".well-known", "jwks.json"))
	if err != nil {
		t.Fatal(err)
	}
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(data, &set); err != nil {
		t.Fatal(err)
	}
	keys := &oidc.StaticKeySet{}
	for _, k := range set.Keys {
		keys.PublicKeys = append(keys.PublicKeys, k.Key.(crypto.PublicKey))
	}
	got, err := oidc.NewVerifier(identityIssuer, keys, &oidc.Config{ClientID: "verifier"}).Verify(t.Context(), token)
	if err != nil {
		t.Fatalf("the token %.20s… is not taken: %v", token, err)
	}
	var claims struct {
		Namespace    string `json:"namespace"`
		NamespaceUID string `json:"namespace_uid"`
		StackUID     string `json:"stack_uid"`
		Phase        string `json:"phase"`
	}
	if err := got.Claims(&claims); err != nil {
		t.Fatal(err)
	}
	var namespace corev1.Namespace
	if err := c.Client.Get(context.Background(), client.ObjectKey{Name: c.Namespace}, &namespace); err != nil {
		t.Fatal(err)
	}
	s := c.Stack(t, "signed")
	if claims.Namespace != c.Namespace || claims.NamespaceUID != string(namespace.UID) || claims.StackUID != string(s.UID) ||
		got.Subject != "namespace:"+c.Namespace+":kind:terraform.infra.contrib.fluxcd.io:stack:signed:phase:"+claims.Phase {
		t.Errorf("the token says %+v of %s", claims, got.Subject)
	}
	if log := c.Terrier(t, "logs", "signed"); strings.Contains(log, "eyJ") || !strings.Contains(log, "-rw-------") {
		t.Errorf("the log shows the token, or a file that others may read:\n%s", log)
	}
	audited := c.Terrier(t, "audit", "list", "--what", "identity-issued", "--stack", c.Namespace+"/signed", "-o", "json")
	for _, want := range []string{`"phase": "plan"`, `"phase": "apply"`, `"audience": "verifier"`, got.Subject} {
		if !strings.Contains(strings.ReplaceAll(audited, `":"`, `": "`), want) {
			t.Errorf("the audit log lacks %s:\n%s", want, audited)
		}
	}
	if strings.Contains(audited, "eyJ") {
		t.Error("the audit log has a token")
	}
	if runs := c.Terrier(t, "runs", "signed"); !strings.Contains(runs, "apply: x") || !strings.Contains(runs, "plan: x") {
		t.Errorf("the runs do not say which identity they had:\n%s", runs)
	}

	// An audience that no rule allows is not given, and the stack says so.
	c.Apply(t, identified("stranger", "sts.amazonaws.com"))
	saysInReady(t, c, "stranger", "no rule lets the namespace "+c.Namespace+" have the audience sts.amazonaws.com")
}

// LQ-66: a run has the identity that the controller gives it, and that verifiers take.
func TestRunsHaveAnIdentity(t *testing.T) {
	t.Parallel()
	p := testkit.Up(t, identityFlags(t)...)
	verifiesIdentity(t, p.Cluster(t))
}

// The supervisor in a pod gets its tokens by way of its agent.
func TestPodsHaveAnIdentity(t *testing.T) {
	_, c, _, _ := runsAsPods(t, identityFlags(t)...)
	verifiesIdentity(t, c)
}
