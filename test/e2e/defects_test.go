package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// The tests of this file are named in docs/defects.md: each shows that Terrier
// does not have a defect of the field for which no other test stands.

// A finalizer that names a dependant without its namespace is shared by two
// dependants of one name. Here both count, and the last one takes it off.
func TestDependantsOfOneNameAreTwo(t *testing.T) {
	t.Parallel()
	p := testkit.Up(t, "--allow-cross-namespace-refs")
	c, far := p.Cluster(t), p.Cluster(t)
	c.Apply(t, inline("base", "approvePlan: auto\ninterval: 1h", "resource \"terraform_data\" \"it\" {}"))
	c.AwaitReady(t, "base")
	for _, at := range []*testkit.Cluster{c, far} {
		at.Apply(t, inline("app", "approvePlan: auto\ninterval: 1h\ndependsOn: [{name: base, namespace: "+c.Namespace+"}]", "resource \"terraform_data\" \"it\" {}"))
		at.AwaitReady(t, "app")
	}
	c.Patch(t, "base", `{"metadata":{"finalizers":["finalizers.tf.contrib.fluxcd.io","tf.dependency.of.app"]}}`)
	c.Delete(t, "app")
	c.AwaitGone(t, "app")
	c.Delete(t, "base")
	s := c.AwaitReason(t, "base", "DeletionBlockedByDependantsReason")
	if !strings.Contains(message(s), far.Namespace+"/app") || !slices.Contains(s.Finalizers, "tf.dependency.of.app") {
		t.Errorf("the message is %q and the finalizers are %v; want the other app to be waited for", message(s), s.Finalizers)
	}
	far.Delete(t, "app")
	far.AwaitGone(t, "app")
	c.AwaitGone(t, "base")
}

// An object that only a foreign finalizer holds is left alone: nothing is done with
// it any more, and nothing is added.
func TestOtherFinalizersHoldNothingUp(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("stack", kept, things(w, "x", "a")))
	c.AwaitReady(t, "stack")
	c.Patch(t, "stack", `{"metadata":{"finalizers":["finalizers.tf.contrib.fluxcd.io","example.com/held"]}}`)
	c.Delete(t, "stack")
	held := c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if !slices.Equal(s.Finalizers, []string{"example.com/held"}) {
			return fmt.Errorf("the finalizers are %v", s.Finalizers)
		}
		return nil
	})
	made(t, w)
	// Both wake the controller. By the time the second stack is ready it has seen
	// the first.
	c.Patch(t, "stack", `{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"now"}}}`)
	touched := c.Stack(t, "stack")
	c.Apply(t, inline("after", kept, things(w, "x", "b")))
	c.AwaitReady(t, "after")
	s := c.Stack(t, "stack")
	if s.ResourceVersion != touched.ResourceVersion || !slices.Equal(s.Finalizers, held.Finalizers) {
		t.Errorf("the object was written again: its finalizers are %v and its conditions %+v", s.Finalizers, s.Status.Conditions)
	}
	if n := began(w, "create", "a"); n != 1 {
		t.Errorf("a was made %d times", n)
	}
	c.Patch(t, "stack", `{"metadata":{"finalizers":null}}`)
	c.AwaitGone(t, "stack")
}

// Outputs that are renamed or typed are not taken for others than those that
// were written.
func TestRenamedOutputsAreQuiet(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("stack", "approvePlan: auto\ninterval: 1s\nwriteOutputsToSecret: {name: out, outputs: [\"id:thing.id\", list]}", things(w, "x", "a")+`
output "id"   { value = world_thing.a.id }
output "list" { value = [world_thing.a.name] }
`))
	c.AwaitReady(t, "stack")
	var before corev1.Secret
	c.Get(t, "out", &before)
	awaitChecks(t, w, 4)
	var after corev1.Secret
	c.Get(t, "out", &after)
	if after.ResourceVersion != before.ResourceVersion {
		t.Errorf("the Secret was written again, from %v to %v", before.Data, after.Data)
	}
	if s := c.AwaitReason(t, "stack", "NoDrift"); s.Status.ReconciliationFailures != 0 {
		t.Errorf("%d failures", s.Status.ReconciliationFailures)
	}
}

// A first apply with outputs and a readable plan writes the object a few times,
// each for something that a person would want to see.
func TestAnApplyCostsFewWrites(t *testing.T) {
	c := cluster(t)
	scheme := runtime.NewScheme()
	if err := v1alpha2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	watching, err := client.NewWithWatch(c.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	seen, err := watching.Watch(t.Context(), &v1alpha2.TerraformList{}, client.InNamespace(c.Namespace))
	if err != nil {
		t.Fatal(err)
	}
	defer seen.Stop()
	c.Apply(t, inline("stack", "approvePlan: auto\ninterval: 1h\nstoreReadablePlan: human\nwriteOutputsToSecret: {name: out}", "resource \"terraform_data\" \"it\" { input = 1 }\noutput \"it\" { value = terraform_data.it.output }\n"))
	settled := c.AwaitReason(t, "stack", "TerraformOutputsWritten").ResourceVersion
	var phases []string
	for e := range seen.ResultChan() {
		s, ok := e.Object.(*v1alpha2.Terraform)
		if !ok {
			t.Fatalf("the watch says %+v", e.Object)
		}
		if s.Status.Terrier != nil {
			phases = append(phases, s.Status.Terrier.Phase)
		}
		if s.ResourceVersion == settled {
			break
		}
	}
	if len(phases) == 0 || len(phases) > 8 {
		t.Errorf("the status was written %d times: %v", len(phases), phases)
	}
}

// Nothing waits for a run: while as many go on as may, the next object is
// answered at once, and those that wait for a turn say so.
func TestRunsHoldNothingUp(t *testing.T) {
	c := cluster(t)
	dir := platform(t).Shared(t)
	gate := filepath.Join(dir, "gate")
	for i := range 6 {
		c.Apply(t, inline(fmt.Sprintf("slow-%d", i), "approvePlan: auto\ninterval: 1h", fmt.Sprintf(`
resource "terraform_data" "it" {
  provisioner "local-exec" {
    command = "touch %s/$NAME; while ! test -e %s; do sleep 0.1; done"
    environment = { NAME = "started-%d" }
  }
}
`, dir, gate, i)))
	}
	testkit.Eventually(t, testkit.Patience, "four applies go on", func(context.Context) error {
		started, err := filepath.Glob(filepath.Join(dir, "started-*"))
		if err == nil && len(started) < 4 {
			err = fmt.Errorf("%d applies", len(started))
		}
		return err
	})
	c.Apply(t, inline("wrong", "approvePlan: auto\nworkspace: a/b", "resource \"terraform_data\" \"it\" {}"))
	c.AwaitReason(t, "wrong", "SpecInvalid")
	c.Apply(t, inline("unbuilt", "approvePlan: auto\nsuspend: true", "resource \"terraform_data\" \"it\" {}"))
	c.Delete(t, "unbuilt")
	c.AwaitGone(t, "unbuilt")
	if _, err := os.Stat(gate); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the gate is open: %v", err)
	}
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		c.AwaitReady(t, fmt.Sprintf("slow-%d", i))
	}
}

// A module is given nothing that opens the cluster, and nothing is kept in the
// namespace of a stack for runs to find.
func TestRunsHoldNoCredential(t *testing.T) {
	c := cluster(t)
	seen := filepath.Join(platform(t).Shared(t), "seen")
	c.Apply(t, inline("stack", "approvePlan: auto\ninterval: 1h", `
resource "terraform_data" "it" {
  provisioner "local-exec" {
    command = "{ env; ls -d /var/run/secrets ~/.kube /etc/kubernetes `+platform(t).Dir+`/* 2>/dev/null; } > `+seen+`; true"
  }
}
`))
	c.AwaitReady(t, "stack")
	all := read(t, seen)
	if !strings.Contains(all, "PATH=") {
		t.Fatalf("a run sees no environment: %q", all)
	}
	for line := range strings.Lines(all) {
		for _, sign := range []string{"KUBE", "TOKEN", "SECRET", "/var/run/secrets", ".kube", "/etc/kubernetes", platform(t).Dir + "/secrets", platform(t).Dir + "/kubeconfig"} {
			if strings.Contains(strings.TrimPrefix(line, "PWD="), sign) {
				t.Errorf("a run sees %s", line)
			}
		}
	}
	var secrets corev1.SecretList
	if err := c.Client.List(t.Context(), &secrets, client.InNamespace(c.Namespace)); err != nil {
		t.Fatal(err)
	}
	for _, s := range secrets.Items {
		if s.Name != "tfstate-default-stack" {
			t.Errorf("the namespace holds the Secret %s", s.Name)
		}
	}
}

// A program that writes whole objects does not turn a false back to true.
func TestFalseSurvivesGoClients(t *testing.T) {
	c := cluster(t)
	no := false
	s := &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "stack"}}
	s.Spec.Suspend, s.Spec.UpgradeOnInit = true, &no
	s.Spec.SourceRef = &v1alpha2.SourceRef{Kind: "GitRepository", Name: "none"}
	if err := c.Client.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		s.Spec.Path = "./elsewhere"
		return c.Client.Update(t.Context(), s)
	})
	if got := c.Stack(t, "stack").Spec; got.UpgradeOnInit == nil || *got.UpgradeOnInit || got.Path != "./elsewhere" {
		text, _ := json.Marshal(got)
		t.Errorf("the spec is %s", text)
	}
}

// Those who wait for each other are told so, and whom they wait for; and they
// can be deleted.
func TestCircularDependenciesAreNamed(t *testing.T) {
	c := cluster(t)
	for name, on := range map[string]string{"first": "second", "second": "third", "third": "first"} {
		c.Apply(t, inline(name, "approvePlan: auto\ninterval: 1h\ndependsOn: [{name: "+on+"}]", "resource \"terraform_data\" \"it\" {}"))
	}
	for _, name := range []string{"first", "second", "third"} {
		s := c.Await(t, name, func(s *v1alpha2.Terraform) error {
			if !strings.Contains(message(s), "cycle") {
				return errNot("a word of a cycle")
			}
			return testkit.HasReason("DependencyNotReady")(s)
		})
		for _, other := range []string{"first", "second", "third"} {
			if !strings.Contains(message(s), c.Namespace+"/"+other) {
				t.Errorf("%s says %q, want it to name %s", name, message(s), other)
			}
		}
	}
	c.Kubectl(t, "delete", "terraforms", "--all", "--wait=false")
	for _, name := range []string{"first", "second", "third"} {
		c.AwaitGone(t, name) // no order would be right, and none is waited for
	}
}

// A program that knows only the older version of the API removes nothing.
func TestNothingIsLostThroughV1alpha1(t *testing.T) {
	c := cluster(t)
	c.Apply(t, inline("stack", "suspend: true\nplanOnly: true\nremediation: {retries: 3}\nretryStrategy: ExponentialBackoff\nmaxRetryInterval: 1h\nupgradeOnInit: false\nplan: {lock: false}", "resource \"terraform_data\" \"it\" {}"))
	before := c.Stack(t, "stack")
	old := filepath.Join(t.TempDir(), "old.yaml")
	testkit.Eventually(t, testkit.Patience, "the object is replaced", func(context.Context) error { // the controller may write its status in between
		text := c.Kubectl(t, "get", "terraforms.v1alpha1.infra.contrib.fluxcd.io", "stack", "-o", "yaml")
		if err := os.WriteFile(old, []byte(strings.Replace(text, "  suspend: true\n", "  suspend: true\n  path: \"\"\n  parallelism: 2\n", 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if said, ok := kubectl(t, c, "replace", "-f", old); !ok {
			return errNot("replaced: " + said)
		}
		return nil
	})
	after := c.Stack(t, "stack")
	if after.Spec.Parallelism != 2 {
		t.Fatalf("the update through v1alpha1 had no effect: %+v", after.Spec)
	}
	after.Spec.Parallelism = 0
	if diff := cmp.Diff(before.Spec, after.Spec); diff != "" {
		t.Errorf("the spec (-before +after):\n%s", diff)
	}
}
