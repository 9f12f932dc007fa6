package stack

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// driftedBy is a stack whose last apply is there, and whose drift check found something.
func driftedBy(t *testing.T, mode Mode, run Run) Observation {
	t.Helper()
	o := Observation{
		Now: time.Unix(1e9, 0), PlanInputs: PlanInputs{Revision: "main@sha1:0", Source: "s", Engine: "tofu"},
		Spec: Spec{Mode: mode, CheckDrift: true, Interval: time.Hour, RetryEvery: time.Minute, Approved: "p"},
	}
	p := Plan{Name: "p", Digest: "d", PlanInputs: o.PlanInputs}
	o.Status = Status{}.Record(Run{ID: "1", Kind: PlanRun, Done: true, Outcome: Succeeded, Cause: Cause{PlanInputs: o.PlanInputs}, Plan: &p, At: o.Now})
	o.Status = o.Status.Record(Run{ID: "2", Kind: ApplyRun, Done: true, Outcome: Succeeded, Cause: Cause{PlanInputs: o.PlanInputs, Plan: &p}, State: "s1", At: o.Now})
	run.ID, run.Kind, run.Done, run.Outcome, run.State, run.Exists, run.At = "3", CheckRun, true, Succeeded, "s1", true, o.Now
	run.Cause = Cause{PlanInputs: o.PlanInputs}
	o.Status, o.CheckedAt = o.Status.Record(run), o.Now
	return o
}

func tolerated() *ToleratedDrift {
	return &ToleratedDrift{Resources: 1, Attributes: 1, Of: []ToleratedAttribute{{Address: "a.b", Attribute: "size", Policy: "ClusterPolicy/noise", Reason: "autoscaling"}}}
}

// What rules let drift is neither drift nor a plan, in any mode, and a check that finds it again
// changes nothing.
func TestToleratedDriftIsNoDrift(t *testing.T) {
	for _, mode := range []Mode{Auto, Manual, PlanOnly, DriftOnly} {
		o := driftedBy(t, mode, Run{Tolerated: tolerated()})
		if d := Decide(o); d.Ready != Ready || d.Reason != NoDrift || !strings.HasSuffix(d.Message, "Rules let 1 attribute of 1 resource drift, as size of a.b") || o.Status.Drift != nil || o.Status.Pending != nil {
			t.Errorf("%s: Decide() = %+v with %+v, want no drift", mode, d, o.Status)
		}
		again := o.Status.Record(Run{ID: "4", Kind: CheckRun, Done: true, Outcome: Succeeded, State: "s1", Exists: true, At: o.Now.Add(time.Hour), Cause: Cause{PlanInputs: o.PlanInputs}, Tolerated: tolerated()})
		if got, want := text(again), text(o.Status); got != want {
			t.Errorf("%s: the status after the same again is\n%s\nwant\n%s", mode, got, want)
		}
		gone := o.Status.Record(Run{ID: "5", Kind: CheckRun, Done: true, Outcome: Succeeded, State: "s1", Exists: true, At: o.Now, Cause: Cause{PlanInputs: o.PlanInputs}})
		if gone.Tolerated != nil {
			t.Errorf("%s: %+v is still tolerated after a check without it", mode, gone.Tolerated)
		}
	}
}

func text(m Status) string {
	t := m.Tolerated
	m.Tolerated = nil
	return fmt.Sprintf("%+v %+v", m, t)
}

// A plan of drift that counts says what it also resets, and which rule has ended.
func TestPlansSayWhatTheyAlsoReset(t *testing.T) {
	plan := &Plan{Name: "q", Digest: "e", PlanInputs: PlanInputs{Revision: "main@sha1:0", Source: "s", Engine: "tofu"}, Drift: true, Changes: Changes{Change: 1}, Tolerated: tolerated()}
	plan.Tolerated.Ended = []ToleratedAttribute{{Address: "a.c", Attribute: "tags", Policy: "Policy/x/y", Until: time.Unix(0, 0)}}
	d := Decide(driftedBy(t, Manual, Run{Plan: plan}))
	for _, want := range []string{"The plan also resets 1 attribute of 1 resource that may drift, as size of a.b.", "The rule of Policy/x/y by which tags of a.c could drift ended at 1970-01-01T00:00:00Z."} {
		if d.Reason != DriftFound || !strings.Contains(d.Message, want) {
			t.Errorf("Decide() = %+v, want %q", d, want)
		}
	}
}

// The annotation keeps which way the user chose, and a reason that any user wrote.
func TestAcceptedDriftIsRead(t *testing.T) {
	at := time.Unix(1e9, 0).UTC()
	for _, a := range []AcceptedDrift{
		{Plan: "sha256:e", Until: at},
		{Plan: "sha256:e", Until: at, Why: "way too small"},
		{Plan: "sha256:e", Until: at, Ignored: true},
		{Plan: "sha256:e", Until: at, Ignored: true, Why: "autoscaling"},
	} {
		if got, ok := ParseAcceptedDrift(a.String()); !ok || got != a {
			t.Errorf("ParseAcceptedDrift(%q) = %+v, %t, want %+v", a, got, ok, a)
		}
	}
}

// Drift that a user accepted is not enforced until its time is over, unless a user approves
// exactly this plan. Other drift is enforced as before.
func TestAcceptedDriftIsNotEnforced(t *testing.T) {
	drifted := func(mode Mode) Observation {
		return driftedBy(t, mode, Run{Plan: &Plan{Name: "q", Digest: "sha256:e", PlanInputs: PlanInputs{Revision: "main@sha1:0", Source: "s", Engine: "tofu"}, Drift: true, Changes: Changes{Change: 1}}})
	}
	accept := func(o Observation, plan string, left time.Duration) Observation {
		o.Spec.AcceptsDrift = AcceptedDrift{Plan: plan, Until: o.Now.Add(left), Why: "resized."}.String()
		return o
	}
	for _, tt := range []struct {
		name  string
		o     Observation
		holds bool
	}{
		{"nothing is accepted", drifted(Auto), false},
		{"this drift", accept(drifted(Auto), "sha256:e", time.Hour), true},
		{"this drift, by name", accept(drifted(Auto), "q", time.Hour), true},
		{"other drift", accept(drifted(Auto), "sha256:f", time.Hour), false},
		{"the time is over", accept(drifted(Auto), "sha256:e", 0), false},
		{"a time that is too far", accept(drifted(Auto), "sha256:e", AcceptedMost+time.Second), false},
		{"no time", func() Observation { o := drifted(Auto); o.Spec.AcceptsDrift = "sha256:e"; return o }(), false},
		{"a status that does not call it drift", func() Observation {
			o := accept(drifted(Auto), "sha256:e", time.Hour)
			o.Status.Drift = nil
			return o
		}(), true},
		{"another plan, by name", func() Observation {
			o := accept(drifted(Auto), "q", time.Hour)
			o.Status.Drift = nil
			return o
		}(), false},
		{"an approval by name", func() Observation {
			o := accept(drifted(Manual), "sha256:e", time.Hour)
			o.Spec.Approved = "q"
			return o
		}(), false},
		{"forced", func() Observation { o := accept(drifted(Auto), "sha256:e", time.Hour); o.Spec.Force = true; return o }(), true},
	} {
		d := Decide(tt.o)
		_, applies := d.Action.(Apply)
		if applies == tt.holds {
			t.Errorf("%s: Decide() = %+v, want that it is held: %v", tt.name, d, tt.holds)
		}
		if tt.holds && (d.Reason != DriftFound || !strings.Contains(d.Message, "2001-09-09T02:46:40Z: merge the change") || !strings.HasSuffix(d.Message, "Reason: resized.")) {
			t.Errorf("%s: the stack says %+v", tt.name, d)
		}
	}
	o := accept(drifted(Auto), "sha256:e", time.Hour)
	again := Run{ID: "4", Kind: PlanRun, Done: true, Outcome: Succeeded, State: "s1", Exists: true, At: o.Now, Cause: Cause{PlanInputs: o.PlanInputs}, Plan: o.Status.Pending}
	again.Plan.Drift = false // what was applied is not known any more
	if o.Status = (Status{}).Record(again); o.Status.Drift != nil {
		t.Fatalf("the status after it was lost knows the drift %+v", o.Status.Drift)
	}
	if d := Decide(o); d.Reason != DriftFound || !strings.Contains(d.Message, "Drift accepted: 0 to add, 1 to change") {
		t.Errorf("after the status was lost Decide() = %+v, want that accepted drift is not enforced", d)
	}
	o = accept(drifted(Auto), "sha256:e", time.Minute)
	if w, ok := Decide(o).Action.(Wait); !ok || w.For != time.Minute {
		t.Errorf("the stack waits %v, want until the time is over", Decide(o).Action)
	}
	o = accept(drifted(Auto), "sha256:e", time.Hour)
	o.PlanInputs.Source = "s2"
	if s, ok := Decide(o).Action.(Start); !ok || s.Kind != PlanRun {
		t.Errorf("a change of the configuration leads to %+v, want a plan", Decide(o).Action)
	}
}
