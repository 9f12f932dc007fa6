package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
)

func TestPlanOnlyStopsAtThePlan(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("stack", "approvePlan: auto\nplanOnly: true", things(w, "x", "a")))
	s := c.AwaitPending(t, "stack")
	if got, want := message(s), "Plan generated: This object is in the plan only mode."; got != want || len(w.Things()) != 0 {
		t.Errorf("the message is %q and the world holds %+v; want %q and nothing", got, w.Things(), want)
	}
}

func TestDisabledStackIsOnlyLookedAt(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("stack", "approvePlan: auto", things(w, "x", "a")))
	c.AwaitReady(t, "stack")
	c.Patch(t, "stack", `{"spec":{"approvePlan":"disable","interval":"1s"}}`)
	c.AwaitReason(t, "stack", "NoDrift")
	w.Edit(func(*testkit.WorldThing) bool { return false })
	c.AwaitReason(t, "stack", "DriftDetected")
	if left := w.Things(); len(left) != 0 {
		t.Errorf("the world holds %+v, want nothing: nobody may apply", left)
	}
}

func TestForceAppliesWithoutApproval(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("stack", "force: true", things(w, "x", "a")))
	c.AwaitReady(t, "stack")
	if len(w.Named("a")) != 1 {
		t.Errorf("the world holds %+v, want a", w.Things())
	}
}

func TestSpecDestroyDestroysAndKeepsTheObject(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("stack", "approvePlan: auto", things(w, "x", "a", "b")))
	c.AwaitReady(t, "stack")
	c.Patch(t, "stack", `{"spec":{"destroy":true}}`)
	s := c.AwaitReady(t, "stack")
	if left := w.Things(); len(left) != 0 || !strings.HasPrefix(message(s), "Destroy applied successfully: ") {
		t.Errorf("the world holds %+v, and the message is %q", left, message(s))
	}
	c.Patch(t, "stack", `{"spec":{"destroy":false}}`)
	c.AwaitReady(t, "stack")
	if back := w.Things(); len(back) != 2 {
		t.Errorf("the world holds %+v once it is no longer to be destroyed, want both things", back)
	}
}

func TestTargetsLimitThePlan(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("stack", "approvePlan: auto\ntargets: [world_thing.a]", things(w, "x", "a", "b")))
	c.AwaitReady(t, "stack")
	if len(w.Named("a")) != 1 || len(w.Named("b")) != 0 {
		t.Errorf("the world holds %+v, want only a", w.Things())
	}
}

func TestWorkspaceNamesTheState(t *testing.T) {
	c := cluster(t)
	c.Apply(t, inline("stack", "approvePlan: auto\nworkspace: blue\nbackendConfig: {secretSuffix: shared, inClusterConfig: true, labels: {team: a}}\nwriteOutputsToSecret: {name: out}", `
resource "terraform_data" "it" { input = terraform.workspace }
output "workspace" { value = terraform_data.it.output }
`))
	c.AwaitReady(t, "stack")
	if got := c.Secret(t, "out")["workspace"]; got != "blue" {
		t.Errorf("terraform.workspace is %q, want blue", got)
	}
	var state corev1.Secret
	c.Get(t, "tfstate-blue-shared", &state)
	for label, want := range map[string]string{"tfstate": "true", "tfstateSecretSuffix": "shared", "tfstateWorkspace": "blue", "team": "a"} {
		if state.Labels[label] != want {
			t.Errorf("the state has the labels %v, want %s=%s", state.Labels, label, want)
		}
	}
}

func TestReadablePlans(t *testing.T) {
	c := cluster(t)
	hcl := "resource \"terraform_data\" \"it\" { input = \"shown\" }"
	c.Apply(t, inline("machine", "storeReadablePlan: json", hcl))
	c.Apply(t, inline("person", "storeReadablePlan: human", hcl))
	name := c.AwaitPending(t, "machine").Status.Plan.Pending
	c.AwaitPending(t, "person")
	var s corev1.Secret
	c.Get(t, "tfplan-default-machine.json", &s)
	if text := gunzip(t, s.Data["tfplan"]); !strings.Contains(text, `"resource_changes"`) || !strings.Contains(text, "shown") || s.Annotations["savedPlan"] != name {
		t.Errorf("the Secret holds %.200q with the annotations %v", text, s.Annotations)
	}
	var m corev1.ConfigMap
	c.Get(t, "tfplan-default-person", &m)
	if text := m.Data["tfplan"]; !strings.Contains(text, "# terraform_data.it will be created") {
		t.Errorf("the ConfigMap holds %q", text)
	}
}

func TestFailureIsRetried(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	w.Fault(testkit.WorldFault{Call: "create", Name: "a", Do: "fail"})
	c.Apply(t, inline("stack", "approvePlan: auto\nretryInterval: 1s\nremediation: {retries: 1000}", things(w, "x", "a")))
	failed := c.AwaitReason(t, "stack", "TFExecApplyFailed")
	if failed.Status.ReconciliationFailures == 0 || !strings.Contains(message(failed), "as told") {
		t.Errorf("%d failures with the message %q, want the provider's words", failed.Status.ReconciliationFailures, message(failed))
	}
	w.Fault()
	s := c.AwaitReady(t, "stack")
	if s.Status.ReconciliationFailures != 0 || len(w.Named("a")) != 1 {
		t.Errorf("%d failures are remembered, and the world holds %+v", s.Status.ReconciliationFailures, w.Things())
	}
}

func TestRetriesEnd(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	w.Fault(testkit.WorldFault{Call: "create", Do: "fail"})
	c.Apply(t, inline("stack", "approvePlan: auto\nretryInterval: 1s\nretryStrategy: ExponentialBackoff\nmaxRetryInterval: 2s\nremediation: {retries: 1}", things(w, "x", "a")))
	c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if stalled := meta.FindStatusCondition(s.Status.Conditions, "Stalled"); stalled == nil || stalled.Reason != "RetryLimitReached" {
			return errors.New("it is not stalled")
		}
		return nil
	})
	attempts := 0
	for _, call := range w.Calls() {
		if call.Call == "create" && call.Phase == "begin" {
			attempts++
		}
	}
	if attempts != 2 {
		t.Errorf("%d attempts, want the first and one retry", attempts)
	}
}

func TestRequestIsAnswered(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("stack", "approvePlan: auto\ninterval: 1h", things(w, "x", "a")))
	c.AwaitReady(t, "stack")
	before := checks(w)
	c.Kubectl(t, "annotate", "tf/stack", "reconcile.fluxcd.io/requestedAt=now-1")
	c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if got := s.Status.LastHandledReconcileAt; got != "now-1" {
			return fmt.Errorf("the request answered last is %q", got)
		}
		return testkit.IsReady(s)
	})
	if checks(w) == before {
		t.Error("the request was answered without a look at the world")
	}
}

func TestForeignLockIsBrokenOnlyIfAllowed(t *testing.T) {
	for name, allowed := range map[string]string{
		"any":          `{"spec":{"tfstate":{"forceUnlock":"auto"}}}`,
		"this one":     `{"spec":{"tfstate":{"forceUnlock":"yes","lockIdentifier":"f00d"}}}`,
		"another, yes": `{"spec":{"tfstate":{"forceUnlock":"yes","lockIdentifier":"beef"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster(t)
			c.Apply(t, foreignLock)
			c.Apply(t, inline("stack", "approvePlan: auto\nretryInterval: 1s", "resource \"terraform_data\" \"it\" {}"))
			s := c.AwaitReason(t, "stack", "LockHeld")
			if locked := meta.FindStatusCondition(s.Status.Conditions, "StateLocked"); locked == nil || locked.Status != metav1.ConditionTrue || s.Status.Lock.Pending != "f00d" || !strings.Contains(message(s), "somebody@elsewhere") {
				t.Errorf("StateLocked is %+v, the lock is %+v and the message %q; want who holds it", locked, s.Status.Lock, message(s))
			}
			c.Patch(t, "stack", allowed)
			if strings.HasPrefix(name, "another") {
				c.AwaitReason(t, "stack", "LockHeld")
				var lease coordinationv1.Lease
				c.Get(t, "lock-tfstate-default-stack", &lease)
				if h := lease.Spec.HolderIdentity; h == nil || *h != "f00d" {
					t.Errorf("the lock is held by %v, want it untouched", h)
				}
				return
			}
			s = c.AwaitReady(t, "stack")
			if s.Status.Lock.LastApplied != "f00d" || s.Status.Lock.Pending != "" {
				t.Errorf("status.lock is %+v", s.Status.Lock)
			}
		})
	}
}

// foreignLock is a lock as the engine's kubernetes backend writes it.
const foreignLock = `
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata:
  name: lock-tfstate-default-stack
  labels: {tfstate: "true", tfstateSecretSuffix: stack, tfstateWorkspace: default, app.kubernetes.io/managed-by: terraform}
  annotations:
    app.terraform.io/lock-info: '{"ID":"f00d","Operation":"OperationTypeApply","Info":"","Who":"somebody@elsewhere","Version":"1.12.6","Created":"2026-01-02T03:04:05Z","Path":""}'
spec: {holderIdentity: f00d}
`

func TestUnsupportedFieldIsNamed(t *testing.T) {
	c := cluster(t)
	c.Apply(t, inline("stack", "approvePlan: auto\nserviceAccountName: mine", "resource \"terraform_data\" \"it\" {}"))
	s := c.AwaitReady(t, "stack")
	if ignored := meta.FindStatusCondition(s.Status.Conditions, "FieldsIgnored"); ignored == nil || !strings.Contains(ignored.Message, "serviceAccountName") {
		t.Errorf("FieldsIgnored is %+v, want it to name serviceAccountName", ignored)
	}
}

// A dependant waits without looking, and is told.
func TestDependentsWaitAndAreWoken(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	below := "interval: 1h\nwriteOutputsToSecret: {name: below-outputs}"
	c.Apply(t, inline("above", "approvePlan: auto\ninterval: 1h\nretryInterval: 1h\ndependsOn: [{name: below}]\nreadInputsFromSecrets: [{name: below-outputs, as: below}]\nwriteOutputsToSecret: {name: above-outputs}\nvarsFrom: [{kind: Secret, name: below-outputs, varsKeys: [\"size:from\"]}]", `
variable "from" { type = number }
resource "terraform_data" "it" { input = var.from + 1 }
output "sum" { value = terraform_data.it.output }
`))
	c.AwaitReason(t, "above", "DependencyNotReady") // not the input that the dependency is to write
	c.Apply(t, inline("below", below, things(w, "x", "a")+"\noutput \"size\" { value = world_thing.a.size }\n"))
	pending := c.AwaitPending(t, "below").Status.Plan.Pending
	if s := c.Stack(t, "above"); testkit.IsReady(s) == nil {
		t.Errorf("the dependant is ready before its dependency: %s", message(s))
	}
	c.Patch(t, "below", `{"spec":{"approvePlan":"`+pending+`"}}`)
	c.AwaitReady(t, "above") // long before its interval
	if got := c.Secret(t, "above-outputs")["sum"]; got != "2" {
		t.Errorf("the dependant outputs %q, want 2", got)
	}
}

// P9: what one stack does to itself does not stop the next.
func TestManyStacksAtOnce(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	var names []string
	for i := range 8 {
		names = append(names, fmt.Sprintf("stack-%d", i))
		c.Apply(t, inline(names[i], "approvePlan: auto\ninterval: 1h", things(w, "x", names[i])))
	}
	c.Apply(t, inline("broken", "approvePlan: auto\nretryInterval: 1s", "this is no module"))
	testkit.Eventually(t, testkit.Patience, "all stacks but the broken one are ready", func(context.Context) error {
		for _, name := range names {
			if err := testkit.IsReady(c.Stack(t, name)); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	})
	var got []string
	for _, thing := range w.Things() {
		got = append(got, thing.Name)
	}
	if slices.Sort(got); !slices.Equal(got, names) {
		t.Errorf("the world holds %v, want %v", got, names)
	}
	if s := c.Stack(t, "broken"); testkit.IsReady(s) == nil {
		t.Errorf("the broken stack is ready: %s", message(s))
	}
}

// A stack that is suspended while a run goes on says how that run ended, and not for
// ever that it goes on.
func TestSuspendedStackSaysHowItsRunEnded(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	w.Fault(testkit.WorldFault{Call: "create", Name: "a", Do: "hold"})
	c.Apply(t, inline("well", "approvePlan: auto", things(w, "x", "a")))
	w.Await(t.Context(), begun("create", "a"))
	c.Patch(t, "well", `{"spec":{"suspend":true}}`)
	w.Fault()
	s := c.AwaitReason(t, "well", "TerraformAppliedSucceed")
	if s.Status.Terrier.Phase != "Suspended" || !strings.Contains(s.Status.Terrier.WaitingFor, "applied the plan") {
		t.Errorf("the phase is %s: %q, want it suspended, and what the run applied", s.Status.Terrier.Phase, s.Status.Terrier.WaitingFor)
	}
	w.Fault(testkit.WorldFault{Call: "create", Name: "b", Do: "hold"}, testkit.WorldFault{Call: "create", Name: "b", Do: "fail"})
	c.Apply(t, inline("ill", "approvePlan: auto", things(w, "x", "b")))
	w.Await(t.Context(), begun("create", "b"))
	c.Patch(t, "ill", `{"spec":{"suspend":true}}`)
	w.Fault()
	s = c.AwaitReason(t, "ill", "TFExecApplyFailed")
	if s.Status.Terrier.Phase != "Suspended" || !strings.Contains(s.Status.Terrier.WaitingFor, "as told") {
		t.Errorf("the phase is %s: %q, want it suspended, and what the run failed with", s.Status.Terrier.Phase, s.Status.Terrier.WaitingFor)
	}
}
