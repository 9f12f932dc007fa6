package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// offline is a stack whose run has no network, and whose module calls one of the registry.
func offline(name, source string) string {
	return `
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata:
  name: ` + name + `
  annotations: {terrier.dev/network: none}
spec:
  approvePlan: auto
  interval: 1h
  values:
    hcl: |
      module "hello" {
        source  = "` + source + `"
        version = "~> 1.0"
      }
      output "says" { value = module.hello.says }
  writeOutputsToSecret: {name: ` + name + `-outputs}
`
}

// pushed publishes a module in the namespace of the test, and returns its address.
func pushed(t *testing.T, p *testkit.Platform, c *testkit.Cluster) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "main.tf", "output \"says\" { value = \"hello from the registry\" }\n")
	c.Terrier(t, "module", "push", dir, "--namespace", c.Namespace, "--name", "hello", "--system", "demo", "--version", "1.0.0")
	return strings.TrimPrefix(p.HTTP, "https://") + "/" + c.Namespace + "/hello/demo"
}

// LQ-20, LQ-24: a run without a network installs a module of its namespace from the registry,
// with a token that it is never shown; and none of another namespace.
func TestRunsReadFromTheRegistry(t *testing.T) {
	c := cluster(t)
	source := pushed(t, platform(t), c)
	c.Apply(t, offline("reader", source))
	c.AwaitReady(t, "reader")
	if got := c.Secret(t, "reader-outputs")["says"]; got != "hello from the registry" {
		t.Errorf("the output is %q", got)
	}
	if log := c.Terrier(t, "logs", "reader"); strings.Contains(log, "terrier-run.") {
		t.Errorf("the log has the token of the run:\n%s", log)
	}
	c.Apply(t, offline("stranger", strings.Replace(source, "/"+c.Namespace+"/", "/kube-system/", 1)))
	saysInReady(t, c, "stranger", "refused")
	saysInReady(t, c, "stranger", "let the group system:serviceaccounts:"+c.Namespace+" get")
}

// A pod reaches the registry by way of the controller, as it reaches everything.
func TestPodsReadFromTheRegistry(t *testing.T) {
	p, c, _, _ := runsAsPods(t)
	source := pushed(t, p, c)
	c.Apply(t, offline("reader", source))
	c.AwaitReady(t, "reader")
	if got := c.Secret(t, "reader-outputs")["says"]; got != "hello from the registry" {
		t.Errorf("the output is %q", got)
	}
	// The controller knows what the run has installed, also after a restart.
	awaitUse(t, c, source, "1.0.0")
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	awaitUse(t, c, source, "1.0.0")
}

// A tag of a GitRepository that registers a module is a version that a run installs.
func TestRunsReadModulesFromTags(t *testing.T) {
	c := cluster(t)
	g := testkit.NewGit(t)
	g.Commit(map[string]string{"hello/main.tf": "output \"says\" { value = \"hello from a tag\" }\n"})
	g.Do("tag", "hello/v1.0.0")
	g.Do("push", "--quiet", "origin", "hello/v1.0.0")
	c.Apply(t, g.Manifest("modules"))
	c.Kubectl(t, "annotate", "gitrepository/modules", "registry.terrier.dev/module={name}/demo", "registry.terrier.dev/tags={name}/{version}", "registry.terrier.dev/directory={name}")
	testkit.Eventually(t, testkit.Patience, "the tag is a version", func(context.Context) error {
		if out := c.Terrier(t, "module", "repositories", c.Namespace+"/modules"); !strings.Contains(out, "newest     1.0.0") {
			return errors.New(out)
		}
		return nil
	})
	c.Apply(t, offline("reader", strings.TrimPrefix(platform(t).HTTP, "https://")+"/"+c.Namespace+"/hello/demo"))
	c.AwaitReady(t, "reader")
	if got := c.Secret(t, "reader-outputs")["says"]; got != "hello from a tag" {
		t.Errorf("the output is %q", got)
	}
	awaitEvents(t, c, "modules", " VersionPublished ")
}
