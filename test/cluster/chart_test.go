package cluster

import (
	"testing"
)

const wordStack = `
apiVersion: v1
kind: Secret
metadata: {name: inputs}
stringData: {word: first}
---
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: word}
spec:
  approvePlan: auto
  interval: 1h
  retryInterval: 1s
  varsFrom: [{kind: Secret, name: inputs}]
  values:
    hcl: |
      variable "word" { type = string }
      resource "terraform_data" "it" { input = var.word }
      output "word" { value = terraform_data.it.output }
  writeOutputsToSecret: {name: word-outputs}
`

// The chart as it is by default, out of a registry, on a real node: the controller and the
// pods of runs start under Pod Security "restricted" with the network policies in force, and
// an upgrade keeps what was applied.
func TestChart(t *testing.T) {
	s := ship(t, root, "0.3.0")
	r := install(t, s, "", "pod-security.kubernetes.io/enforce", "restricted")
	r.stacks.Apply(t, wordStack)
	r.awaitOutput(t, "word-outputs", "word", "first")

	r.upgrade(t, s, "--set", "podAnnotations.upgraded=yes")
	r.stacks.PutSecret(t, "inputs", map[string]string{"word": "second"})
	r.awaitOutput(t, "word-outputs", "word", "second")

	r.stacks.Delete(t, "word")
	r.stacks.AwaitGone(t, "word")
	r.awaitNoPods(t)
	helm(t, "uninstall", "terrier", "--wait")
}
