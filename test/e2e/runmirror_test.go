package e2e

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/registry/registrytest"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// RG-06, RG-10, RG-14, LQ-24: a run whose only way out is the mirror installs a provider that
// the mirror downloads from an upstream and verifies by its signature. The mirror knows the
// run by its token, so the rules for another namespace refuse that one; and what no key of
// the upstream signed reaches no run.
func TestRunsInstallThroughTheMirrorAlone(t *testing.T) {
	t.Parallel()
	const host = "registry.example.com"
	platform := runtime.GOOS + "_" + runtime.GOARCH
	signer := registrytest.NewSigner(t)
	release := func(namespace string, key *registrytest.Signer) *registrytest.Release {
		r := &registrytest.Release{Namespace: namespace, Type: "random", Version: providerVersion, Protocols: []string{"5.0"}, Archives: map[string][]byte{platform: newProviders(t).packed}}
		r.Sign(t, signer)
		r.Keys[0] = key.Key(t)
		return r
	}
	upstream := registrytest.New(t)
	upstream.Publish(release("acme", signer), release("forged", registrytest.NewSigner(t)))

	dir := t.TempDir()
	write(t, dir, "upstream.pem", string(upstream.Authority))
	write(t, dir, "mirror.yaml", fmt.Sprintf(`
upstreams:
  %s: {url: %q, caFile: %q}
rules:
  - tenants: [denied]
    deny: [{provider: "*/acme/*", reason: "use hashicorp/random"}]
`, host, upstream.URL, filepath.Join(dir, "upstream.pem")))
	p := testkit.Up(t, "--run-network", "none", "--provider-registries=false", "--registry-config", filepath.Join(dir, "mirror.yaml"), "--log-level", "debug")
	module := func(namespace string) string {
		return "terraform {\n  required_providers {\n    random = { source = \"" + host + "/" + namespace + "/random\" }\n  }\n}\nresource \"random_id\" \"it\" {\n  byte_length = 4\n}\noutput \"it\" {\n  value = random_id.it.hex\n}\n"
	}
	const spec = "approvePlan: auto\ninterval: 1h\nwriteOutputsToSecret: {name: outputs}"

	c := p.Cluster(t)
	c.Apply(t, inline("stack", spec, module("acme")))
	c.AwaitReady(t, "stack")
	if got := c.Secret(t, "outputs")["it"]; len(got) != 8 {
		t.Errorf("the output is %q, want eight digits of the provider", got)
	}
	if got := upstream.Count(".zip"); got != 1 {
		t.Errorf("the upstream sent %d archives, want 1", got)
	}
	log := p.Log()
	for _, file := range []string{"index.json", providerVersion + ".json"} {
		if want := "path=/v1/mirror/" + host + "/acme/random/" + file + " status=200 user=system:terrier:run:" + c.Namespace; !strings.Contains(log, want) {
			t.Errorf("the log lacks %q", want)
		}
	}
	if strings.Contains(log, "signature=") || strings.Contains(log, "Bearer") {
		t.Error("the log has a signature or a token")
	}

	c.Kubectl(t, "create", "namespace", "denied")
	denied := p.In(t, "denied")
	denied.Apply(t, inline("stack", spec, module("acme")))
	denied.Await(t, "stack", failing("denied to the tenant denied: use hashicorp/random"))
	if got := upstream.Count(".zip"); got != 1 {
		t.Errorf("for a tenant that may not have it, the upstream sent %d archives, want 1", got)
	}

	c.Apply(t, inline("forged", "approvePlan: auto\ninterval: 1h", module("forged")))
	c.Await(t, "forged", failing("none of the keys made the signature"))
	if got := upstream.Count("forged/random/" + providerVersion + "/terraform-provider-random_" + providerVersion + "_" + platform); got != 0 {
		t.Errorf("the archive of a release that no key of its upstream signed was downloaded %d times", got)
	}
}

// failing is a stack whose run failed for a reason that its condition says.
func failing(why string) func(*v1alpha2.Terraform) error {
	return func(s *v1alpha2.Terraform) error {
		ready := meta.FindStatusCondition(s.Status.Conditions, "Ready")
		if ready == nil || ready.Status != "False" || !strings.Contains(ready.Message, why) {
			return fmt.Errorf("its condition is %+v, want one that says %q", ready, why)
		}
		return nil
	}
}
