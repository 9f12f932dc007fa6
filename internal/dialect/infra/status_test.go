package infra

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

var (
	noon  = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	basis = stack.PlanInputs{Revision: "main@sha1:b8e362c206e3d0cbb7ed22ced771a0056455a2fb", Source: "s"}
)

// TestReady is the table of upstream's conditions [C] that clients wait for.
func TestReady(t *testing.T) {
	pending := &stack.Plan{Name: "plan-main-b8e362c206", Digest: "d", PlanInputs: basis, Changes: stack.Changes{Add: 1}}
	spec := stack.Spec{Interval: time.Hour, RetryEvery: time.Minute, CheckDrift: true, Words: words(&v1alpha2.Terraform{})}
	with := func(m stack.Mode) stack.Spec { s := spec; s.Mode = m; return s }
	for name, tt := range map[string]struct {
		o       stack.Observation
		status  metav1.ConditionStatus
		reason  string
		message string
	}{
		"a plan waits": {stack.Observation{Spec: with(stack.Manual), Status: stack.Status{Plans: stack.Plans{Pending: pending, Planned: basis}}},
			"Unknown", "TerraformPlannedWithChanges", `Plan generated: set approvePlan: "plan-main-b8e362c206" to approve this plan.`},
		"plan only": {stack.Observation{Spec: with(stack.PlanOnly), Status: stack.Status{Plans: stack.Plans{Pending: pending, Planned: basis}}},
			"Unknown", "TerraformPlannedWithChanges", "Plan generated: This object is in the plan only mode."},
		"applied": {stack.Observation{Spec: with(stack.Auto), Status: stack.Status{Resources: stack.Resources{Applied: pending, Created: true}, Plans: stack.Plans{Planned: basis, PlannedAt: noon}}},
			"True", "TerraformAppliedSucceed", "Applied successfully: " + basis.Revision},
		"no changes": {stack.Observation{Spec: with(stack.Auto), Status: stack.Status{Plans: stack.Plans{Planned: basis, PlannedAt: noon}}},
			"True", "TerraformPlannedNoChanges", "Plan no changes: " + basis.Revision},
		"no drift": {stack.Observation{Spec: with(stack.Auto), Status: stack.Status{Resources: stack.Resources{Applied: pending, DriftFree: true}, Plans: stack.Plans{Planned: basis, PlannedAt: noon}}},
			"True", "NoDrift", "No drift: " + basis.Revision},
		"a source that is not there": {stack.Observation{Spec: with(stack.Auto), Blocked: &stack.Blocked{Kind: "Missing", Reason: stack.SourceNotReady, Message: "Source is not ready, artifact not found"}},
			"False", "ArtifactFailed", "Source is not ready, artifact not found"},
		"a failed init": {stack.Observation{Spec: with(stack.Auto), Status: stack.Status{Failure: stack.Failure{Failures: 1, FailedAt: noon, FailedFor: basis, FailedKind: stack.PlanRun, FailedStep: "init", FailedWith: "no such provider"}}},
			"False", "TFExecInitFailed", "no such provider"},
		"a failed apply": {stack.Observation{Spec: with(stack.Auto), Status: stack.Status{Failure: stack.Failure{Failures: 1, FailedAt: noon, FailedFor: basis, FailedKind: stack.ApplyRun, FailedStep: "apply", FailedWith: "quota"}}},
			"False", "TFExecApplyFailed", "quota"},
		"an apply that ran out of memory": {stack.Observation{Spec: with(stack.Auto), Status: stack.Status{Failure: stack.Failure{Failures: 1, FailedAt: noon, FailedFor: basis, FailedKind: stack.ApplyRun, FailedStep: "apply", FailedWith: "the limit is 512 MiB", FailedWhy: "OutOfMemory"}}},
			"False", "OutOfMemory", "the limit is 512 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.o.Now, tt.o.PlanInputs = noon, basis
			obj := &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
			Dialect{}.Encode(obj, dialect.Summary{Decision: stack.Decide(tt.o), Status: tt.o.Status, PlanInputs: basis, Now: noon})
			c := meta.FindStatusCondition(obj.Status.Conditions, dialect.ConditionReady)
			if c == nil || c.Status != tt.status || c.Reason != tt.reason || c.Message != tt.message {
				t.Errorf("Ready = %+v, want %s/%s %q", c, tt.status, tt.reason, tt.message)
			}
			if obj.Status.ObservedGeneration != 3 {
				t.Errorf("observedGeneration = %d, want 3", obj.Status.ObservedGeneration)
			}
			// The object has no module, so Decode refuses its spec, but not its memory.
			back, err := Dialect{}.Decode(obj)
			if fault.Of(err) != fault.Invalid {
				t.Errorf("Decode() = %v, want Invalid", err)
			}
			if diff := cmp.Diff(tt.o.Status, back.Status); diff != "" {
				t.Errorf("memory does not survive (-want +got):\n%s", diff)
			}
		})
	}
}

// The same knowledge gives the same status, whatever the time and the rule.
func TestEncodeIsStable(t *testing.T) {
	m := stack.Status{Plans: stack.Plans{Planned: basis, PlannedAt: noon}, Resources: stack.Resources{Created: true}}
	o := stack.Observation{Now: noon, PlanInputs: basis, Status: m, Spec: stack.Spec{Mode: stack.Auto, CheckDrift: true, Interval: time.Hour}}
	obj := &v1alpha2.Terraform{}
	encode := func() {
		Dialect{}.Encode(obj, dialect.Summary{Decision: stack.Decide(o), Status: m, PlanInputs: basis, Run: o.Run, Now: o.Now})
	}
	encode()
	first := obj.DeepCopy()
	for _, later := range []func(){
		func() { o.Now = noon.Add(time.Minute) },
		func() { o.Now = noon.Add(time.Hour) }, // drift is due
		func() { o.Run = &stack.Run{ID: "check-1", Kind: stack.CheckRun, Cause: stack.Cause{PlanInputs: basis}} },
		func() { o.Run, o.CheckedAt = nil, o.Now },
	} {
		later()
		encode()
		if diff := cmp.Diff(first.Status, obj.Status); diff != "" {
			t.Errorf("the status changed (-before +after):\n%s", diff)
		}
	}
}

// A rule that another release named is not kept: nothing could be said about it.
func TestRuleOfAnotherReleaseIsNotKept(t *testing.T) {
	for rule, want := range map[string]string{
		"a stack at rest rests":             "a settled stack waits",
		"drift is checked at each interval": "drift is checked at each interval",
	} {
		obj := &v1alpha2.Terraform{}
		obj.Status.Terrier = &v1alpha2.TerrierStatus{Phase: string(stack.NoDrift), Rule: rule}
		Dialect{}.Encode(obj, dialect.Summary{Decision: stack.Decision{Ready: stack.Ready, Reason: stack.NoDrift, Rule: "a settled stack waits"}, Now: noon})
		if got := obj.Status.Terrier.Rule; got != want {
			t.Errorf("the rule %q becomes %q, want %q", rule, got, want)
		}
	}
}

// A memory that cannot be read is named, and everything else is left alone.
func TestUnreadableStatusIsNamed(t *testing.T) {
	obj := &v1alpha2.Terraform{}
	Dialect{}.Encode(obj, dialect.Summary{Decision: stack.Decision{Ready: stack.Ready, Reason: stack.NoDrift}, Status: stack.Status{Resources: stack.Resources{Created: true}}, Now: noon})
	obj.Status.Terrier.Memory.Raw = []byte(`"garbage"`)
	_, err := Dialect{}.Decode(obj)
	if fault.Of(err) != fault.Broken {
		t.Fatalf("Decode() = %v, want Broken", err)
	}
	Dialect{}.Encode(obj, dialect.Summary{Unreadable: err, Now: noon})
	c := meta.FindStatusCondition(obj.Status.Conditions, dialect.ConditionReady)
	if c.Status != metav1.ConditionFalse || c.Reason != dialect.StatusUnreadable || string(obj.Status.Terrier.Memory.Raw) != `"garbage"` {
		t.Errorf("Ready = %+v and status %s, want it named and kept", c, obj.Status.Terrier.Memory.Raw)
	}
}

func TestOnlyProgressIsWhatDoesNotLast(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	status := func(change func(*dialect.Summary)) *v1alpha2.Terraform {
		s := dialect.Summary{
			Now: now, Status: stack.Status{LastRun: "plan-1", Plans: stack.Plans{PlannedAt: now}},
			Decision: stack.Decision{Ready: stack.Reconciling, Reason: stack.Queued, Message: "Waiting for its turn"},
		}
		change(&s)
		obj := &v1alpha2.Terraform{}
		Dialect{}.Encode(obj, s)
		return obj
	}
	before := status(func(*dialect.Summary) {})
	// The server has the keys of the memory in another order.
	var keys map[string]any
	if err := json.Unmarshal(before.Status.Terrier.Memory.Raw, &keys); err != nil {
		t.Fatal(err)
	}
	before.Status.Terrier.Memory.Raw, _ = json.MarshalIndent(keys, "", " ")
	for name, tt := range map[string]struct {
		change func(*dialect.Summary)
		want   bool
	}{
		"nothing": {func(*dialect.Summary) {}, true},
		"a run began": {func(s *dialect.Summary) {
			s.Decision.Reason, s.Decision.Message, s.Decision.Rule = stack.Planning, "Terraform Planning", "a new object is planned"
			s.Run, s.Isolation, s.Environment, s.PlanInputs.Revision = &stack.Run{ID: "plan-2", Kind: stack.PlanRun, Since: now}, "full", []string{"A"}, "main@sha1:1"
			s.Now = now.Add(time.Minute)
		}, true},
		"something was remembered": {func(s *dialect.Summary) { s.Status.LastRun = "plan-2" }, false},
		"it is ready":              {func(s *dialect.Summary) { s.Decision.Ready, s.Decision.Reason = stack.Ready, stack.Unchanged }, false},
		"it waits for somebody":    {func(s *dialect.Summary) { s.Decision.Ready, s.Decision.Reason = stack.Held, stack.AwaitingApproval }, false},
		"it failed":                {func(s *dialect.Summary) { s.Decision.Reason = stack.StartFailed }, false},
	} {
		if got := (Dialect{}).OnlyProgress(before, status(tt.change)); got != tt.want {
			t.Errorf("%s: OnlyProgress() = %v, want %v", name, got, tt.want)
		}
	}
	if (Dialect{}).OnlyProgress(&v1alpha2.Terraform{}, before) {
		t.Error("the first status of all is only progress")
	}
}

func TestFailingCheckBlocksAreACondition(t *testing.T) {
	obj := object(t, `{values: {hcl: x}}`)
	encode := func(f *stack.FailingCheckBlocks) *metav1.Condition {
		Dialect{}.Encode(obj, dialect.Summary{
			Status: stack.Status{Resources: stack.Resources{FailingCheckBlocks: f}}, Decision: stack.Decision{Ready: stack.Ready, Reason: stack.NoDrift}, Now: noon,
		})
		return meta.FindStatusCondition(obj.Status.Conditions, dialect.ConditionChecks)
	}
	failing := &stack.FailingCheckBlocks{Since: noon, Failed: []stack.FailedCheckBlock{{Address: "check.a", Message: "it expires soon"}}}
	if c := encode(failing); c == nil || c.Status != metav1.ConditionTrue || c.Message != "1 check block fails: check.a: it expires soon" {
		t.Errorf("ChecksFailed = %+v", c)
	}
	if !meta.IsStatusConditionTrue(obj.Status.Conditions, dialect.ConditionReady) {
		t.Errorf("a check block that fails made the stack unready: %+v", obj.Status.Conditions)
	}
	st, err := Dialect{}.Decode(obj)
	if diff := cmp.Diff(failing, st.Status.FailingCheckBlocks); err != nil || diff != "" {
		t.Errorf("after a restart: %v (-want +got):\n%s", err, diff)
	}
	if c := encode(nil); c != nil {
		t.Errorf("after the check block passed: %+v", c)
	}
}
