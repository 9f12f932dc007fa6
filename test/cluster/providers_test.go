package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// cacheValues make the DaemonSet of the chart fill a directory of the node, as
// docs/operate.md says.
const cacheValues = `
caBundle: {configMap: authorities}
extraArgs: [--provider-registries=false]
runs:
  image: {repository: registry.example.com/team/terrier-runner}
  resources: {requests: {cpu: 10m, memory: 64Mi}}
  providerCache:
    lock: %q
    volume: {hostPath: {path: %q}}
    fill:
      kind: DaemonSet
      namespace: %s
      env: [{name: HTTPS_PROXY, value: %q}, {name: TF_CLI_CONFIG_FILE, value: /cache/engine.tfrc}]
      podSecurityContext: {runAsUser: 0, runAsGroup: 0, runAsNonRoot: false}
`

// pet is a stack whose provider is in the cache alone. Its code tries to write there.
const pet = `
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: %s}
spec:
  approvePlan: auto
  interval: 1h
  retryInterval: 1s
  values:
    hcl: |
      terraform {
        required_providers {
          random = { source = "hashicorp/random" }
        }
      }
      resource "random_pet" "a" {
        provisioner "local-exec" { command = "if (: >/run/terrier/providers/written) 2>/dev/null; then exit 9; fi" }
      }
`

// The filler of the chart fills a directory of the node from a registry. A run mounts that
// read-only, and takes its provider from there. A package that was changed on the node is
// refused, until the filler has replaced it.
func TestProviderCache(t *testing.T) {
	const host, version = "registry.opentofu.org", "3.6.1"
	const provider = host + "/hashicorp/random"
	registry := runnertest.NewRegistryAt(t, NodeAddress)
	registry.Publish(filepath.Join(testkit.Repository(t), "bin", "mirror"), "hashicorp/random", version)
	lock := fmt.Sprintf("provider %q {\n  version = %q\n  hashes = [%q]\n}\n", provider, version, registry.Hash("hashicorp/random", version))
	cache := t.TempDir()
	if err := os.WriteFile(filepath.Join(cache, "engine.tfrc"), []byte(registry.Host(host)), 0o600); err != nil {
		t.Fatal(err)
	}
	place := filepath.Join(cache, provider, version, runtime.GOOS+"_"+runtime.GOARCH)

	s := ship(t, root, "0.4.0")
	fillers := Open(t, "pod-security.kubernetes.io/enforce", "privileged")
	r := prepare(t, fmt.Sprintf(cacheValues, lock, cache, fillers.Namespace, registry.Proxy))
	r.trust(t, registry.Authority, chartNamespace, fillers.Namespace)
	t.Cleanup(func() {
		if t.Failed() {
			said, err := r.kubectl(t, fillers.Namespace, "logs", "daemonset/terrier-providers")
			t.Logf("the filler said:\n%s%v", said, err)
		}
	})
	r.deploy(t, s)
	testkit.Eventually(t, testkit.Patience, "the cache has the package", func(context.Context) error {
		_, err := os.Stat(place)
		return err
	})
	packages := func() int {
		return len(slices.DeleteFunc(registry.Asked(), func(path string) bool { return !strings.HasSuffix(path, "/package") }))
	}

	r.stacks.Apply(t, fmt.Sprintf(pet, "first"))
	r.stacks.AwaitReady(t, "first")
	if n := packages(); n != 1 {
		t.Errorf("the registry gave the package %d times, want once, to the filler", n)
	}

	programs, err := filepath.Glob(filepath.Join(place, "terraform-provider-random*"))
	if err != nil || len(programs) != 1 {
		t.Fatalf("the package has the programs %q, %v", programs, err)
	}
	if err := os.WriteFile(programs[0], []byte("#!/bin/sh\nexit 9\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.stacks.Apply(t, fmt.Sprintf(pet, "second"))
	const refused = "the provider cache has another package of " + provider + " than --run-provider-lock names"
	r.stacks.Await(t, "second", func(s *v1alpha2.Terraform) error {
		if ready := meta.FindStatusCondition(s.Status.Conditions, "Ready"); ready == nil || !strings.Contains(ready.Message, refused) {
			return fmt.Errorf("the condition does not say %q", refused)
		}
		return nil
	})

	// A filler that starts compares the cache with the lock file.
	if err := r.Client.CoreV1().Pods(fillers.Namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	r.stacks.AwaitReady(t, "second")
	if n := packages(); n != 2 {
		t.Errorf("the registry gave the package %d times, want twice, to the filler", n)
	}
	for _, name := range []string{"first", "second"} {
		r.stacks.Delete(t, name)
		r.stacks.AwaitGone(t, name)
	}
	r.awaitNoPods(t)
}
