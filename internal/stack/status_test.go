package stack

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPlansInBetweenDoNotForgetFailedApplies(t *testing.T) {
	basis := PlanInputs{Source: "s", Shape: "f"}
	limit := 1
	o := Observation{Now: time.Unix(1e9, 0), PlanInputs: basis, Spec: Spec{Mode: Auto, RetryEvery: time.Minute, MaxRetries: &limit}}
	plan := &Plan{Name: "plan", Digest: "d", PlanInputs: basis, Changes: Changes{Add: 1}}
	applies := 0
	for run := range 10 {
		r := Run{ID: string(rune('a' + run)), Done: true, Cause: Cause{PlanInputs: basis, Plan: plan}, Plan: plan, At: o.Now}
		switch a := Decide(o).Action.(type) {
		case Start:
			r.Kind, r.Outcome = a.Kind, Succeeded
		case Apply:
			r.Kind, r.Outcome = ApplyRun, Failed
			applies++
		case Wait:
			o.Now = o.Now.Add(a.For)
			continue
		}
		o.Status = o.Status.Record(r)
	}
	if d := Decide(o); d.Reason != RetryLimitReached || applies != 2 {
		t.Errorf("after %d applies that failed, each behind a plan: %s, want %s after the first and one retry", applies, d.Reason, RetryLimitReached)
	}
	o.PlanInputs.Source = "mended"
	r := Run{ID: "z", Kind: PlanRun, Done: true, Outcome: Succeeded, Cause: Cause{PlanInputs: o.PlanInputs}, Plan: plan, At: o.Now}
	if m := o.Status.Record(r); m.Failures != 0 {
		t.Errorf("a plan of another source leaves %d failures, want none", m.Failures)
	}
}

// An approval is spent once something was done: the digest of a plan covers
// Status.LastWrite, and a plan that looks the same afterwards is another one.
func TestTheLastRunThatWroteIsRemembered(t *testing.T) {
	gap := []UntrackedResource{{Address: "a.b"}}
	for name, tt := range map[string]struct {
		run  Run
		want string
	}{
		"an apply":                         {Run{Kind: ApplyRun, Outcome: Succeeded}, "new"},
		"a destroy":                        {Run{Kind: DestroyRun, Outcome: Succeeded}, "new"},
		"an apply that was cut short":      {Run{Kind: ApplyRun, Outcome: Killed, Untracked: gap}, "new"},
		"an apply that is tried once more": {Run{Kind: ApplyRun, Outcome: Failed}, "old"},
		"an apply that met a foreign lock": {Run{Kind: ApplyRun, Outcome: Locked}, "old"},
		"an apply of what is no longer so": {Run{Kind: ApplyRun, Outcome: Stale}, "old"},
		"a plan":                           {Run{Kind: PlanRun, Outcome: Succeeded}, "old"},
		"a look for drift that found some": {Run{Kind: CheckRun, Outcome: Succeeded, Plan: &Plan{Digest: "d", Drift: true}}, "old"},
		"an apply that has not ended":      {Run{Kind: ApplyRun}, "old"},
	} {
		tt.run.ID, tt.run.Done = "new", tt.run.Outcome != ""
		if got := (Status{LastWrite: "old"}).Record(tt.run).LastWrite; got != tt.want {
			t.Errorf("%s: Wrote = %q, want %q", name, got, tt.want)
		}
	}
}

// The groups of a status are in one JSON object. Of two fields with one name JSON
// would keep neither.
func TestTheGroupsOfAStatusShareNoName(t *testing.T) {
	var names []string
	var collect func(reflect.Type)
	collect = func(of reflect.Type) {
		for f := range of.Fields() {
			if f.Anonymous {
				collect(f.Type)
				continue
			}
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" || slices.Contains(names, name) {
				t.Errorf("%s.%s has the JSON name %q, want one of its own", of.Name(), f.Name, name)
			}
			names = append(names, name)
		}
	}
	collect(reflect.TypeFor[Status]())
}
