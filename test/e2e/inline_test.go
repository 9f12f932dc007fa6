package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/terrier-iac/terrier/internal/testkit"
)

const typed = `
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: typed}
spec:
  approvePlan: auto
  interval: 1h
  values:
    hcl: |
      resource "terraform_data" "it" { input = "kept" }
      output "text"   { value = terraform_data.it.output }
      output "number" { value = 42 }
      output "truth"  { value = true }
      output "list"   { value = ["a", "b"] }
      output "object" { value = { name = "x", size = 3 } }
      output "hidden" {
        value     = "sensitive-${terraform_data.it.output}"
        sensitive = true
      }
  writeOutputsToSecret:
    name: typed-outputs
    labels: {team: a}
`

// From a manifest to a resource, with everything that users of the upstream
// controller read.
func TestInlineStackBecomesReady(t *testing.T) {
	c := cluster(t)
	c.Apply(t, typed)
	s := c.AwaitReady(t, "typed")

	t.Run("outputs keep their types", func(t *testing.T) {
		want := map[string]string{
			"text": "kept", "hidden": "sensitive-kept",
			"number": "42", "number__type": `"number"`,
			"truth": "true", "truth__type": `"bool"`,
			"list": `["a","b"]`, "list__type": `["tuple",["string","string"]]`,
			"object": `{"name":"x","size":3}`, "object__type": `["object",{"name":"string","size":"number"}]`,
		}
		got := c.Secret(t, "typed-outputs")
		for key, text := range got {
			if key != "text" && key != "hidden" {
				got[key] = compact(t, text)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the outputs (-want +got):\n%s", diff)
		}
		if want := []string{"hidden", "list", "number", "object", "text", "truth"}; !cmp.Equal(want, s.Status.AvailableOutputs) {
			t.Errorf("status.availableOutputs = %v, want %v", s.Status.AvailableOutputs, want)
		}
	})

	t.Run("conditions are upstream's", func(t *testing.T) {
		got := map[string]string{}
		for _, condition := range s.Status.Conditions {
			got[condition.Type] = string(condition.Status) + "/" + condition.Reason
		}
		want := map[string]string{
			"Ready":  "True/TerraformOutputsWritten",
			"Plan":   "False/TerraformPlannedNoChanges",
			"Apply":  "True/TerraformAppliedSucceed",
			"Output": "True/TerraformOutputsWritten",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("conditions (-want +got):\n%s", diff)
		}
		if s.Status.LastAppliedRevision == "" || s.Status.LastPlannedRevision != s.Status.LastAppliedRevision || s.Status.Plan.LastApplied == "" || s.Status.Plan.Pending != "" {
			t.Errorf("status names the revisions %q and %q and the plans %+v", s.Status.LastPlannedRevision, s.Status.LastAppliedRevision, s.Status.Plan)
		}
		if !cmp.Equal(s.Finalizers, []string{"finalizers.tf.contrib.fluxcd.io"}) {
			t.Errorf("finalizers are %v", s.Finalizers)
		}
	})

	t.Run("kubectl shows it", func(t *testing.T) {
		c.Kubectl(t, "wait", "--for=condition=Ready", "--timeout=5m", "terraform/typed")
		header, row, _ := strings.Cut(strings.TrimSpace(c.Kubectl(t, "get", "tf", "typed")), "\n")
		if got, want := strings.Fields(header), []string{"NAME", "READY", "STATUS", "AGE"}; !cmp.Equal(got, want) {
			t.Errorf("columns are %v, want %v", got, want)
		}
		message := meta.FindStatusCondition(s.Status.Conditions, "Ready").Message
		if !strings.Contains(row, "True") || !strings.Contains(row, message) {
			t.Errorf("the row is %q, want it ready with %q", row, message)
		}
		awaitEvents(t, c, "typed", "tf-controller TerraformAppliedSucceed ", "tf-controller TerraformOutputsWritten ")
		if explained := c.Kubectl(t, "explain", "terraform.spec.approvePlan"); !strings.Contains(explained, "approvePlan") {
			t.Errorf("kubectl explain says %q", explained)
		}
	})

	t.Run("the plain engine goes on from its state", func(t *testing.T) {
		dir := byHand(t, c, "typed", hclOf(t, typed))
		testkit.Engine(t, dir, nil, "plan", "-input=false", "-no-color", "-detailed-exitcode") // 2 if there were changes
	})

	t.Run("deleting it leaves nothing of ours", func(t *testing.T) {
		c.Delete(t, "typed")
		c.AwaitGone(t, "typed")
	})
}

// compact is JSON without what only people need.
func compact(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("parsing %q: %v", text, err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
