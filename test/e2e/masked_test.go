package e2e

import (
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// A value out of a Secret that the module does not declare sensitive is hidden by
// every outlet, also once the Secret holds another one, unless the user asks.
func TestWhatCameFromASecretIsMaskedEverywhere(t *testing.T) {
	c := cluster(t)
	const before, after = "first-value-of-the-secret", "second-value-of-the-secret"
	c.PutSecret(t, "inputs", map[string]string{"door": before, "port": "54321"})
	c.Apply(t, inline("stack", `approvePlan: auto
interval: 10m
varsFrom: [{kind: Secret, name: inputs}]
writeOutputsToSecret: {name: out}`, `
variable "door" { type = string }
variable "port" { type = number }
resource "terraform_data" "it" { input = { url = "https://u:${var.door}@host/", port = var.port, plain = "readable" } }
output "url" { value = terraform_data.it.output.url }
output "plain" { value = terraform_data.it.output.plain }
`))
	c.AwaitReady(t, "stack")
	masked := func(what string, readable string, args ...string) {
		t.Helper()
		said := c.Terrier(t, args...)
		for _, value := range []string{before, after, "54321"} {
			if strings.Contains(said, value) {
				t.Errorf("%s: terrier %s shows %s:\n%s", what, strings.Join(args, " "), value, said)
			}
		}
		if !strings.Contains(said, readable) {
			t.Errorf("%s: terrier %s shows nothing of %q:\n%s", what, strings.Join(args, " "), readable, said)
		}
	}
	everywhere := func(t *testing.T, what string) {
		t.Helper()
		masked(what, "readable", "state", "show", "stack")
		masked(what, "readable", "state", "show", "stack", "-o", "json")
		masked(what, `plain = "readable"`, "outputs", "stack")
		masked(what, "stack", "get", "stack", "-o", "yaml")
	}
	everywhere(t, "after the apply")
	if got := c.Secret(t, "out")["url"]; got != "https://u:"+before+"@host/" {
		t.Errorf("the published output is %q, want the value", got)
	}
	for _, args := range [][]string{{"state", "show", "stack", "--show-secrets"}, {"outputs", "stack", "--show-secrets"}} {
		if said := c.Terrier(t, args...); !strings.Contains(said, before) {
			t.Errorf("terrier %s does not show the value:\n%s", strings.Join(args, " "), said)
		}
	}
	c.Patch(t, "stack", `{"spec":{"approvePlan":""}}`)
	c.PutSecret(t, "inputs", map[string]string{"door": after, "port": "54321"})
	c.AwaitPending(t, "stack")
	everywhere(t, "with another value in the Secret")
	masked("a plan from one value to the other", "terraform_data.it", "plan", "stack")
	masked("a plan from one value to the other", "terraform_data.it", "plan", "stack", "-o", "json")
	pending := c.Stack(t, "stack").Status.Plan.Pending
	c.Patch(t, "stack", `{"spec":{"approvePlan":"`+pending+`"}}`)
	c.AwaitReady(t, "stack")
	everywhere(t, "after the second apply")
	masked("a version with the earlier value", "readable", "state", "show", "stack", "--version", firstSerial(t, c))
}

// firstSerial is the oldest version of the state of the stack.
func firstSerial(t *testing.T, c *testkit.Cluster) string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(c.Terrier(t, "state", "versions", "stack")), "\n")
	return strings.Fields(lines[len(lines)-1])[0]
}
