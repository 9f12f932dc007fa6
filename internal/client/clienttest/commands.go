package clienttest

import (
	"context"
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/afterapply"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

func approves(t *testing.T, w *World, s Subject) {
	w.waits(t, shown)
	got := must(s.Stacks.Approve(t.Context(), w.key("net"), shown, "looks right"))(t)
	o := w.object(t, "net")
	if got.Approved != shown.Name || o.Spec.ApprovePlan != shown.Name || o.Annotations[dialect.Comment] != "looks right" {
		t.Errorf("approved is %q, on the object %q with %v", got.Approved, o.Spec.ApprovePlan, o.Annotations)
	}
	again := must(s.Stacks.Approve(t.Context(), w.key("net"), shown, ""))(t)
	if again.Approved != shown.Name || w.object(t, "net").ResourceVersion != o.ResourceVersion {
		t.Error("to approve the same plan again changes the object")
	}
	_, err := s.Stacks.Approve(t.Context(), w.key("net"), shown, strings.Repeat("x", 2001))
	want(t, "a comment that is too long", err, fault.Invalid, "CommentTooLong")
}

func overridesAWindow(t *testing.T, w *World, s Subject) {
	w.waits(t, shown)
	must(s.Stacks.OverrideWindow(t.Context(), w.key("net"), shown, "incident"))(t)
	o := w.object(t, "net")
	if o.Spec.ApprovePlan != shown.Name || !strings.HasPrefix(o.Annotations[dialect.OverrideWindow], shown.Name+" ") || o.Annotations[dialect.Comment] != "incident" {
		t.Errorf("approved is %q with %v, want the plan to be approved, and the windows overridden for it", o.Spec.ApprovePlan, o.Annotations)
	}
	_, err := s.Stacks.OverrideWindow(t.Context(), w.key("net"), query.PlanInfo{Name: shown.Name, Digest: other.Digest}, "")
	want(t, "another plan", err, fault.Conflict, query.ReasonPlanChanged)
	must(s.Stacks.Reject(t.Context(), w.key("net"), shown, ""))(t)
	if o := w.object(t, "net"); o.Annotations[dialect.OverrideWindow] != "" {
		t.Errorf("a plan that is rejected keeps %v", o.Annotations)
	}
}

func approvesAgain(t *testing.T, w *World, s Subject) {
	w.status(t, stack.Status{Resources: stack.Resources{Applied: planOf(shown)}}, nil)
	before := w.object(t, "net").ResourceVersion
	got := must(s.Stacks.Approve(t.Context(), w.key("net"), shown, ""))(t)
	if got.Applied == nil || got.Applied.Digest != shown.Digest || w.object(t, "net").ResourceVersion != before {
		t.Errorf("the plan that was applied is approved as %+v", got.Applied)
	}
	_, err := s.Stacks.Approve(t.Context(), w.key("net"), query.PlanInfo{Name: shown.Name, Digest: other.Digest}, "")
	want(t, "another one of that name", err, fault.Conflict, query.ReasonNoPlan)
}

func refusesOthers(t *testing.T, w *World, s Subject) {
	_, err := s.Stacks.Approve(t.Context(), w.key("net"), shown, "")
	want(t, "no plan waits", err, fault.Conflict, query.ReasonNoPlan)
	w.waits(t, other)
	for what, seen := range map[string]query.PlanInfo{
		"another plan waits":                  shown,
		"another plan waits by the same name": {Name: other.Name, Digest: shown.Digest},
	} {
		_, err := s.Stacks.Approve(t.Context(), w.key("net"), seen, "")
		want(t, what, err, fault.Conflict, query.ReasonPlanChanged)
		_, err = s.Stacks.Reject(t.Context(), w.key("net"), seen, "")
		want(t, what+", to reject", err, fault.Conflict, query.ReasonPlanChanged)
	}
	if o := w.object(t, "net"); o.Spec.ApprovePlan != "" || o.Annotations[dialect.Rejected] != "" {
		t.Errorf("the stack was changed: %q %v", o.Spec.ApprovePlan, o.Annotations)
	}
	w.edit(t, func(s *v1alpha2.TerraformSpec) { s.ApprovePlan = "auto" })
	before := w.object(t, "net").ResourceVersion
	_, err = s.Stacks.Approve(t.Context(), w.key("net"), other, "")
	want(t, "every plan is applied", err, fault.Invalid, query.ReasonNotManual)
	if o := w.object(t, "net"); o.ResourceVersion != before {
		t.Errorf("the stack was changed: %q %v", o.Spec.ApprovePlan, o.Annotations)
	}
}

func rejects(t *testing.T, w *World, s Subject) {
	w.waits(t, shown)
	must(s.Stacks.Approve(t.Context(), w.key("net"), shown, ""))(t)
	for range 2 {
		got := must(s.Stacks.Reject(t.Context(), w.key("net"), shown, "not on a Friday"))(t)
		o := w.object(t, "net")
		if got.Approved != "" || o.Spec.ApprovePlan != "" || o.Annotations[dialect.Rejected] != shown.Name || o.Annotations[dialect.Comment] != "not on a Friday" {
			t.Errorf("rejected, it is approved as %q, with %v", o.Spec.ApprovePlan, o.Annotations)
		}
	}
	if d := must(s.Stacks.Describe(t.Context(), w.key("net")))(t); d.Rejected != shown.Name {
		t.Errorf("rejected is %q, want %q", d.Rejected, shown.Name)
	}
}

func replans(t *testing.T, w *World, s Subject) {
	request := must(s.Stacks.Replan(t.Context(), w.key("net")))(t)
	if got := w.object(t, "net").Annotations[infra.RequestedAt]; request == "" || got != request {
		t.Errorf("asked for is %q, on the object %q", request, got)
	}
	if later := must(s.Stacks.Replan(t.Context(), w.key("net")))(t); later == request {
		t.Error("a second request is the first")
	}
	w.edit(t, func(s *v1alpha2.TerraformSpec) { s.Suspend = true })
	_, err := s.Stacks.Replan(t.Context(), w.key("net"))
	want(t, "of a suspended stack", err, fault.Invalid, "Suspended")
}

func rerunsSteps(t *testing.T, w *World, s Subject) {
	_, err := s.Stacks.RerunSteps(t.Context(), w.key("net"), "")
	want(t, "of a stack without steps", err, fault.Missing, command.ReasonNoSteps)
	o := w.object(t, "net")
	dialect.SetAnnotation(o, afterapply.Annotation, "- name: say\n  command: [\"true\"]\n")
	done(t, "writing the steps", w.Kube.Update(t.Context(), o))
	read := stack.Steps{Digest: "sha256:0123456789abcdef", Source: "sha256:5"}
	word := stack.ShortSteps(read.Approvable())
	w.status(t, stack.Status{AfterApply: &stack.AfterApply{Wanted: read.Digest, Source: read.Source}}, nil)
	_, err = s.Stacks.RerunSteps(t.Context(), w.key("net"), "")
	want(t, "before the first apply", err, fault.Missing, command.ReasonNoSteps)
	w.status(t, stack.Status{Resources: stack.Resources{Created: true}, AfterApply: &stack.AfterApply{Wanted: read.Digest, Source: read.Source, Run: "steps-1", Results: []stack.StepResult{{Name: "say", State: stack.StepFailed}}}}, nil)
	if d := must(s.Stacks.Describe(t.Context(), w.key("net")))(t); d.Steps == nil || d.Steps.State != stack.StepFailed || d.Steps.Digest != word || d.AfterApply == nil || d.AfterApply.Step != "say" {
		t.Errorf("the steps are %+v, in short %+v", d.Steps, d.AfterApply)
	}
	_, err = s.Stacks.RerunSteps(t.Context(), w.key("net"), "ba9876543210")
	want(t, "other steps than were seen", err, fault.Conflict, command.ReasonOtherSteps)
	request := must(s.Stacks.RerunSteps(t.Context(), w.key("net"), word))(t)
	if got := w.object(t, "net").Annotations[afterapply.Rerun]; got != request || !strings.HasPrefix(got, word+"@") {
		t.Errorf("asked for is %q, on the object %q, want the steps by their digest", request, got)
	}
	if later := must(s.Stacks.RerunSteps(t.Context(), w.key("net"), ""))(t); later == request {
		t.Error("a second request is the first")
	}
	asked := w.object(t, "net").Annotations[afterapply.Rerun]
	w.status(t, stack.Status{Resources: stack.Resources{Created: true}, AfterApply: &stack.AfterApply{Wanted: read.Digest, Source: read.Source}}, func(s *v1alpha2.TerraformStatus) { s.Terrier.Phase = string(stack.StepsHeld) })
	approval := must(s.Stacks.RerunSteps(t.Context(), w.key("net"), word))(t)
	if got := w.object(t, "net").Annotations; got[dialect.Confirm] != approval || !strings.HasPrefix(approval, word+" ") || got[afterapply.Rerun] != asked {
		t.Errorf("steps that are held are approved with %q, want their word, and no other request: %v", approval, got)
	}
	w.edit(t, func(s *v1alpha2.TerraformSpec) { s.Suspend = true })
	_, err = s.Stacks.RerunSteps(t.Context(), w.key("net"), "")
	want(t, "of a suspended stack", err, fault.Invalid, "Suspended")
}

func suspends(t *testing.T, w *World, s Subject) {
	for range 2 {
		done(t, "Suspend()", s.Stacks.Suspend(t.Context(), w.key("net")))
		if !w.object(t, "net").Spec.Suspend || !must(s.Stacks.Get(t.Context(), w.key("net")))(t).Suspended {
			t.Error("the stack is not suspended")
		}
	}
	for range 2 {
		done(t, "Resume()", s.Stacks.Resume(t.Context(), w.key("net")))
		if w.object(t, "net").Spec.Suspend {
			t.Error("the stack is still suspended")
		}
	}
}

func unlocks(t *testing.T, w *World, s Subject) {
	want(t, "no lock", s.Stacks.Unlock(t.Context(), w.key("net"), "l1"), fault.Conflict, "NoLock")
	w.status(t, stack.Status{}, func(s *v1alpha2.TerraformStatus) { s.Lock.Pending = "l2" })
	want(t, "another lock", s.Stacks.Unlock(t.Context(), w.key("net"), "l1"), fault.Conflict, "LockChanged")
	done(t, "the lock in the way", s.Stacks.Unlock(t.Context(), w.key("net"), "l2"))
	if got := w.object(t, "net").Spec.TfState; got == nil || got.LockIdentifier != "l2" || got.ForceUnlock != v1alpha2.UnlockYes {
		t.Errorf("to be broken is %+v, want l2", got)
	}
}

func cancels(t *testing.T, w *World, s Subject) {
	_, err := s.Stacks.Cancel(t.Context(), w.key("net"), "apply-1")
	want(t, "no run", err, fault.Conflict, query.ReasonNoRun)
	w.status(t, stack.Status{}, func(s *v1alpha2.TerraformStatus) { s.Terrier.Run = &v1alpha2.RunStatus{ID: "apply-2", Kind: "apply"} })
	_, err = s.Stacks.Cancel(t.Context(), w.key("net"), "apply-1")
	want(t, "another run", err, fault.Conflict, query.ReasonRunChanged)
	for range 2 {
		got := must(s.Stacks.Cancel(t.Context(), w.key("net"), "apply-2"))(t)
		if asked := w.object(t, "net").Annotations[dialect.Cancel]; asked != "apply-2" || got.Run == nil || got.Run.ID != asked {
			t.Errorf("cancelled is %q, and the run is %+v", asked, got.Run)
		}
	}
}

// previews answers as the controller would while the question waits.
func previews(t *testing.T, w *World, s Subject) {
	id := w.id(t)
	w.put(t, record.Plan(id.UID, other.Digest, runner.FilePlanDoc), document)
	type result struct {
		doc query.PlanDocument
		err error
	}
	answers := make(chan result, 1)
	go func() {
		doc, err := s.Stacks.PreviewDestroy(t.Context(), w.key("net"))
		answers <- result{doc, err}
	}()
	request := ""
	testkit.Eventually(t, testkit.Patience, "a preview is asked for", func(context.Context) error {
		if request = w.object(t, "net").Annotations[dialect.PreviewDestroy]; request == "" {
			return errors.New("not yet")
		}
		return nil
	})
	w.status(t, stack.Status{Answers: stack.Answers{Previewed: request, Preview: planOf(other)}}, nil)
	got := <-answers
	if got.err != nil || got.doc.Digest != other.Digest || got.doc.Changes != other.Changes || string(got.doc.Document) != document {
		t.Errorf("PreviewDestroy() = %+v, %v; want what would be taken down", got.doc, got.err)
	}
}

// previewsNothing: a stack for which a user has to act first cannot answer, and the
// question ends.
func previewsNothing(t *testing.T, w *World, s Subject) {
	w.status(t, stack.Status{}, func(s *v1alpha2.TerraformStatus) {
		s.Terrier.Phase = string(stack.InputsFailed)
		s.Conditions = []metav1.Condition{{Type: "Stalled", Status: metav1.ConditionTrue, Reason: string(stack.InputsFailed), Message: "varsFrom[0]: no key", LastTransitionTime: metav1.Now()}}
	})
	_, err := s.Stacks.PreviewDestroy(t.Context(), w.key("net"))
	want(t, "PreviewDestroy() of a stalled stack", err, fault.Invalid, "Stalled")
}

func repairs(t *testing.T, w *World, s Subject) {
	_, err := s.Stacks.PlanRepair(t.Context(), w.key("net"), command.RepairAnswers{IDs: map[string]string{"t.a": "1"}})
	want(t, "PlanRepair()", err, fault.Conflict, command.ReasonNothingUntracked)
	want(t, "Repair()", s.Stacks.Repair(t.Context(), w.key("net"), shown), fault.Conflict, command.ReasonNothingUntracked)

	untracked := &stack.Untracked{Run: "apply-1", Objects: []stack.UntrackedResource{{Address: "t.a"}, {Address: "t.b", ID: "b"}}}
	w.status(t, stack.Status{Resources: stack.Resources{Untracked: untracked}}, nil)
	_, err = s.Stacks.PlanRepair(t.Context(), w.key("net"), command.RepairAnswers{})
	want(t, "with too little said", err, fault.Invalid, "RepairUnclear")
	_, err = s.Stacks.PlanRepair(t.Context(), w.key("net"), command.RepairAnswers{Absent: []string{"t.c"}})
	want(t, "of something else", err, fault.Invalid, "Usage")
	request := must(s.Stacks.PlanRepair(t.Context(), w.key("net"), command.RepairAnswers{IDs: map[string]string{"t.a": "1"}}))(t)
	if o := w.object(t, "net"); request == "" || !strings.Contains(o.Annotations[dialect.Repair], `"t.a":"1"`) {
		t.Errorf("asked for is %q with %v", request, o.Annotations)
	}
}
