// Package dialecttest is the suite that every dialect passes: what users ask of an
// object is read back, and what the controller reports is shown. It decides nothing
// about the kinds themselves.
//
// Start reading at Run.
package dialecttest

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Run tests a dialect with a valid object of its kind, which asks for nothing yet
// and whose plans need an approval.
func Run(t *testing.T, d dialect.Dialect, o client.Object) {
	fresh := func() client.Object { return o.DeepCopyObject().(client.Object) }
	t.Run("words", func(t *testing.T) { words(t, d, fresh()) })
	t.Run("asking", func(t *testing.T) { asking(t, d, fresh()) })
	t.Run("asking again", func(t *testing.T) { askingAgain(t, d, fresh()) })
	t.Run("a session", func(t *testing.T) { session(t, d, fresh()) })
	t.Run("annotations", func(t *testing.T) { annotations(t, d, fresh) })
	t.Run("showing", func(t *testing.T) { showing(t, d, fresh()) })
}

// annotations tests that none is passed over: an unknown value is refused, with the values
// that are known, and an annotation of another kind has no effect, which is said.
func annotations(t *testing.T, d dialect.Dialect, fresh func() client.Object) {
	for _, a := range d.Annotations() {
		o := fresh()
		o.SetAnnotations(map[string]string{a.Name + "s": "maybe"})
		another := slices.ContainsFunc(d.Annotations(), func(b dialect.Annotation) bool { return b.Name == a.Name+"s" })
		if st, err := d.Decode(o); !another && (err != nil || len(st.Ignored) != 1 || !strings.Contains(st.Ignored[0], a.Name+"s")) {
			t.Errorf("with a typing error in %s, Decode() ignores %q, %v, want the annotation", a.Name, st.Ignored, err)
		}
		o = fresh()
		o.SetAnnotations(map[string]string{a.Name: "maybe"})
		st, err := d.Decode(o)
		if a.Instead != "" {
			if err != nil || len(st.Ignored) != 1 || !strings.Contains(st.Ignored[0], a.Name) || !strings.Contains(st.Ignored[0], a.Instead) {
				t.Errorf("with %s, Decode() ignores %q, %v, want the annotation with %s", a.Name, st.Ignored, err, a.Instead)
			}
			continue
		}
		if a.Reads == nil {
			if len(st.Ignored) > 0 {
				t.Errorf("with %s, Decode() ignores %q, want nothing", a.Name, st.Ignored)
			}
			continue
		}
		if fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), a.Name) {
			t.Errorf("with %s: maybe, Decode() = %v, want that it is refused", a.Name, err)
		}
		if warned := strings.Join(dialect.Misread(o.GetAnnotations(), d.Annotations()), ""); !strings.Contains(warned, a.Name+` is "maybe"; it may be `+a.May) {
			t.Errorf("Misread() = %q, want %s, its value, and %s", warned, a.Name, a.May)
		}
	}
	o := fresh()
	o.SetAnnotations(map[string]string{dialect.AdoptState: "maybe", dialect.Network: "internet"})
	if _, err := d.Decode(o); err == nil || !strings.Contains(err.Error(), dialect.AdoptState) || !strings.Contains(err.Error(), dialect.Network) {
		t.Errorf("Decode() of two bad values = %v, want both", err)
	}
}

// words has a word of the kind for each thing that a text may name.
func words(t *testing.T, d dialect.Dialect, o client.Object) {
	st, err := d.Decode(o)
	if err != nil {
		t.Fatal(err)
	}
	v := reflect.ValueOf(st.Spec.Words)
	for f := range v.Type().Fields() {
		if v.FieldByIndex(f.Index).String() == "" {
			t.Errorf("the kind has no word for %s", f.Name)
		}
		mark := "{" + strings.ToLower(f.Name[:1]) + f.Name[1:] + "}"
		if got := st.Spec.Words.In("see " + mark); got != "see "+v.FieldByIndex(f.Index).String() {
			t.Errorf("In(%q) = %q", "see "+mark, got)
		}
	}
}

// everything asks for all that can be asked.
func everything(is dialect.Asked) dialect.Asked {
	is.Approved, is.Suspended, is.Unlock, is.Replan = "plan-main-1", true, "lock-1", "2026-03-01T12:00:00Z"
	is.Session, is.Rejected, is.Comment, is.IgnoreUntracked = "2026-03-01T12:00:01Z", "plan-main-0", "because", "apply-1"
	is.Repair = &stack.Repair{Run: "apply-1", IDs: map[string]string{"a.b": "i-1"}}
	is.Preview, is.AcceptState, is.Cancel = "2026-03-01T12:00:02Z", "sha256:1@2026", "apply-2"
	is.Rerun = "0123456789ab@2026"
	is.Command = &stack.Command{ID: "c1", Session: is.Session, By: "ann", Args: []string{"state", "list"}}
	return is
}

// asking writes everything, reads it back, and takes it back.
func asking(t *testing.T, d dialect.Dialect, o client.Object) {
	before := d.View(o).Asked
	want := everything(before)
	d.Ask(o, want)
	if diff := cmp.Diff(want, d.View(o).Asked); diff != "" {
		t.Errorf("View() after Ask() (-want +got):\n%s", diff)
	}
	st, err := d.Decode(o)
	if err != nil {
		t.Fatal(err)
	}
	var spec stack.Spec
	want.Into(&spec)
	spec.Suspended, spec.Approved, spec.Unlock = want.Suspended, want.Approved, stack.Unlock{ID: want.Unlock}
	got := stack.Spec{
		Suspended: st.Spec.Suspended, Approved: st.Spec.Approved, Unlock: st.Spec.Unlock, Rejected: st.Spec.Rejected, RejectedFor: st.Spec.RejectedFor, IgnoreUntracked: st.Spec.IgnoreUntracked,
		Repair: st.Spec.Repair, Cancel: st.Spec.Cancel, Preview: st.Spec.Preview, AcceptState: st.Spec.AcceptState, Rerun: st.Spec.Rerun, BreakGlass: st.Spec.BreakGlass, Command: st.Spec.Command,
	}
	if diff := cmp.Diff(spec, got); diff != "" || st.Replan != want.Replan {
		t.Errorf("Decode() after Ask() has the request %q, and the spec (-want +got):\n%s", st.Replan, diff)
	}
	d.Ask(o, before)
	if diff := cmp.Diff(before, d.View(o).Asked); diff != "" {
		t.Errorf("after it was taken back (-want +got):\n%s", diff)
	}
}

// askingAgain asks for what an object asks already: not a byte of it changes.
func askingAgain(t *testing.T, d dialect.Dialect, o client.Object) {
	for range 2 {
		was := o.DeepCopyObject()
		d.Ask(o, d.View(o).Asked)
		if diff := cmp.Diff(was, o.DeepCopyObject()); diff != "" {
			t.Errorf("Ask() of what is asked already (-before +after):\n%s", diff)
		}
		d.Ask(o, everything(d.View(o).Asked))
	}
}

// session begins another one: the command of the session before is gone.
func session(t *testing.T, d dialect.Dialect, o client.Object) {
	d.Ask(o, everything(d.View(o).Asked))
	want := d.View(o).Asked
	want.Session, want.Command = "", nil
	d.Ask(o, want)
	dialect.SetAnnotation(o, dialect.BreakGlassCommand, `{"id":"stale"}`)
	want.Session = "2026-03-01T13:00:00Z"
	d.Ask(o, want)
	if got := d.View(o).Asked; got.Session != want.Session || got.Command != nil {
		t.Errorf("the new session is %q with the command %v, want %q without one", got.Session, got.Command, want.Session)
	}
}

// showing reports a status, and reads it back.
func showing(t *testing.T, d dialect.Dialect, o client.Object) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	inputs := stack.PlanInputs{Revision: "main@sha1:2"}
	report := dialect.Summary{
		Decision: stack.Decision{Ready: stack.Reconciling, Reason: stack.AwaitingApproval, Rule: "approve", Message: "waits for an approval"},
		Status: stack.Status{
			Plans: stack.Plans{
				Planned: inputs, PlannedAt: noon,
				Pending: &stack.Plan{Name: "plan-main-2", Digest: "sha256:2", PlanInputs: inputs, Changes: stack.Changes{Add: 1}},
			},
			Resources:   stack.Resources{Applied: &stack.Plan{Name: "plan-main-1", PlanInputs: stack.PlanInputs{Revision: "main@sha1:1"}}, AppliedAt: noon},
			StoredState: stack.StoredState{Outputs: []string{"id"}, Lock: &stack.Lock{ID: "lock-1", Who: "ann"}},
			Failure:     stack.Failure{Failures: 2, FailedWith: "no such bucket"},
			Answers:     stack.Answers{HandledReplan: "2026-03-01T11:00:00Z"},
		},
		PlanInputs: inputs, Now: noon, Next: noon.Add(time.Minute), Every: time.Hour, Isolation: "full", Environment: []string{"HOME"},
		Run: &stack.Run{ID: "plan-1", Kind: stack.PlanRun, Step: "init", Since: noon},
	}
	d.Encode(o, report)
	want := dialect.View{
		Phase: string(stack.AwaitingApproval), Rule: "approve", WaitingFor: "waits for an approval", Since: noon, Next: report.Next, Every: time.Hour,
		Run: &dialect.Running{ID: "plan-1", Kind: string(stack.PlanRun), Phase: "init", Started: noon}, Pending: "plan-main-2", Lock: "lock-1",
		Handled: report.Status.HandledReplan, Revision: "main@sha1:1", Failures: 2, Isolation: "full", Environment: []string{"HOME"}, Outputs: []string{"id"},
	}
	got := d.View(o)
	if len(got.Conditions) == 0 {
		t.Error("no condition is shown")
	}
	want.Asked, want.Conditions, want.Source, want.Path, want.OutputsIn = got.Asked, got.Conditions, got.Source, got.Path, got.OutputsIn
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("View() after Encode() (-want +got):\n%s", diff)
	}
	st, err := d.Decode(o)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(report.Status, st.Status); diff != "" {
		t.Errorf("the status that Decode() reads is not the one of Encode() (-want +got):\n%s", diff)
	}
	same := o.DeepCopyObject().(client.Object)
	d.Encode(same, report)
	if diff := cmp.Diff(o.DeepCopyObject(), same.DeepCopyObject()); diff != "" {
		t.Errorf("Encode() of the same report changes the status (-before +after):\n%s", diff)
	}
}
