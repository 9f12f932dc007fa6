package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	authzv1 "k8s.io/api/authorization/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// RG-19: a module that a user pushes with the credentials of the cluster is installed with
// the token of a ServiceAccount that may read the namespace, and with no other.
func TestModuleOfTheRegistryInside(t *testing.T) {
	c := cluster(t)
	dir := t.TempDir()
	write(t, dir, "main.tf", `output "says" { value = "hello" }`)
	push := []string{"module", "push", dir, "--namespace", c.Namespace, "--name", "hello", "--system", "demo", "--version"}
	if out := c.Terrier(t, append(push, "1.0.0")...); !strings.Contains(out, "Published "+c.Namespace+"/hello/demo 1.0.0") {
		t.Errorf("push says %s", out)
	}
	c.Apply(t, `
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: stranger}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules:
  - {apiGroups: [infra.contrib.fluxcd.io], resources: [terraforms/registry], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: `+c.Namespace+`}]
`)
	awaitAllowed(t, c, "reader", authzv1.ResourceAttributes{Group: v1alpha2.GroupVersion.Group, Resource: "terraforms", Subresource: "registry", Verb: "get"})
	host := strings.TrimPrefix(platform(t).HTTP, "https://")
	ca := filepath.Join(t.TempDir(), "ca.crt")
	text := c.Kubectl(t, "get", "configmap", "terrier-server", "--namespace", "terrier-system", "-o", `jsonpath={.data.ca\.crt}`)
	if err := os.WriteFile(ca, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	init := func(account, module string) testkit.Ran {
		t.Helper()
		token := strings.TrimSpace(c.Kubectl(t, "create", "token", account))
		used := t.TempDir()
		write(t, used, "main.tf", "module \"hello\" {\n"+module+"}\n")
		write(t, used, "cli.tfrc", "credentials \""+host+"\" {\n  token = \""+token+"\"\n}\noci_credentials \""+host+"\" {\n  username = \"token\"\n  password = \""+token+"\"\n}\n")
		return testkit.TryEngine(t, used, []string{"SSL_CERT_FILE=" + ca, "TF_CLI_CONFIG_FILE=" + filepath.Join(used, "cli.tfrc")}, "init", "-input=false")
	}
	for protocol, module := range map[string]string{
		"the registry protocol": "  source  = \"" + host + "/" + c.Namespace + "/hello/demo\"\n  version = \"~> 1.0\"\n",
		"OCI":                   "  source = \"oci://" + host + "/" + c.Namespace + "/modules/hello/demo?tag=1.0.0\"\n",
	} {
		if r := init("reader", module); r.Code != 0 {
			t.Errorf("init of a reader over %s ended with %d: %s%s", protocol, r.Code, r.Stdout, r.Stderr)
		}
		if r := init("stranger", module); r.Code == 0 || !strings.Contains(r.Stderr, "403") {
			t.Errorf("init of a stranger over %s ended with %d: %s%s, want 403", protocol, r.Code, r.Stdout, r.Stderr)
		}
	}
}
