package e2e

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/testkit"
)

const kept = "approvePlan: auto\ninterval: 1h\ndestroyResourcesOnDeletion: true"

// P7: a destroy uses the snapshot of the last apply.
func TestDeleteNeedsNothingThatWasDeletedFirst(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	g := testkit.NewGit(t)
	g.Commit(map[string]string{"main.tf": w.HCL() + `
variable "secret" {}
variable "plain" {}
resource "world_thing" "a" {
  name   = "a"
  value  = var.plain
  secret = var.secret
}
`})
	c.PutSecret(t, "inputs", map[string]string{"secret": "s3cret"})
	c.Apply(t, g.Manifest("code")+`---
apiVersion: v1
kind: ConfigMap
metadata: {name: inputs}
data: {plain: hello}
---
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: stack}
spec:
  approvePlan: auto
  interval: 1h
  destroyResourcesOnDeletion: true
  sourceRef: {kind: GitRepository, name: code}
  varsFrom:
  - {kind: Secret, name: inputs}
  - {kind: ConfigMap, name: inputs}
`)
	c.AwaitReady(t, "stack")
	if len(w.Named("a")) != 1 {
		t.Fatalf("the world holds %+v, want a", w.Things())
	}
	c.Kubectl(t, "delete", "gitrepository/code", "secret/code-login", "secret/inputs", "configmap/inputs")
	w.Fault(testkit.WorldFault{Call: "delete", Do: "hold"})
	c.Delete(t, "stack")
	w.Await(t.Context(), begun("delete", "a"))
	if s := c.Stack(t, "stack"); len(s.Finalizers) == 0 {
		t.Error("the finalizer went before the thing did")
	}
	w.Fault()
	c.AwaitGone(t, "stack")
	if left := w.Things(); len(left) != 0 {
		t.Errorf("the stack is gone and the world holds %+v", left)
	}

	// What the destroy did can be read, by users who might have read it before.
	r := c.TryTerrier(t, "logs", "stack")
	if r.Code != 0 || !strings.Contains(r.Stdout, "world_thing.a: Destruction complete") || !strings.Contains(r.Stderr, "The stack "+c.Namespace+"/stack is gone since 20") {
		t.Errorf("terrier logs of the deleted stack ended with %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
	if r := c.TryTerrier(t, "runs", "stack"); r.Code != 0 || !strings.Contains(r.Stdout, "destroy-") || strings.Contains(r.Stdout, "apply-") {
		t.Errorf("terrier runs of the deleted stack ended with %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
	if r := c.TryTerrier(t, "logs", "stack", "--run", "apply-1"); r.Code == 0 || !strings.Contains(r.Stderr, "of the deleted stack "+c.Namespace+"/stack only the last run is kept") {
		t.Errorf("terrier logs of another run ended with %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
	if r := c.TryTerrier(t, "logs", "never"); r.Code == 0 || !strings.Contains(r.Stderr, "never does not exist") {
		t.Errorf("terrier logs of a stack that never was ended with %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
}

func TestDestroyThatFailsIsTriedAgain(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("stack", kept+"\nretryInterval: 1s", things(w, "x", "a", "b")))
	c.AwaitReady(t, "stack")
	w.Fault(testkit.WorldFault{Call: "delete", Name: "a", Do: "fail"})
	c.Delete(t, "stack")
	s := c.AwaitReason(t, "stack", "TFExecApplyFailed")
	if !strings.Contains(message(s), "as told") || len(s.Finalizers) == 0 {
		t.Errorf("the message is %q and the finalizers are %v; want the provider's words, and the stack held", message(s), s.Finalizers)
	}
	w.Fault()
	c.AwaitGone(t, "stack")
	made(t, w)
}

func TestDeleteWaitsForDependents(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("below", kept, things(w, "x", "below")))
	c.Apply(t, inline("above", kept+"\ndependsOn: [{name: below}]", things(w, "x", "above")))
	c.AwaitReady(t, "above")
	c.Delete(t, "below")
	s := c.AwaitReason(t, "below", "DeletionBlockedByDependantsReason")
	if len(s.Finalizers) == 0 || len(w.Named("below")) != 1 {
		t.Errorf("the dependency has the finalizers %v, and the world holds %+v", s.Finalizers, w.Things())
	}
	c.Delete(t, "above")
	c.AwaitGone(t, "above")
	c.AwaitGone(t, "below")
	var order []string
	for _, call := range w.Calls() {
		if call.Call == "delete" && call.Phase == "done" {
			order = append(order, call.Name)
		}
	}
	if !slices.Equal(order, []string{"above", "below"}) {
		t.Errorf("taken down in the order %v", order)
	}
}

func TestSuspendedStackCanBeDeleted(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("stack", kept, things(w, "x", "a")))
	c.AwaitReady(t, "stack")
	c.Patch(t, "stack", `{"spec":{"suspend":true}}`)
	c.Delete(t, "stack")
	c.AwaitGone(t, "stack")
	if left := w.Things(); len(left) != 0 {
		t.Errorf("the world holds %+v", left)
	}
}

func TestDeleteRetainsResourcesUnlessTold(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("stack", "approvePlan: auto", things(w, "x", "a")))
	c.AwaitReady(t, "stack")
	c.Delete(t, "stack")
	c.AwaitGone(t, "stack")
	if left := w.Named("a"); len(left) != 1 {
		t.Errorf("the world holds %+v, want a", left)
	}
	if !c.Exists(t, "tfstate-default-stack", &corev1.Secret{}) {
		t.Error("the state went with the stack, and with it the knowledge of what exists")
	}
}

// F35: the deletion of a namespace leaves nothing half destroyed.
func TestDeletedNamespaceIsDestroyedFirst(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	c.PutSecret(t, "inputs", map[string]string{"secret": "s3cret"})
	c.Apply(t, inline("stack", kept+"\nvarsFrom: [{kind: Secret, name: inputs}]", "variable \"secret\" {}\n"+things(w, "x", "a")))
	c.AwaitReady(t, "stack")
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace}}
	if err := c.Client.Delete(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.Patience, "the namespace is gone", func(ctx context.Context) error {
		err := c.Client.Get(ctx, client.ObjectKeyFromObject(ns), ns)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New(string(ns.Status.Phase)))
	})
	if left := w.Things(); len(left) != 0 {
		t.Errorf("the namespace is gone and the world holds %+v", left)
	}
}

// F36: never both at once.
func TestDeleteDuringApplyLetsItFinish(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	w.Fault(testkit.WorldFault{Call: "create", Name: "a", Do: "hold"})
	c.Apply(t, inline("stack", kept, things(w, "x", "a")))
	w.Await(t.Context(), begun("create", "a"))
	c.Delete(t, "stack")
	w.Fault()
	c.AwaitGone(t, "stack")
	var order []string
	for _, call := range w.Calls() {
		if call.Call == "create" || call.Call == "delete" {
			order = append(order, call.Call+" "+call.Phase)
		}
	}
	if got, want := strings.Join(order, ", "), "create begin, create done, delete begin, delete done"; got != want {
		t.Errorf("the world saw %s; want %s", got, want)
	}
}

// begun matches the beginning of a call.
func begun(call, name string) func(testkit.WorldCall) bool {
	return func(c testkit.WorldCall) bool { return c.Call == call && c.Phase == "begin" && c.Name == name }
}

// One request is one attempt, also of a destroy that fails: the pause after a failure
// is as long as the stack says.
func TestRequestIsOneAttemptToDestroy(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("stack", kept+"\nretryInterval: 1h", things(w, "x", "a")))
	c.AwaitReady(t, "stack")
	w.Fault(testkit.WorldFault{Call: "delete", Name: "a", Do: "fail"})
	c.Delete(t, "stack")
	c.AwaitReason(t, "stack", "TFExecApplyFailed")
	if n := began(w, "delete", "a"); n != 1 {
		t.Fatalf("the stack was deleted, and a destroy began %d times, want once", n)
	}
	for n, request := range []string{"first", "second"} {
		c.Patch(t, "stack", `{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"`+request+`"}}}`)
		failedAgain(t, c, request)
		// A pass more, of a change that asks for nothing.
		c.Patch(t, "stack", `{"spec":{"interval":"`+strconv.Itoa(2+n)+`h"}}`)
		failedAgain(t, c, request)
		if got := began(w, "delete", "a"); got != 2+n {
			t.Errorf("after the request %q a destroy has begun %d times, want %d", request, got, 2+n)
		}
	}
	w.Fault()
	c.Terrier(t, "replan", "stack")
	c.AwaitGone(t, "stack")
	made(t, w)
}

// failedAgain waits until a request was answered by an attempt that failed, and the
// newest spec was seen since.
func failedAgain(t *testing.T, c *testkit.Cluster, request string) {
	t.Helper()
	c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if s.Status.LastHandledReconcileAt != request || s.Status.ObservedGeneration != s.Generation || s.Status.Terrier.Run != nil {
			return errNot("the answer to " + request)
		}
		return testkit.HasReason("TFExecApplyFailed")(s)
	})
}

// A deletion that the module forbids goes on when a user corrects the module. What was
// pending before the deletion is not used for it.
func TestCorrectionHelpsADeletion(t *testing.T) {
	c := cluster(t)
	p := platform(t)
	w := p.World(t)
	guarded := func(value, protect string) string {
		return strings.Replace(things(w, value, "a"), "resource \"world_thing\" \"a\" {", "resource \"world_thing\" \"a\" {\n  lifecycle {\n    prevent_destroy = "+protect+"\n  }\n", 1)
	}
	const spec = "interval: 1h\ndestroyResourcesOnDeletion: true\nretryInterval: 1h"
	c.Apply(t, inline("stack", spec, guarded("one", "true")))
	c.Terrier(t, "approve", "stack", c.AwaitPending(t, "stack").Status.Plan.Pending)
	c.AwaitReady(t, "stack")
	c.Apply(t, inline("stack", spec, guarded("two", "false"))) // never approved
	c.AwaitPending(t, "stack")

	c.Delete(t, "stack")
	s := c.Await(t, "stack", destroyFailed)
	if !strings.Contains(message(s), "terrier.dev/deletion=retain") {
		t.Errorf("the message is %q, want the ways out", message(s))
	}
	c.Terrier(t, "replan", "stack")
	c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if s.Status.LastHandledReconcileAt == "" {
			return errNot("the answer to the request")
		}
		return destroyFailed(s)
	})
	made(t, w, "a")
	c.Apply(t, inline("stack", spec, guarded("three", "false")))
	c.AwaitGone(t, "stack")
	made(t, w)
	var sources []string
	for _, e := range auditLog(t, p, c.Namespace) {
		if e.What == audit.DestroyStarted {
			sources = append(sources, e.Details["source"])
		}
	}
	if len(sources) != 3 || sources[0] != sources[1] || sources[1] == sources[2] {
		t.Errorf("destroys were made from %v, want twice from what was applied, and then from the correction", sources)
	}
}

func destroyFailed(s *v1alpha2.Terraform) error {
	if s.Status.Terrier == nil || s.Status.Terrier.Phase != "DestroyFailed" || s.Status.Terrier.Run != nil {
		return errNot("a destroy that failed")
	}
	return nil
}
