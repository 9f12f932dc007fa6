package schedule

import (
	"encoding/json"
	"testing"

	"github.com/terrier-iac/terrier/internal/stack"
)

func TestClassOf(t *testing.T) {
	was := stack.PlanInputs{Source: "s", Inputs: "i", Shape: "p", Engine: "e"}
	known := stack.Status{Plans: stack.Plans{Planned: was}, Resources: stack.Resources{Applied: &stack.Plan{}}}
	failed := func(of stack.PlanInputs) stack.Status {
		return stack.Status{Failure: stack.Failure{Failures: 1, FailedFor: of, FailedKind: stack.ApplyRun}}
	}
	basis := func(change func(*stack.PlanInputs)) stack.PlanInputs { b := was; change(&b); return b }
	for name, tt := range map[string]struct {
		kind  stack.RunKind
		cause stack.Cause
		o     stack.Observation
		want  Class
	}{
		"an apply":                                   {stack.ApplyRun, stack.Cause{}, stack.Observation{Status: known, PlanInputs: was}, Apply},
		"a destroy":                                  {stack.DestroyRun, stack.Cause{}, stack.Observation{Status: known, Deleting: true}, Apply},
		"the plan of a destroy":                      {stack.PlanRun, stack.Cause{Destroy: true}, stack.Observation{Status: known, Deleting: true}, Apply},
		"a command of a person":                      {stack.BreakGlassRun, stack.Cause{}, stack.Observation{Status: known, PlanInputs: was}, Person},
		"a plan that a person asked for":             {stack.PlanRun, stack.Cause{Replan: "r"}, stack.Observation{Status: known, PlanInputs: was}, Person},
		"a check that a person asked for":            {stack.CheckRun, stack.Cause{Replan: "r"}, stack.Observation{Status: known, PlanInputs: was}, Person},
		"a preview":                                  {stack.PreviewRun, stack.Cause{Preview: "v"}, stack.Observation{Status: known, PlanInputs: was}, Person},
		"a lock that a person breaks":                {stack.PlanRun, stack.Cause{Unlock: "l"}, stack.Observation{Status: failed(was), PlanInputs: was, Spec: stack.Spec{Unlock: stack.Unlock{ID: "l"}}}, Person},
		"a lock that is broken by itself":            {stack.PlanRun, stack.Cause{Unlock: "l"}, stack.Observation{Status: failed(was), PlanInputs: was, Spec: stack.Spec{Unlock: stack.Unlock{Auto: true}}}, Upstream},
		"a new stack":                                {stack.PlanRun, stack.Cause{}, stack.Observation{PlanInputs: was}, Spec},
		"a change of the spec":                       {stack.PlanRun, stack.Cause{}, stack.Observation{Status: known, PlanInputs: basis(func(b *stack.PlanInputs) { b.Shape, b.Source = "q", "t" })}, Spec},
		"a change of the source":                     {stack.PlanRun, stack.Cause{}, stack.Observation{Status: known, PlanInputs: basis(func(b *stack.PlanInputs) { b.Source = "t" })}, Upstream},
		"a change of the inputs":                     {stack.PlanRun, stack.Cause{}, stack.Observation{Status: known, PlanInputs: basis(func(b *stack.PlanInputs) { b.Inputs = "j" })}, Upstream},
		"a change of the engine":                     {stack.CheckRun, stack.Cause{}, stack.Observation{Status: known, PlanInputs: basis(func(b *stack.PlanInputs) { b.Engine = "f" })}, Upstream},
		"another attempt":                            {stack.PlanRun, stack.Cause{}, stack.Observation{Status: failed(was), PlanInputs: was}, Upstream},
		"another attempt with another spec":          {stack.PlanRun, stack.Cause{}, stack.Observation{Status: failed(was), PlanInputs: basis(func(b *stack.PlanInputs) { b.Shape = "q" })}, Spec},
		"a plan whose state changed":                 {stack.PlanRun, stack.Cause{}, stack.Observation{Status: stack.Status{Plans: stack.Plans{PlanNote: "the state changed"}}, PlanInputs: was}, Upstream},
		"the health of what was applied":             {stack.HealthRun, stack.Cause{}, stack.Observation{Status: known, PlanInputs: was}, Spec},
		"a drift check":                              {stack.CheckRun, stack.Cause{}, stack.Observation{Status: known, PlanInputs: was}, Drift},
		"a plan because the interval is over":        {stack.PlanRun, stack.Cause{}, stack.Observation{Status: known, PlanInputs: was}, Drift},
		"a revision of the same source is no change": {stack.CheckRun, stack.Cause{}, stack.Observation{Status: known, PlanInputs: basis(func(b *stack.PlanInputs) { b.Revision = "main@2" })}, Drift},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ClassOf(tt.kind, tt.cause, tt.o); got != tt.want {
				t.Errorf("ClassOf() = %s, want %s", got, tt.want)
			}
		})
	}
}

func TestClassNamed(t *testing.T) {
	for _, want := range Classes() {
		if got, ok := ClassNamed(want.String()); got != want || !ok {
			t.Errorf("ClassNamed(%q) = %v, %v", want, got, ok)
		}
	}
	if _, ok := ClassNamed("urgent"); ok {
		t.Error("there is no class urgent")
	}
}

// A class goes to other controllers by its name: its number may be another one there.
func TestClassIsSentByItsName(t *testing.T) {
	for _, want := range Classes() {
		sent, err := json.Marshal(Candidate{Class: want})
		if err != nil {
			t.Fatal(err)
		}
		var names struct{ Class string }
		if err := json.Unmarshal(sent, &names); err != nil || names.Class != want.String() {
			t.Errorf("sent as %q, %v, want %s", names.Class, err, want)
		}
		got := Candidate{Class: Spec}
		if err := json.Unmarshal(sent, &got); err != nil || got.Class != want {
			t.Errorf("read as %s, %v, want %s", got.Class, err, want)
		}
	}
	var later Candidate
	if err := json.Unmarshal([]byte(`{"Class":"of-a-later-release"}`), &later); err != nil || later.Class != Drift {
		t.Errorf("a class of a later release is read as %s, %v, want %s", later.Class, err, Drift)
	}
}
