package e2e

import (
	"context"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// weaveObject is a Policy object as the Weave policy agent has it: things whose value is
// among the parameters are a violation.
func weaveObject(version, namespace, extra, forbidden string) string {
	return `apiVersion: pac.weave.works/` + version + `
kind: Policy
metadata: {name: ` + namespace + `}
spec:
  id: test.policies.values
  name: Values of things
  description: Some values are not allowed.
  how_to_solve: Write another value.
  category: test.categories.values
  severity: high
  provider: terraform
  ` + extra + `
  targets: {kinds: [Terraform], namespaces: [` + namespace + `]}
  standards: [{id: test.standards.one, controls: [test.controls.one]}]
  tags: [values]
  parameters:
    - {name: forbidden, type: array, required: true, value: [` + forbidden + `]}
  code: |
    package test.values
    forbidden := input.parameters.forbidden
    violation[result] {
      change := input.review.object.status.tfplan.resource_changes[_]
      change.change.after.value == forbidden[_]
      result = {"issue detected": true, "msg": sprintf("%s has the value %s", [change.address, change.change.after.value]), "violating_key": change.address}
    }
`
}

// LQ-63: Policy objects of the Weave policy agent that are for Terraform are evaluated by the
// controller, in each of their versions. A change of the object judges pending plans again.
func TestPolicyObjectsOfWeave(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	applied := c.Apply(t, weaveObject("v2beta2", c.Namespace, "enabled: true", "bad"))
	t.Cleanup(func() {
		if err := c.Client.Delete(context.WithoutCancel(t.Context()), applied[0]); err != nil {
			t.Errorf("deleting the policy: %v", err)
		}
	})
	const name = "Policy.pac.weave.works/"
	c.Apply(t, inline("net", "approvePlan: auto\ninterval: 1h", things(w, "bad", "a")))
	s := c.AwaitReason(t, "net", "PostPlanningWebhookFailed")
	if want := name + c.Namespace + ": test.policies.values: world_thing.a has the value bad"; !strings.Contains(message(s), want) || len(w.Things()) != 0 {
		t.Errorf("the message is %q, want %q in it, and nothing applied", message(s), want)
	}
	if out := c.Terrier(t, "explain", "net"); !strings.Contains(out, "severity: high") {
		t.Errorf("terrier explain says\n%s", out)
	}
	for _, spec := range []string{"enforce: false", "enabled: false"} { // both let the plan go on, the second without a warning
		c.Apply(t, weaveObject("v2beta3", c.Namespace, spec, "bad"))
		c.AwaitReady(t, "net")
	}
	c.Apply(t, weaveObject("v2beta1", c.Namespace, "enabled: true\n  enforce: true", "worse"))
	c.Apply(t, inline("net", "approvePlan: auto\ninterval: 1h", things(w, "worse", "a")))
	c.AwaitReason(t, "net", "PostPlanningWebhookFailed")
	c.Apply(t, inline("net", "approvePlan: auto\ninterval: 1h", things(w, "good", "a")))
	c.Await(t, "net", func(s *v1alpha2.Terraform) error {
		if things := w.Named("a"); len(things) != 1 || things[0].Value == nil || *things[0].Value != "good" {
			return errNot("applied yet")
		}
		return testkit.IsReady(s)
	})
	// Another program's object has no status of ours.
	var found client.Object = applied[0]
	if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(found), found); err != nil || applied[0].Object["status"] != nil {
		t.Errorf("the policy is %v (%v), want no status", applied[0].Object, err)
	}
}
