package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// cyclic is a template that no tenant can be made of.
const cyclic = `
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantTemplate
metadata: {name: web}
spec:
  registryId: none
  configMaps:
  - {id: one, nameTemplate: one, dependIds: [two], spec: {apiVersion: v1, kind: ConfigMap}}
  - {id: two, nameTemplate: two, dependIds: [one], spec: {apiVersion: v1, kind: ConfigMap}}
`

// manifestFile keeps a manifest in a file and returns its path.
func manifestFile(t *testing.T, manifest string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(path, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// kubectl runs it whatever comes of it.
func kubectl(t *testing.T, c *testkit.Cluster, args ...string) (said string, ok bool) {
	t.Helper()
	r := c.TryKubectl(t, args...)
	return r.Stdout + r.Stderr, r.Code == 0
}

// asked waits until the API server asks about templates: it learns of new
// webhooks a moment after they are written.
func asked(t *testing.T, c *testkit.Cluster) {
	t.Helper()
	file := manifestFile(t, strings.Replace(cyclic, "name: web", "name: probe", 1))
	testkit.Eventually(t, testkit.Patience, "a template that cannot be is refused", func(context.Context) error {
		if said, ok := kubectl(t, c, "apply", "--dry-run=server", "-f", file); ok {
			return fmt.Errorf("kubectl says %s", said)
		}
		return nil
	})
}

// forgetWebhooks deletes the webhooks that a controller of the test's namespace has
// left.
func forgetWebhooks(t *testing.T, c *testkit.Cluster) {
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
		u := &unstructured.Unstructured{}
		u.SetAPIVersion("admissionregistration.k8s.io/v1")
		u.SetKind(kind)
		u.SetName("tenants.terrier.dev." + c.Namespace)
		if err := c.Client.Delete(ctx, u); err != nil {
			t.Errorf("removing %s: %v", kind, err)
		}
	}
}

// kubectl shows the reason why an object is invalid, with the field.
func TestKubectlIsToldWhatIsNotValid(t *testing.T) {
	c := cluster(t)
	asked(t, c)
	for name, tt := range map[string]struct {
		manifest string
		want     []string
	}{
		"a cycle": {cyclic, []string{`The TenantTemplate "web" is invalid`, "spec.configMaps[0].dependIds", "one → two → one"}},
		"an id that is not there": {
			strings.Replace(cyclic, "[two]", "[three]", 1), []string{"spec.configMaps[0].dependIds", `there is no resource "three"`},
		},
		"two equal ids": {
			strings.NewReplacer("configMaps:", "secrets: [{id: one, nameTemplate: s, spec: {apiVersion: v1, kind: Secret}}]\n  configMaps:", ", dependIds: [two]", "").Replace(cyclic),
			[]string{"spec.secrets[0].id", "the id is used twice, in configMaps and in secrets"},
		},
		"a text that does not parse": {
			strings.NewReplacer(", dependIds: [two]", "", "nameTemplate: two", `nameTemplate: "{{ .uid"`).Replace(cyclic),
			[]string{"spec.configMaps[1].nameTemplate", "unclosed action"},
		},
		"a registry whose query is none": {`
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantRegistry
metadata: {name: customers}
spec:
  source: {type: sqlite, sqlite: {path: shop.db, query: DELETE FROM customers}}
  valueMappings: {uid: id, activate: active}
`, []string{`The TenantRegistry "customers" is invalid`, "spec.source.sqlite", "give one SELECT"}},
	} {
		t.Run(name, func(t *testing.T) {
			said, ok := kubectl(t, c, "apply", "-f", manifestFile(t, tt.manifest))
			if ok {
				t.Fatalf("kubectl took it: %s", said)
			}
			for _, w := range tt.want {
				if !strings.Contains(said, w) {
					t.Errorf("kubectl says %q, want %q in it", said, w)
				}
			}
		})
	}
}

// A template that comes before its registry, or uses what that does not map, is
// stored, and kubectl says what is missing.
func TestKubectlWarnsOfWhatDoesNotFit(t *testing.T) {
	c := cluster(t)
	asked(t, c)
	const manifest = `
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantTemplate
metadata: {name: web}
spec:
  registryId: customers
  configMaps: [{id: one, nameTemplate: "{{ .uid }}", spec: {apiVersion: v1, kind: ConfigMap, data: {plan: "{{ .plan }}"}}}]
`
	warns := func(when, manifest, want string) {
		t.Helper()
		if said, ok := kubectl(t, c, "apply", "-f", manifestFile(t, manifest)); !ok || !strings.Contains(said, want) {
			t.Errorf("%s kubectl says %q, want that it takes it and %q", when, said, want)
		}
	}
	warns("without a registry", manifest, "Warning: spec.registryId: namespace "+c.Namespace+" has no TenantRegistry customers yet")
	c.Apply(t, `
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantRegistry
metadata: {name: customers}
spec:
  source: {type: sqlite, sqlite: {path: shop.db, table: customers}}
  valueMappings: {uid: id, activate: active}
`)
	other, missing := strings.Replace(manifest, "name: web", "name: other", 1), "extraValueMappings of TenantRegistry customers: one: there is no variable plan"
	testkit.Eventually(t, testkit.Patience, "the controller knows the registry", func(context.Context) error {
		if said, ok := kubectl(t, c, "apply", "--dry-run=server", "-f", manifestFile(t, other)); !ok || !strings.Contains(said, missing) {
			return errNot(missing + " in " + said)
		}
		return nil
	})
	warns("without the variable", other, missing)
}

// A bad value of an annotation of a stack is a warning of kubectl, and an error in the status,
// until it is corrected.
func TestKubectlWarnsOfAnnotations(t *testing.T) {
	c := cluster(t)
	asked(t, c)
	g := testkit.NewGit(t)
	g.Username = ""
	hash := g.Commit(map[string]string{"terraform/README": "nothing to plan\n"})
	s := newScripted(t, c, "configmap.yaml", g.URL+"/terraform")
	s.await(t, "Success", hash, hash)
	const wrong = `the annotation terrier.dev/suspended is "ture"; it may be true or false`
	if said, ok := kubectl(t, c, "annotate", "terraforms.alustan.io", s.name, "terrier.dev/suspended=ture"); !ok || !strings.Contains(said, "Warning: "+wrong) {
		t.Errorf("kubectl says %q, want that it takes it and warns: %s", said, wrong)
	}
	s.await(t, "Failed", wrong, hash)
	if said, ok := kubectl(t, c, "annotate", "--overwrite", "terraforms.alustan.io", s.name, "terrier.dev/suspended=True"); !ok || strings.Contains(said, "Warning") {
		t.Errorf("kubectl says %q of the word True", said)
	}
	s.await(t, "", "Suspended: ", hash)
	s.delete(t)
	s.awaitGone(t)
}

// whileHeldUp does something while the controller takes connections and answers
// nothing.
func whileHeldUp(t *testing.T, p *testkit.Platform, do func() (string, bool)) (said string, ok bool) {
	t.Helper()
	if err := syscall.Kill(p.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Kill(p.PID(), syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	}()
	return do()
}

// A controller that is down, or hangs, holds up no write: what it would have
// refused is stored, its status says what is wrong, and once the controller is
// back the object can still be edited and deleted.
func TestNoWriteWaitsForAController(t *testing.T) {
	c := testkit.Kube(t)
	p, err := testkit.NewPlatform(testkit.PlatformOptions{
		Dir: filepath.Join(t.TempDir(), "platform"), Cluster: c,
		Flags: []string{"--admission-webhooks", "--http-host", "127.0.0.1", "--lease="},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		forgetWebhooks(t, c)
		if t.Failed() {
			t.Logf("the controller said:\n%s", p.Log())
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	asked(t, c)
	if said, ok := whileHeldUp(t, p, func() (string, bool) {
		return kubectl(t, c, "apply", "-f", manifestFile(t, strings.Replace(cyclic, "name: web", "name: early", 1)))
	}); !ok {
		t.Errorf("with a controller that does not answer a template is refused: %s", said)
	}
	if _, err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	file := manifestFile(t, cyclic)
	if said, ok := kubectl(t, c, "apply", "-f", file); !ok {
		t.Fatalf("without a controller a template is refused: %s", said)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	asked(t, c)
	c.Kubectl(t, "wait", "--for=condition=Valid=false", "--timeout=5m", "tenanttemplate/web")
	c.Kubectl(t, "annotate", "tenanttemplate", "web", "example.com/note=seen")
	c.Kubectl(t, "patch", "tenanttemplate", "web", "--type=merge", "-p", `{"spec":{"deletionProtection":true}}`)
	if said, ok := kubectl(t, c, "patch", "tenanttemplate", "web", "--type=merge", "-p", `{"spec":{"serviceAccountName":"x","manifests":[{"id":"new","dependIds":["none"],"spec":{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"}}}]}}`); ok || !strings.Contains(said, "spec.manifests[0].dependIds") {
		t.Errorf("kubectl says %q, want that what is wrong newly is refused", said)
	}
	c.Kubectl(t, "delete", "--timeout=5m", "tenanttemplate", "web")
}
