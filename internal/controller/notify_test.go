package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/stack"
)

// people hears what is sent, and keeps apart what is only recorded.
type people struct {
	told, recorded []string
	facts          map[string]string
}

func (e *people) Event(obj client.Object, kind, reason, message string) {
	e.EventWith(obj, kind, reason, message, nil)
}

func (e *people) EventWith(_ client.Object, _, reason, message string, facts map[string]string) {
	e.told, e.facts = append(e.told, reason+": "+message), facts
}

func (e *people) Record(_ client.Object, _, reason, message string) {
	e.recorded = append(e.recorded, reason+": "+message)
}

func TestPeopleAreToldOncePerChange(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	basis := stack.PlanInputs{Revision: "main@sha1:b8e362c206", Source: "s"}
	plan := stack.Plan{Name: "plan-main-b8e362c206", Digest: "d1", PlanInputs: basis, Changes: stack.Changes{Add: 1}}
	drift := plan
	drift.Drift, drift.Digest = true, "d2"
	run := func(kind stack.RunKind, outcome stack.Outcome, made *stack.Plan) *stack.Run {
		return &stack.Run{ID: "run-2", Kind: kind, Done: true, Outcome: outcome, Plan: made, Step: "plan", Message: "no", At: now, Cause: stack.Cause{PlanInputs: basis}}
	}
	failed := stack.Status{Failure: stack.Failure{Failures: 2, FailedKind: stack.PlanRun, FailedStep: "plan", FailedFor: basis, FailedAt: now}}
	lock := func(since string, seen time.Duration) *stack.Lock {
		return &stack.Lock{ID: "l1", Who: "ann@laptop", Since: since, Seen: now.Add(seen)}
	}
	at := now.Format(time.RFC3339)
	for name, c := range map[string]struct {
		mode     stack.Mode
		was      stack.Status
		is       *stack.Status // where no run ended
		next     stack.Action
		run      *stack.Run
		told     []string // how they begin
		recorded int
	}{
		"a plan waits":                     {mode: stack.Manual, run: run(stack.PlanRun, stack.Succeeded, &plan), told: []string{"TerraformPlanSucceed: Plan pending: plan-main-b8e362c206 waits for approval: 1 to add"}},
		"the same plan again":              {mode: stack.Manual, was: stack.Status{Plans: stack.Plans{Pending: &plan}}, run: run(stack.PlanRun, stack.Succeeded, &plan), recorded: 1},
		"a plan that is held":              {mode: stack.Auto, run: run(stack.PlanRun, stack.Succeeded, &plan), next: stack.Review{Plan: plan}, told: []string{"TerraformPlanSucceed: Planned plan-main-b8e362c206: 1 to add"}},
		"a plan that is applied at once":   {mode: stack.Auto, run: run(stack.PlanRun, stack.Succeeded, &plan), next: stack.Apply{Plan: plan}},
		"drift that is mended at once":     {mode: stack.Auto, run: run(stack.CheckRun, stack.Succeeded, &drift), next: stack.Apply{Plan: drift}, told: []string{"DriftDetected: Drift detected: 1 to add"}},
		"the first failure":                {run: run(stack.PlanRun, stack.Failed, nil), told: []string{"TFExecPlanFailed: Failed (attempt 1): no"}},
		"the next failure":                 {was: failed, run: run(stack.PlanRun, stack.Failed, nil), recorded: 1},
		"it works again":                   {was: failed, run: run(stack.PlanRun, stack.Succeeded, nil), told: []string{"Recovered: The stack works again, after it failed 2 times"}},
		"drift":                            {run: run(stack.CheckRun, stack.Succeeded, &drift), told: []string{"DriftDetected: Drift detected: 1 to add"}},
		"the same drift":                   {was: stack.Status{Plans: stack.Plans{Pending: &drift}, Resources: stack.Resources{Drift: &stack.Drift{}}}, run: run(stack.CheckRun, stack.Succeeded, &drift)},
		"drift that went away":             {was: stack.Status{Plans: stack.Plans{Pending: &drift}, Resources: stack.Resources{Drift: &stack.Drift{}}}, run: run(stack.CheckRun, stack.Succeeded, nil), told: []string{"DriftResolved: Drift resolved: the resources match the applied plan again"}},
		"a lock of a moment ago":           {is: &stack.Status{StoredState: stack.StoredState{Lock: lock(at, time.Minute)}}},
		"a lock that is old when met":      {is: &stack.Status{StoredState: stack.StoredState{Lock: lock(at, time.Hour)}}, told: []string{"LockHeld: The lock of the state is held by ann@laptop since 2026-03-01T12:00:00Z"}},
		"a lock that became old":           {was: stack.Status{StoredState: stack.StoredState{Lock: lock(at, time.Minute)}}, is: &stack.Status{StoredState: stack.StoredState{Lock: lock(at, 11*time.Minute)}}, told: []string{"LockHeld: "}},
		"a lock that was told":             {was: stack.Status{StoredState: stack.StoredState{Lock: lock(at, 11*time.Minute)}}, is: &stack.Status{StoredState: stack.StoredState{Lock: lock(at, 20*time.Minute)}}},
		"a lock as the engine writes it":   {is: &stack.Status{StoredState: stack.StoredState{Lock: lock("2026-03-01 12:00:00.123456789 +0000 UTC", time.Minute)}}},
		"a lock that does not say how old": {is: &stack.Status{StoredState: stack.StoredState{Lock: lock("", 0)}}, told: []string{"LockHeld: "}},
		"a check block fails": {run: &stack.Run{ID: "check-1", Kind: stack.CheckRun, Done: true, Outcome: stack.Succeeded, Blocks: &stack.CheckBlocks{Failed: []stack.FailedCheckBlock{{Address: "check.a", Message: "no"}}}},
			told: []string{"ChecksFailed: 1 check block fails: check.a: no"}},
		"a check block passes again": {was: stack.Status{Resources: stack.Resources{FailingCheckBlocks: &stack.FailingCheckBlocks{Failed: []stack.FailedCheckBlock{{Address: "check.a"}}}}},
			run:  &stack.Run{ID: "check-1", Kind: stack.CheckRun, Done: true, Outcome: stack.Succeeded, Blocks: &stack.CheckBlocks{}},
			told: []string{"ChecksPassed: No check block fails any more"}},
		"nothing happened": {was: failed, is: &failed},
	} {
		t.Run(name, func(t *testing.T) {
			e := &people{}
			m, err := newMetrics(prometheus.NewRegistry(), false, &schedule.Budgets{})
			if err != nil {
				t.Fatal(err)
			}
			s := takeApart(&Stacks{Events: e, Dialects: dialect.NewRegistry(infra.Dialect{}), metrics: m})
			p := &pass{dialect: infra.Dialect{}, id: "uid", entry: &entry{id: "uid"}, obj: &v1alpha2.Terraform{}, st: dialect.Stack{Status: c.was}, ended: c.run, report: &runner.Report{}}
			p.o.Spec.Mode = c.mode
			if c.is != nil {
				p.o.Status = *c.is
			} else {
				p.o.Status = c.was.Record(*c.run)
			}
			p.decision.Action = c.next
			if err := s.tell(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			if !slices.EqualFunc(e.told, c.told, strings.HasPrefix) || len(e.recorded) != c.recorded {
				t.Errorf("told are %q, recorded %q; want %q, and %d recorded", e.told, e.recorded, c.told, c.recorded)
			}
		})
	}
}

func TestFactsOfARun(t *testing.T) {
	plan := &stack.Plan{Name: "plan-main-b8", Changes: stack.Changes{Add: 3, Destroy: 1}}
	got := runFacts(stack.Run{ID: "run-1", Kind: stack.ApplyRun, Outcome: stack.Succeeded, Cause: stack.Cause{Plan: plan, PlanInputs: stack.PlanInputs{Revision: "main@sha1:b8e362c206"}}})
	want := map[string]string{
		"run": "run-1", "kind": "apply", "outcome": "Succeeded", "revision": "main@sha1:b8e362c206", "plan": "plan-main-b8",
		"add": "3", "change": "0", "destroy": "1", "event.toolkit.fluxcd.io/commit": "sha1:b8e362c206",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("runFacts() = %v, want %v", got, want)
	}
	if got := runFacts(stack.Run{ID: "run-1", Cause: stack.Cause{PlanInputs: stack.PlanInputs{Revision: "inline@sha256:0"}}}); got["event.toolkit.fluxcd.io/commit"] != "" {
		t.Errorf("runFacts() = %v; what is in no repository has no commit", got)
	}
}
