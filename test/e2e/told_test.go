package e2e

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// toldBy waits until kubectl warns of a manifest with these words, and stores nothing of it.
func toldBy(t *testing.T, c *testkit.Cluster, manifest string, want ...string) {
	t.Helper()
	file := manifestFile(t, manifest)
	testkit.Eventually(t, testkit.Patience, "kubectl warns", func(context.Context) error {
		said, ok := kubectl(t, c, "apply", "--dry-run=server", "-f", file)
		for _, w := range want {
			if !ok || !strings.Contains(said, "Warning: "+w) {
				return errNot("told " + w + ": " + said)
			}
		}
		return nil
	})
}

// What policies have against every plan of a stack is told when it is applied: source kinds,
// versions, times, and guards that mean nothing. It is stored all the same, and the plan is
// judged later.
func TestKubectlIsToldWhatPoliciesSay(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	asked(t, c)
	name := policed(t, c, `guards: {freezes: [{from: '2020-01-01T00:00:00Z', to: '2099-01-01T00:00:00Z', reason: release}]}
rego:
  modules:
    policy.rego: |
      package terrier
      deny contains {"rule": "source-kind", "msg": sprintf("the source is a %s: use an OCIRepository", [input.source.kind])} if input.source.kind != "OCIRepository"
      hold contains {"rule": "source-version", "msg": sprintf("the source follows the branch %s", [input.source.branch])} if input.source.branch != ""
      hold contains {"rule": "nothing", "msg": "the plan changes nothing"} if count(input.changes) == 0`)
	c.Apply(t, "apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {name: code}\nspec: {interval: 1h, suspend: true, url: 'https://git.example.com/code.git', ref: {branch: main}}\n")
	const stack = "apiVersion: infra.contrib.fluxcd.io/v1alpha2\nkind: Terraform\nmetadata: {name: net}\nspec: {interval: 1h, suspend: true, sourceRef: {kind: GitRepository, name: code}}\n"
	toldBy(t, c, stack,
		name+" denies every plan of this stack: source-kind: the source is a GitRepository: use an OCIRepository",
		name+" holds every plan of this stack until it is approved: source-version: the source follows the branch main",
		"no plan of this stack is applied now, by "+name+": nothing is applied from 2020-01-01T00:00:00Z to 2099-01-01T00:00:00Z: release",
	)
	said, ok := kubectl(t, c, "apply", "-f", manifestFile(t, stack))
	if !ok || strings.Contains(said, "changes nothing") || strings.Count(said, "Warning") != 3 {
		t.Errorf("kubectl says %q, want that it takes the stack, with three warnings", said)
	}
	// A change that is none, and the writes of Terrier, are not asked about.
	if said, ok := kubectl(t, c, "label", "terraforms.infra.contrib.fluxcd.io", "net", "a=b"); !ok || strings.Contains(said, "Warning") {
		t.Errorf("kubectl says %q of a label", said)
	}
	// An approval is told that it waits, and a guard that is none what was meant.
	if said, ok := kubectl(t, c, "patch", "terraforms.infra.contrib.fluxcd.io", "net", "--type=merge", "-p", `{"spec":{"approvePlan":"plan-x"}}`); !ok || !strings.Contains(said, "Warning: no plan of this stack is applied now") {
		t.Errorf("kubectl says %q of an approval", said)
	}
	if said, ok := kubectl(t, c, "annotate", "terraforms.infra.contrib.fluxcd.io", "net", "guard.terrier.dev/maxDestroy=0"); !ok || !strings.Contains(said, "Warning: the annotation guard.terrier.dev/maxDestroy is no guard; it may be guard.terrier.dev/maxDestroys") {
		t.Errorf("kubectl says %q of a guard that is none", said)
	}
	policed(t, c, "guards: {windows: [{from: '08:00', to: '18:00', timeZone: Europe/Berlen}]}")
	toldBy(t, c, strings.Replace(stack, "name: net", "name: other", 1), name+` cannot be evaluated, and holds every plan of this stack: spec.guards.windows[0].timeZone: is "Europe/Berlen"`)
}

// What is wrong with a policy is told when it is applied, with the field: parameters that a
// policy of the library does not take, a program that does not compile, a source that does not
// exist. The policy is stored all the same.
func TestKubectlIsToldWhatIsWrongWithAPolicy(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	asked(t, c)
	text, err := os.ReadFile("../../policies/required-tags/policy.rego")
	if err != nil {
		t.Fatal(err)
	}
	of := func(spec string) string {
		return "apiVersion: policy.terrier.dev/v1alpha1\nkind: ClusterPolicy\nmetadata: {name: " + c.Namespace + "-told}\nspec:\n  selector: {namespaces: [nowhere-" + c.Namespace + "]}\n" + indent(2, spec) + "\n"
	}
	library := func(parameters string) string {
		return "rego:\n  parameters: " + parameters + "\n  modules:\n    policy.rego: |\n" + indent(6, string(text))
	}
	toldBy(t, c, of(library("{tag: [owner]}")), "spec.rego.parameters.tag: the policy has no such parameter; it has effect, exempt_types, patterns and tags. Until this is corrected, every plan of a stack that the policy selects is held")
	toldBy(t, c, of(library("{tags: [owner], effect: stop}")), `spec.rego.parameters.effect: is "stop", and must be one of deny, hold and warn`)
	toldBy(t, c, of("onError: Deny\nrego:\n  modules:\n    policy.rego: |\n      package terrier\n      deny contains http.send({})"), "spec.rego: compiling the policy: ")
	toldBy(t, c, of("rego:\n  sourceRef: {kind: GitRepository, namespace: "+c.Namespace+", name: none}"), "spec.rego.sourceRef: ")
	toldBy(t, c, of("guards: {windows: [{from: '08:00', to: '18:00', timeZone: Europe/Berlen}]}"), `spec.guards.windows[0].timeZone: is "Europe/Berlen"`)
	if said, ok := kubectl(t, c, "apply", "--dry-run=server", "-f", manifestFile(t, of(library("{tags: [owner]}")))); !ok || strings.Contains(said, "Warning") {
		t.Errorf("kubectl says %q of a policy that is right", said)
	}
}

// A deletion that destroys resources is told what it waits for; one that destroys nothing is
// not.
func TestKubectlIsToldOfProtectedDeletions(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	asked(t, c)
	c.Apply(t, inline("gone", "approvePlan: auto\ninterval: 1h\ndestroyResourcesOnDeletion: true", things(w, "1", "gone")))
	c.Apply(t, inline("kept", "approvePlan: auto\ninterval: 1h", things(w, "1", "kept")))
	c.AwaitReady(t, "gone")
	c.AwaitReady(t, "kept")
	name := policed(t, c, "guards: {maxDestroys: 0, windows: [{days: [Mon], from: '00:00', to: '00:01'}]}")
	testkit.Eventually(t, testkit.Patience, "kubectl warns", func(context.Context) error {
		said, ok := kubectl(t, c, "delete", "--dry-run=server", "terraforms.infra.contrib.fluxcd.io", "gone")
		for _, want := range []string{
			"the destroy is planned first, and " + name + " judges the plan: if it is held, the object stays until a user approves it",
			"to let the object go and keep its resources, annotate it with terrier.dev/deletion=retain",
		} {
			if !ok || !strings.Contains(said, "Warning: "+want) {
				return errNot("told " + want + ": " + said)
			}
		}
		return nil
	})
	if said, ok := kubectl(t, c, "delete", "--dry-run=server", "terraforms.infra.contrib.fluxcd.io", "kept"); !ok || strings.Contains(said, "Warning") {
		t.Errorf("kubectl says %q of a deletion that destroys nothing", said)
	}
	c.Patch(t, "gone", `{"metadata":{"annotations":{"terrier.dev/deletion":"retain"}}}`)
	if said, ok := kubectl(t, c, "delete", "--dry-run=server", "terraforms.infra.contrib.fluxcd.io", "gone"); !ok || strings.Contains(said, "Warning") {
		t.Errorf("kubectl says %q of a deletion that retains the resources", said)
	}
}

// The manifests of the talk are accepted as they are, also where policies select their stack.
// What these have against it is told: a source that follows a range, in production.
func TestManifestsOfTheTalk(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	asked(t, c)
	text, err := os.ReadFile("testdata/talk.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rule, err := os.ReadFile("../../policies/fixed-versions/policy.rego")
	if err != nil {
		t.Fatal(err)
	}
	name := policed(t, c, "guards: {maxDestroys: 0, protected: [{types: ['aws_db_*']}]}\nrego:\n  parameters: {environments: ['*']}\n  modules:\n    policy.rego: |\n"+indent(6, string(rule)))
	parts := strings.Split(string(text), "\n---\n")
	source, stack := parts[2], parts[3]
	c.Kubectl(t, "apply", "-f", manifestFile(t, strings.Replace(source, "\nspec:", "\nspec:\n  suspend: true", 1)))
	toldBy(t, c, stack, name+" denies every plan of this stack: source-version: the source follows the range ${version_foo_tf}: name one version, or a digest")
	out := c.Kubectl(t, "apply", "--dry-run=server", "-f", "testdata/talk.yaml")
	for _, want := range []string{"configmap/service-versions", "configmap/init", "ocirepository.source.toolkit.fluxcd.io/foo-iac", "terraform.infra.contrib.fluxcd.io/foo", "priorityclass.scheduling.k8s.io/terraform", "resourcequota/terraform-runners"} {
		if !strings.Contains(out, want) {
			t.Errorf("kubectl says\n%s\nwant %s in it", out, want)
		}
	}
}
