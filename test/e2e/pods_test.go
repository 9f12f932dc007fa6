package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// runsAsPods gives the test a controller whose runs are pods, a kubelet that runs them,
// and a namespace and a world of the test's own.
func runsAsPods(t *testing.T, flags ...string) (*testkit.Platform, *testkit.Cluster, *testkit.World, *testkit.Kubelet) {
	t.Helper()
	return runsAsPodsOf(t, filepath.Join(testkit.Repository(t), "bin", "terrier-runner"), flags...)
}

// runsAsPodsOf is runsAsPods with another program in the pods, and flags of the controller.
func runsAsPodsOf(t *testing.T, program string, flags ...string) (*testkit.Platform, *testkit.Cluster, *testkit.World, *testkit.Kubelet) {
	t.Helper()
	p, c, k := podsOf(t, program, testkit.PlatformOptions{}, flags...)
	return p, c, p.World(t), k
}

// podsOf is runsAsPodsOf without a world, with other options of the platform.
func podsOf(t *testing.T, program string, o testkit.PlatformOptions, flags ...string) (*testkit.Platform, *testkit.Cluster, *testkit.Kubelet) {
	t.Helper()
	c := testkit.Kube(t, v1alpha2.AddToScheme, sourcev1.AddToScheme)
	k := testkit.StartKubelet(t, c, map[string]string{"terrier-runner": program})
	p, err := testkit.NewPlatform(testkit.PlatformOptions{
		Dir: filepath.Join(t.TempDir(), "platform"), Cluster: c, Elsewhere: o.Elsewhere,
		Flags: append([]string{"--lease=", "--runs-as", "pods", "--run-image", "terrier-runner", "--run-start-timeout", "4m"}, flags...),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s\nthe pods said:\n%s\nthe controller said:\n%s", c.Story(), k.Log(), p.Log())
		}
		c.Abandon(t)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p, c, k
}

// nothingLeft waits until no pod is there, and no Secret but those that a stack has
// wherever it runs.
func nothingLeft(t *testing.T, c *testkit.Cluster, k *testkit.Kubelet, secrets ...string) {
	t.Helper()
	here := client.InNamespace(c.Namespace)
	testkit.Eventually(t, testkit.Patience, "no pod is left", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := c.Client.List(ctx, &pods, here); err != nil {
			return err
		}
		if len(pods.Items) > 0 || len(k.Running()) > 0 {
			return fmt.Errorf("%d pods are there, and %v run", len(pods.Items), k.Running())
		}
		return nil
	})
	testkit.Eventually(t, testkit.Patience, "no other Secret is left", func(ctx context.Context) error {
		var all corev1.SecretList
		if err := c.Client.List(ctx, &all, here); err != nil {
			return err
		}
		var names []string
		for _, s := range all.Items {
			names = append(names, s.Name)
		}
		slices.Sort(names)
		if !slices.Equal(names, secrets) {
			return fmt.Errorf("the Secrets are %q, want %q", names, secrets) // one of a deleted stack is collected later
		}
		return nil
	})
}

// onlyPod is the name of the one pod that runs.
func onlyPod(t *testing.T, k *testkit.Kubelet) string {
	t.Helper()
	var running []string
	testkit.Eventually(t, testkit.Patience, "one pod runs", func(context.Context) error { // that of the run before may be ending
		if running = k.Running(); len(running) != 1 {
			return fmt.Errorf("there are %q", running)
		}
		return nil
	})
	return running[0]
}

// saysInReady waits until the Ready condition of a stack says something.
func saysInReady(t *testing.T, c *testkit.Cluster, name, what string) {
	t.Helper()
	c.Await(t, name, func(s *v1alpha2.Terraform) error {
		ready := meta.FindStatusCondition(s.Status.Conditions, "Ready")
		if ready == nil || !strings.Contains(ready.Message, what) {
			return fmt.Errorf("the condition does not say %q", what)
		}
		return nil
	})
}

// LQ-06: a stack is planned, approved, applied, checked and destroyed by pods, and after
// each run nothing of it is left in the cluster.
func TestRunsArePods(t *testing.T) {
	t.Parallel()
	_, c, w, k := runsAsPods(t)
	c.Apply(t, inline("stack", "interval: 1h\nwriteOutputsToSecret: {name: out}\ndestroyResourcesOnDeletion: true", chain(w, "x", "a", "b")))
	plan := c.AwaitPending(t, "stack").Status.Plan.Pending
	nothingLeft(t, c, k)
	c.Patch(t, "stack", `{"spec":{"approvePlan":"`+plan+`"}}`)
	c.AwaitReady(t, "stack")
	made(t, w, "a", "b")
	if got, want := c.Secret(t, "out")["last"], w.Named("b")[0].ID; got != want {
		t.Errorf("the outputs say %q, want %q", got, want)
	}
	nothingLeft(t, c, k, "out", "tfstate-default-stack")
	if n := k.Started(); n != 2 {
		t.Errorf("%d pods were started, want one for the plan and one for the apply", n)
	}
	c.Delete(t, "stack")
	c.AwaitGone(t, "stack")
	made(t, w)
	nothingLeft(t, c, k, "tfstate-default-stack")
}

// F03, F46: an apply in a pod outlives the controller, and the next one finds it.
func TestControllerKilledWhileAPodApplies(t *testing.T) {
	t.Parallel()
	p, c, w, k := runsAsPods(t)
	w.Fault(testkit.WorldFault{Call: "create", Name: "b", Do: "hold"})
	c.Apply(t, inline("stack", slowly, chain(w, "x", "a", "b", "c")))
	w.Await(t.Context(), begun("create", "b"))
	pod := onlyPod(t, k)
	kill(t, p)
	start(t, p)
	w.Fault()
	c.AwaitReady(t, "stack")
	made(t, w, "a", "b", "c")
	if n := k.Started(); n != 2 {
		t.Errorf("%d pods were started, want two: the apply in %s went on", n, pod)
	}
	nothingLeft(t, c, k, "out", "tfstate-default-stack")
}

// F10: an apply whose pod is evicted is interrupted once and keeps what it made. What is
// left is planned again.
func TestPodEvictedWhileApplying(t *testing.T) {
	t.Parallel()
	_, c, w, k := runsAsPods(t)
	w.Fault(testkit.WorldFault{Call: "create", Name: "b", Do: "delay", Delay: "3s", Times: 1, IgnoreStop: true})
	c.Apply(t, inline("stack", slowly, chain(w, "x", "a", "b", "c")))
	w.Await(t.Context(), begun("create", "b"))
	k.Evict(t, onlyPod(t, k))
	c.AwaitReady(t, "stack")
	made(t, w, "a", "b", "c")
	for _, name := range []string{"a", "b", "c"} {
		if n := began(w, "create", name); n != 1 {
			t.Errorf("%s was created %d times, want once", name, n)
		}
	}
	nothingLeft(t, c, k, "out", "tfstate-default-stack")
}

// F11: as long as a pod may go on, its run is not over. Once the pod is gone, what the
// run made is in the state or listed.
func TestNodeLostWhileApplying(t *testing.T) {
	// No parallel test: the command line would find the controller that started last.
	_, c, w, k := runsAsPods(t)
	w.Fault(testkit.WorldFault{Call: "create", Name: "b", Do: "hang", IgnoreStop: true, Times: 1})
	c.Apply(t, inline("stack", slowly, chain(w, "x", "a", "b", "c")))
	w.Await(t.Context(), begun("create", "b"))
	heard(t, c, "world_thing.a: Creation complete") // it was sent: what was not is lost with the node
	pod := onlyPod(t, k)
	k.LoseNode(t, pod)
	testkit.Eventually(t, testkit.Patience, "the node is lost", func(context.Context) error {
		if len(k.Running()) > 0 {
			return errNot("dead")
		}
		return nil
	})
	saysInReady(t, c, "stack", "does not answer, and the pod "+pod+" may go on there. Once the machine is certainly off, delete its Node")
	if n := k.Started(); n != 2 {
		t.Errorf("%d pods were started while the second may go on, want two", n)
	}
	k.Forget(t, pod)
	saysInReady(t, c, "stack", "world_thing.b")
	saysInReady(t, c, "stack", "was lost, with what the run had not sent yet")
	if n := k.Started(); n != 2 {
		t.Errorf("%d pods were started, want none after an apply that left something untracked", n)
	}
}

// An apply in a pod that a user cancels is interrupted once: what it created is in the
// state, the rest is not begun, and its pod is gone.
func TestCancelledApplyOfAPod(t *testing.T) {
	t.Parallel()
	_, c, w, k := runsAsPods(t)
	w.Fault(testkit.WorldFault{Call: "create", Name: "b", Do: "hang", Times: 1})
	c.Apply(t, inline("stack", "approvePlan: auto\ninterval: 1h\nretryInterval: 1s", chain(w, "x", "a", "b", "c")))
	w.Await(t.Context(), begun("create", "b"))
	run := ""
	c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if s.Status.Terrier == nil || s.Status.Terrier.Run == nil || s.Status.Terrier.Run.Kind != "apply" {
			return errNot("the run in the status")
		}
		run = s.Status.Terrier.Run.ID
		return nil
	})
	c.Patch(t, "stack", `{"metadata":{"annotations":{"terrier.dev/cancel":"`+run+`"}}}`)
	c.AwaitReason(t, "stack", "RunCancelled")
	nothingLeft(t, c, k, "tfstate-default-stack")
	if a, b, c := began(w, "create", "a"), began(w, "create", "b"), began(w, "create", "c"); a != 1 || b != 1 || c != 0 {
		t.Errorf("a, b and c were begun %d, %d and %d times, want once, once and never", a, b, c)
	}
}

// F35: no pod can be created in a namespace that is being deleted, so a stack in it is not
// destroyed there. It says so and stays, its namespace, too, until a user lets it go: then
// its resources are retained and recorded.
func TestDeletedNamespaceOfPods(t *testing.T) {
	t.Parallel()
	_, c, w, k := runsAsPods(t)
	c.Apply(t, inline("stack", kept, things(w, "x", "a")))
	c.AwaitReady(t, "stack")
	started := k.Started()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace}}
	if err := c.Client.Delete(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	saysInReady(t, c, "stack", "is being deleted, and the API server creates no pod in it: to let the stack go and retain its resources, annotate it with terrier.dev/deletion=retain")
	made(t, w, "a")
	c.Patch(t, "stack", `{"metadata":{"annotations":{"terrier.dev/deletion":"retain"}}}`)
	testkit.Eventually(t, testkit.Patience, "the namespace is gone", func(ctx context.Context) error {
		err := c.Client.Get(ctx, client.ObjectKeyFromObject(ns), ns)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errNot("gone"))
	})
	made(t, w, "a")
	if n := k.Started(); n != started {
		t.Errorf("%d pods were started after the deletion, want none", n-started)
	}
}

// LQ-03: a quota that is used up is a wait. The stack says so, and goes on once there is
// room.
func TestQuotaIsAWait(t *testing.T) {
	t.Parallel()
	_, c, w, k := runsAsPods(t)
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "terraform-runners"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
	}
	if err := c.Client.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.Patience, "the quota is in force", func(ctx context.Context) error {
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(quota), quota); err != nil {
			return err
		}
		if _, ok := quota.Status.Hard[corev1.ResourcePods]; !ok {
			return errNot("counted")
		}
		return nil
	})
	c.Apply(t, inline("stack", slowly, chain(w, "x", "a")))
	saysInReady(t, c, "stack", "the ResourceQuota of the namespace "+c.Namespace+" has no room for the pod of the run: exceeded quota: terraform-runners")
	if s := c.Stack(t, "stack"); s.Status.ReconciliationFailures != 0 {
		t.Errorf("%d failures are counted, want none", s.Status.ReconciliationFailures)
	}
	if err := c.Client.Delete(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	c.AwaitReady(t, "stack")
	made(t, w, "a")
	nothingLeft(t, c, k, "out", "tfstate-default-stack")
}

// LQ-03: a pod that no node has room for gives its turn to another stack. Its stack says
// what is missing, has no failure, and is applied once a user makes room.
func TestPodWithoutANodeGivesItsTurnBack(t *testing.T) {
	t.Parallel()
	_, c, w, _ := runsAsPods(t, "--max-runs", "1", "--run-node-timeout", "1s")
	const auto = "approvePlan: auto\ninterval: 1h\nretryInterval: 1s"
	c.Apply(t, inline("far", auto+"\nrunnerPodTemplate: {spec: {nodeSelector: {disk: fast}}}", chain(w, "x", "a")))
	saysInReady(t, c, "far", "waits for a node: 0/1 nodes are available")
	c.Apply(t, inline("near", auto, chain(w, "y", "b")))
	c.AwaitReady(t, "near")
	saysInReady(t, c, "far", "didn't match Pod's node affinity/selector. Other runs have its turn until it is tried again")
	if s := c.Stack(t, "far"); s.Status.ReconciliationFailures != 0 {
		t.Errorf("%d failures are counted, want none", s.Status.ReconciliationFailures)
	}
	c.Patch(t, "far", `{"spec":{"runnerPodTemplate":null}}`)
	c.AwaitReady(t, "far")
	made(t, w, "a", "b")
	if n := began(w, "create", "a"); n != 1 {
		t.Errorf("a was created %d times, want once", n)
	}
}

// A registry of images that is out gives the turn of a pod to another stack, and is no
// failure. An image that the registry does not have is one, if the stack chose it. A corrected
// image is tried at once, whatever the retry interval is.
func TestPodWithoutItsImage(t *testing.T) {
	t.Parallel()
	_, c, w, k := runsAsPods(t, "--max-runs", "1", "--run-node-timeout", "1s")
	k.Answer("dial tcp 192.0.2.1:443: connect: connection refused")
	const auto = "approvePlan: auto\ninterval: 1h\nretryInterval: 1h"
	c.Apply(t, inline("stack", auto+"\nrunnerPodTemplate: {spec: {image: \"registry.example/own:1\"}}", chain(w, "x", "a")))
	saysInReady(t, c, "stack", "waits for its image registry.example/own:1 (ImagePullBackOff)")
	c.Apply(t, inline("other", auto, chain(w, "y", "b")))
	c.AwaitReady(t, "other")
	saysInReady(t, c, "stack", "the pod may pull it. Other runs have its turn until it is tried again")
	if s := c.Stack(t, "stack"); s.Status.ReconciliationFailures != 0 {
		t.Errorf("%d failures are counted, want none", s.Status.ReconciliationFailures)
	}
	k.Answer("rpc error: code = NotFound desc = registry.example/own:2: not found")
	c.Patch(t, "stack", `{"spec":{"runnerPodTemplate":{"spec":{"image":"registry.example/own:2"}}}}`)
	saysInReady(t, c, "stack", "nothing ran: the pod")
	saysInReady(t, c, "stack", "Correct the image in spec.runnerPodTemplate")
	if s := c.Stack(t, "stack"); s.Status.ReconciliationFailures == 0 {
		t.Errorf("%d failures are counted, want at least one", s.Status.ReconciliationFailures)
	}
	c.Patch(t, "stack", `{"spec":{"runnerPodTemplate":null}}`)
	c.AwaitReady(t, "stack")
	made(t, w, "a", "b")
}

// A pod that finds no node is no silent wait, and its run can be cancelled.
func TestPodWithoutANodeSaysSo(t *testing.T) {
	t.Parallel()
	_, c, w, k := runsAsPods(t)
	k.Fill("0/3 nodes are available: 3 Insufficient cpu.")
	c.Apply(t, inline("stack", slowly, chain(w, "x", "a")))
	saysInReady(t, c, "stack", "waits for a node: 0/3 nodes are available: 3 Insufficient cpu.")
	c.Delete(t, "stack")
	c.AwaitGone(t, "stack")
	nothingLeft(t, c, k)
	if n := k.Started(); n != 0 {
		t.Errorf("%d pods were started, want none", n)
	}
}

// A quiet check in a pod takes one engine process: what init made is kept for it. A new
// revision is initialised once.
func TestQuietCheckInAPodRunsNoInit(t *testing.T) {
	t.Parallel()
	p, c, w, _ := runsAsPods(t)
	c.Apply(t, inline("stack", "approvePlan: auto\ninterval: 1s", chain(w, "x", "a")))
	s := c.AwaitReason(t, "stack", "NoDrift")
	quiet := func() runner.Report {
		t.Helper()
		var report runner.Report
		testkit.Eventually(t, testkit.Patience, "a check ran no init", func(context.Context) error {
			if err := json.Unmarshal(p.Record(t, "stacks/"+string(s.UID)+"/runs/check/report.json"), &report); err != nil {
				return err
			}
			if !report.InitSkipped {
				return fmt.Errorf("the last check took the steps %+v", report.Steps)
			}
			return nil
		})
		return report
	}
	report := quiet()
	var engines []string
	for _, step := range report.Steps {
		if !strings.HasPrefix(step.Name, "provider ") {
			engines = append(engines, step.Name)
		}
	}
	if !slices.Equal(engines, []string{"plan"}) || report.LockHash == "" {
		t.Errorf("a quiet check took the engine processes %v with the lock file %q, want one plan with that of the plan", engines, report.LockHash)
	}
	before := c.Stack(t, "stack").ResourceVersion
	quiet()
	if after := c.Stack(t, "stack").ResourceVersion; after != before {
		t.Errorf("the object went from version %s to %s while nothing happened", before, after)
	}
}

// LQ-20: the pods take their providers from a cache on a volume, and need no network for them.
// A package of it that the operator does not name is not used.
func TestProvidersOfACacheOnAVolume(t *testing.T) {
	t.Parallel()
	bin := filepath.Join(testkit.Repository(t), "bin")
	image := t.TempDir() // with no mirror beside the program
	for _, name := range []string{"terrier-runner", "tofu"} {
		// No links: a link changes the engine's inode, and other tests run with that engine.
		program, err := os.ReadFile(filepath.Join(bin, name))
		if err := errors.Join(err, os.WriteFile(filepath.Join(image, name), program, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	const address = "registry.opentofu.org/terrier-iac/world"
	hash, err := archive.HashPackage(os.DirFS(filepath.Join(bin, "mirror", address, "0.1.0", runtime.GOOS+"_"+runtime.GOARCH)))
	if err != nil {
		t.Fatal(err)
	}
	lock := filepath.Join(t.TempDir(), "lock.hcl")
	name := func(hash string) {
		t.Helper()
		if err := os.WriteFile(lock, fmt.Appendf(nil, "provider %q {\n  version = \"0.1.0\"\n  hashes = [\n    %q,\n  ]\n}\n", address, hash), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	name(hash)
	_, c, w, _ := runsAsPodsOf(t, filepath.Join(image, "terrier-runner"), "--provider-registries=false",
		"--run-provider-cache", `{"hostPath": {"path": "`+filepath.Join(bin, "mirror")+`"}}`, "--run-provider-lock", lock)
	c.Apply(t, inline("stack", slowly, chain(w, "x", "a")))
	c.AwaitReady(t, "stack")
	made(t, w, "a")
	name("h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
	c.Apply(t, inline("other", slowly, chain(w, "y", "b")))
	saysInReady(t, c, "other", "the provider cache has another package of "+address+" than --run-provider-lock names")
	made(t, w, "a")
}
