package browser

import (
	"testing"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// scene is a namespace in which a little of everything is to be seen: a stack that
// is ready, one whose plan waits, one that has drifted, one that fails, one that is
// suspended, one that waits for another, one with a break-glass session, one that is
// gone and left resources.
const scene = `---
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: network, labels: {app: shop, terrier.dev/tenant: acme}}
spec:
  interval: 1h
  approvePlan: auto
  destroyResourcesOnDeletion: true
  writeOutputsToSecret: {name: network}
  vars: [{name: zone, value: south}]
  values:
    hcl: |
      variable "zone" {}
      resource "terraform_data" "subnet" {
        count = 3
        input = { zone = var.zone, block = "10.0.${count.index}.0/24" }
      }
      output "subnets" { value = terraform_data.subnet[*].id }
      output "password" {
        value     = "not for everybody"
        sensitive = true
      }
---
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: database, labels: {app: shop, terrier.dev/tenant: acme}}
spec:
  interval: 1h
  dependsOn: [{name: network}]
  varsFrom: [{kind: Secret, name: network, varsKeys: [subnets]}]
  values:
    hcl: |
      variable "subnets" {}
      resource "terraform_data" "server" {
        input = { name = "orders", subnets = var.subnets, size = "db.large" }
      }
      resource "terraform_data" "replica" {
        count = 2
        input = { of = terraform_data.server.id }
      }
---
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: broken, labels: {app: mail}}
spec:
  interval: 1h
  approvePlan: auto
  values:
    hcl: |
      resource "terraform_data" "x" {
        input = file("${path.module}/nowhere.txt")
      }
---
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: asleep, labels: {app: mail}}
spec:
  interval: 1h
  suspend: true
  values:
    hcl: |
      resource "terraform_data" "x" {}
---
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: frontend, labels: {app: shop}}
spec:
  interval: 1h
  dependsOn: [{name: database}]
  values:
    hcl: |
      resource "terraform_data" "x" {}
---
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: byhand, labels: {app: mail}}
spec:
  interval: 1h
  approvePlan: auto
  values:
    hcl: |
      resource "terraform_data" "x" { count = 2 }
---
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: leaving, labels: {app: mail}}
spec:
  interval: 1h
  approvePlan: auto
  values:
    hcl: |
      resource "terraform_data" "queue" { count = 3 }
`

// drifting is a stack whose resource is changed manually.
const drifting = `---
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: drifting, labels: {app: shop}}
spec:
  interval: 1h
  sourceRef: {kind: GitRepository, name: code}
`

// play sets the scene and waits until everything stands as it should.
func play(t *testing.T, p *testkit.Platform, c *testkit.Cluster) {
	t.Helper()
	c.Apply(t, scene)
	world := p.World(t)
	g := testkit.NewGit(t)
	g.Commit(map[string]string{"main.tf": world.HCL() + `
resource "world_thing" "a" {
  name  = "a"
  value = "as it was applied"
}
`})
	c.Apply(t, g.Manifest("code")+drifting)
	pending := c.AwaitPending(t, "drifting").Status.Plan.Pending
	c.Patch(t, "drifting", `{"spec":{"approvePlan":"`+pending+`"}}`)
	c.AwaitReady(t, "drifting")
	other := "changed by hand"
	world.Edit(func(thing *testkit.WorldThing) bool { thing.Value = &other; return true })
	c.Patch(t, "drifting", `{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"look"}}}`)
	c.AwaitReady(t, "leaving")
	c.Delete(t, "leaving")
	c.AwaitReady(t, "byhand")
	c.AwaitReady(t, "network")
	c.AwaitPending(t, "database")
	c.AwaitReason(t, "drifting", "DriftDetected")
	c.AwaitReason(t, "broken", "TFExecPlanFailed")
	c.AwaitGone(t, "leaving")
}

// byHand starts a break-glass session, in which a command has run.
func byHand(w *window, stack string) {
	w.t.Helper()
	w.visit(stack + "/break-glass")
	w.presses("Start session")
	w.sees("A break-glass session is open")
	w.fills("Command", "state list")
	w.presses("Run command")
	w.sees("Last command")
}

// brought uploads a state that knows one resource less than what is stored, and
// returns the address of the page that asks whether to store it.
func brought(w *window, stack string) string {
	w.t.Helper()
	w.visit(stack + "/states")
	w.at(stack + "/states")
	return value[string](w, `(async () => {
	const state = await fetch(document.querySelector("a[download]").href).then(r => r.json());
	state.serial += 1;
	state.resources[0].instances.pop();
	const form = new FormData();
	form.append("state", new File([JSON.stringify(state)], "brought.tfstate"));
	const answer = await fetch(location.pathname + "/push", { method: "POST", body: form });
	const to = new URL(answer.url);
	return to.pathname + to.search;
})()`)
}
