package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
)

// A laptop needs no other registry: push, and a stack made from it follows; it
// consumes what another stack outputs, with its types, and is woken by it.
func TestPushedModuleConsumesOutputs(t *testing.T) {
	c := cluster(t)
	registry := strings.TrimPrefix(platform(t).HTTP, "https://")
	dir := t.TempDir()
	write(t, dir, "main.tf", `
variable "values" { type = any }
resource "terraform_data" "it" { input = var.values }
output "size"  { value = terraform_data.it.output.size + 1 }
output "names" { value = [for n in terraform_data.it.output.names : upper(n)] }
output "text"  { value = terraform_data.it.output.text }
`)
	c.Terrier(t, "push", dir, "oci://"+registry+"/"+c.Namespace+"/module:1.0.0")
	c.Apply(t, `
apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: module}
spec:
  interval: 1h
  url: oci://`+registry+"/"+c.Namespace+`/module
  ref: {semver: ">=1.0.0"}
---
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: above}
spec:
  approvePlan: auto
  interval: 1h
  retryInterval: 1h
  sourceRef: {kind: OCIRepository, name: module}
  dependsOn: [{name: below}]
  readInputsFromSecrets: [{name: below-outputs, as: below}]
  values:
    size: ${{ .below.size }}
    names: ${{ .below.names }}
    text: 'say ${{ .below.text }}'
  writeOutputsToSecret: {name: above-outputs}
`)
	c.Await(t, "above", func(s *v1alpha2.Terraform) error {
		if message(s) == "" {
			return errNot("a word about it yet")
		}
		return nil
	})
	c.Apply(t, inline("below", "interval: 1h\napprovePlan: auto\nwriteOutputsToSecret: {name: below-outputs}", `
output "size"  { value = 9007199254740993 }
output "names" { value = ["a \"quoted\" one", "b"] }
output "text"  { value = "hello" }
`))
	s := c.AwaitReady(t, "above")
	got := c.Secret(t, "above-outputs")
	want := map[string]string{"size": "9007199254740994", "text": "say hello", "names": `["A \"QUOTED\" ONE","B"]`}
	for key, w := range want {
		if key == "names" {
			got[key] = compact(t, got[key])
		}
		if got[key] != w {
			t.Errorf("%s is %q, want %q", key, got[key], w)
		}
	}
	var source sourcev1.OCIRepository
	c.Get(t, "module", &source)
	if a := source.Status.Artifact; a == nil || a.Revision != s.Status.LastAppliedRevision || !strings.HasPrefix(a.Revision, "1.0.0@sha256:") {
		t.Errorf("the source's artifact is %+v, and the stack was made from %q", a, s.Status.LastAppliedRevision)
	}

	t.Run("a newer version is followed", func(t *testing.T) {
		write(t, dir, "more.tf", `output "more" { value = true }`)
		c.Terrier(t, "push", dir, "oci://"+registry+"/"+c.Namespace+"/module:1.1.0")
		c.Kubectl(t, "annotate", "--overwrite", "ocirepository/module", "reconcile.fluxcd.io/requestedAt=now")
		s := c.Await(t, "above", func(s *v1alpha2.Terraform) error {
			if !strings.HasPrefix(s.Status.LastAppliedRevision, "1.1.0@") {
				return errNot("1.1.0 applied")
			}
			return nil
		})
		if want := []string{"more", "names", "size", "text"}; !cmp.Equal(s.Status.AvailableOutputs, want) {
			t.Errorf("the outputs are %v, want %v", s.Status.AvailableOutputs, want)
		}
	})
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
