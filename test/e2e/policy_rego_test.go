package e2e

import (
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// named is a policy in Rego with an effect for things of a name.
func named(effect, name string) string {
	return `rego:
  parameters: {name: ` + name + `}
  modules:
    policy.rego: |
      package terrier
      ` + effect + ` contains {"msg": sprintf("%s of %s is not welcome", [c.address, input.stack.name]), "rule": "names", "address": c.address} if {
        some c in input.changes
        c.after.name == input.parameters.name
      }
      warn contains sprintf("the secret is %v", [c.after.secret]) if {
        some c in input.changes
        c.after.secret
      }`
}

// A program in Rego judges plans with its parameters, without their secrets. A change of the
// policy judges a pending plan again, and a program that is wrong holds it.
func TestAPolicyInRegoJudgesPlans(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	name := policed(t, c, named("deny", "a"))
	c.PutSecret(t, "vars", map[string]string{"secret": "canary-in-a-variable"})
	c.Apply(t, inline("stack", "approvePlan: auto\ninterval: 1h\nvarsFrom: [{kind: Secret, name: vars}]", w.HCL()+`
variable "secret" { sensitive = true }
resource "world_thing" "a" {
  name   = "a"
  secret = var.secret
}`))
	s := c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if !strings.Contains(message(s), "denied by "+name+": names: world_thing.a of stack is not welcome") {
			return errNot("denied, but " + message(s))
		}
		return nil
	})
	if out := c.Terrier(t, "plan", "stack"); len(w.Things()) != 0 || !strings.Contains(out, "the secret is (sensitive)") || strings.Contains(out, "canary") {
		t.Errorf("the world holds %+v, %q, and the plan shows\n%s", w.Things(), message(s), out)
	}

	policed(t, c, named("hold", "a"))
	c.Await(t, "stack", heldBy(name+": names"))
	policed(t, c, "rego:\n  modules:\n    policy.rego: |\n      package terrier\n      deny contains http.send({})")
	c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if m := message(s); !strings.Contains(m, "http.send is not available to policies") {
			return errNot("held by a program that is wrong, but " + m)
		}
		return nil
	})
	if len(w.Things()) != 0 {
		t.Errorf("the world holds %+v, want nothing", w.Things())
	}
	policed(t, c, named("deny", "b"))
	c.AwaitReady(t, "stack")
	if len(w.Named("a")) != 1 {
		t.Errorf("the world holds %+v, want a", w.Things())
	}
}

// A policy whose program is in a source follows the source, unless it is pinned to a digest.
func TestAPolicyInRegoComesFromASource(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	git := testkit.NewGit(t)
	text := func(effect string) map[string]string {
		return map[string]string{"policies/a/policy.rego": "package terrier\n\n" + effect + " contains \"of the source\" if count(input.changes) > 0\n"}
	}
	git.Commit(text("deny"))
	c.Apply(t, strings.Replace(git.Manifest("policies"), "interval: 1h", "interval: 1s", 1))
	name := policed(t, c, "rego:\n  path: policies/a\n  sourceRef: {kind: GitRepository, namespace: "+c.Namespace+", name: policies}")
	c.Apply(t, inline("stack", "approvePlan: auto\ninterval: 1h", things(w, "x", "a")))
	c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if m := message(s); !strings.Contains(m, "denied by "+name+": deny: of the source") {
			return errNot("denied, but " + m)
		}
		return nil
	})
	policed(t, c, "rego:\n  path: policies/a\n  digest: sha256:0000000000000000000000000000000000000000000000000000000000000000\n  sourceRef: {kind: GitRepository, namespace: "+c.Namespace+", name: policies}")
	c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if m := message(s); !strings.Contains(m, "held by "+name) || !strings.Contains(m, "may be used") {
			return errNot("held for the digest, but " + m)
		}
		return nil
	})
	policed(t, c, "rego:\n  path: policies/a\n  sourceRef: {kind: GitRepository, namespace: "+c.Namespace+", name: policies}")
	git.Commit(text("warn"))
	c.AwaitReady(t, "stack")
	if len(w.Named("a")) != 1 {
		t.Errorf("the world holds %+v, want a", w.Things())
	}
}
