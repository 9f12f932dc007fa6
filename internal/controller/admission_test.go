package controller

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

func TestClassOf(t *testing.T) {
	was := stack.PlanInputs{Source: "s", Inputs: "i", Shape: "p", Engine: "e"}
	known := stack.Status{Planned: was, Applied: &stack.Plan{}}
	failed := func(of stack.PlanInputs) stack.Status {
		return stack.Status{Failures: 1, FailedFor: of, FailedKind: stack.ApplyRun}
	}
	basis := func(change func(*stack.PlanInputs)) stack.PlanInputs { b := was; change(&b); return b }
	for name, tt := range map[string]struct {
		kind  stack.RunKind
		cause stack.Cause
		o     stack.Observation
		want  class
	}{
		"an apply":                                   {stack.ApplyRun, stack.Cause{}, stack.Observation{Status: known, PlanInputs: was}, writing},
		"a destroy":                                  {stack.DestroyRun, stack.Cause{}, stack.Observation{Status: known, Deleting: true}, writing},
		"the plan of a destroy":                      {stack.PlanRun, stack.Cause{Destroy: true}, stack.Observation{Status: known, Deleting: true}, writing},
		"a command of a person":                      {stack.GlassRun, stack.Cause{}, stack.Observation{Status: known, PlanInputs: was}, asked},
		"a plan that a person asked for":             {stack.PlanRun, stack.Cause{Request: "r"}, stack.Observation{Status: known, PlanInputs: was}, asked},
		"a look that a person asked for":             {stack.CheckRun, stack.Cause{Request: "r"}, stack.Observation{Status: known, PlanInputs: was}, asked},
		"a preview":                                  {stack.PreviewRun, stack.Cause{Preview: "v"}, stack.Observation{Status: known, PlanInputs: was}, asked},
		"a lock that a person breaks":                {stack.PlanRun, stack.Cause{Unlock: "l"}, stack.Observation{Status: failed(was), PlanInputs: was, Spec: stack.Spec{Unlock: stack.Unlock{ID: "l"}}}, asked},
		"a lock that is broken by itself":            {stack.PlanRun, stack.Cause{Unlock: "l"}, stack.Observation{Status: failed(was), PlanInputs: was, Spec: stack.Spec{Unlock: stack.Unlock{Auto: true}}}, upstream},
		"a new stack":                                {stack.PlanRun, stack.Cause{}, stack.Observation{PlanInputs: was}, changed},
		"a change of the spec":                       {stack.PlanRun, stack.Cause{}, stack.Observation{Status: known, PlanInputs: basis(func(b *stack.PlanInputs) { b.Shape, b.Source = "q", "t" })}, changed},
		"a change of the source":                     {stack.PlanRun, stack.Cause{}, stack.Observation{Status: known, PlanInputs: basis(func(b *stack.PlanInputs) { b.Source = "t" })}, upstream},
		"a change of the inputs":                     {stack.PlanRun, stack.Cause{}, stack.Observation{Status: known, PlanInputs: basis(func(b *stack.PlanInputs) { b.Inputs = "j" })}, upstream},
		"a change of the engine":                     {stack.CheckRun, stack.Cause{}, stack.Observation{Status: known, PlanInputs: basis(func(b *stack.PlanInputs) { b.Engine = "f" })}, upstream},
		"another attempt":                            {stack.PlanRun, stack.Cause{}, stack.Observation{Status: failed(was), PlanInputs: was}, upstream},
		"another attempt with another spec":          {stack.PlanRun, stack.Cause{}, stack.Observation{Status: failed(was), PlanInputs: basis(func(b *stack.PlanInputs) { b.Shape = "q" })}, changed},
		"a plan whose state changed":                 {stack.PlanRun, stack.Cause{}, stack.Observation{Status: stack.Status{Note: "the state changed"}, PlanInputs: was}, upstream},
		"the health of what was applied":             {stack.HealthRun, stack.Cause{}, stack.Observation{Status: known, PlanInputs: was}, changed},
		"a look for drift":                           {stack.CheckRun, stack.Cause{}, stack.Observation{Status: known, PlanInputs: was}, idle},
		"a plan because the interval is over":        {stack.PlanRun, stack.Cause{}, stack.Observation{Status: known, PlanInputs: was}, idle},
		"a revision of the same source is no change": {stack.CheckRun, stack.Cause{}, stack.Observation{Status: known, PlanInputs: basis(func(b *stack.PlanInputs) { b.Revision = "main@2" })}, idle},
	} {
		t.Run(name, func(t *testing.T) {
			if got := classOf(tt.kind, tt.cause, tt.o); got != tt.want {
				t.Errorf("classOf() = %s, want %s", got, tt.want)
			}
		})
	}
}

func TestATenantIsTheValueOfALabel(t *testing.T) {
	for name, tt := range map[string]struct{ label, want string }{
		"its label":              {"team", "blue"},
		"a label that it lacks":  {"owner", "ns"},
		"no label is looked for": {"", "ns"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &Stacks{Blobs: openRecords(t), Config: Config{TenantLabel: tt.label}}
			obj := &v1alpha2.Terraform{}
			obj.Namespace, obj.Name, obj.Labels = "ns", "s", map[string]string{"team": "blue"}
			if got := c.askOf(t.Context(), &pass{id: "uid", obj: obj, entry: &entry{id: "uid"}}, stack.CheckRun, stack.Cause{}).tenant; got != tt.want {
				t.Errorf("tenant = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestMemoryOf(t *testing.T) {
	got := memoryOf([]runner.Step{{Name: "init", MaxRSS: 90}, {Name: "plan", MaxRSS: 100}, {Name: "show", MaxRSS: 40}, {Name: "provider a/b/c", MaxRSS: 300}, {Name: "provider a/b/d", MaxRSS: 20}})
	if got != 420 {
		t.Errorf("memoryOf() = %d, want the largest engine and all providers", got)
	}
}

// writes counts what is written to records.
type writes struct {
	Blobs
	n int
}

func (w *writes) Put(ctx context.Context, key string, r io.Reader) error {
	w.n++
	return w.Blobs.Put(ctx, key, r)
}

// What runs take is known after a restart, and a look for drift that finds
// nothing costs no write more for it.
func TestMemoryOfRunsIsRemembered(t *testing.T) {
	ctx := t.Context()
	blobs := &writes{Blobs: openRecords(t)}
	c := &Stacks{Blobs: blobs}
	p := &pass{id: "uid", entry: &entry{id: "uid"}}
	run := func(kind stack.RunKind, mib int64) *runner.Report {
		return &runner.Report{Kind: kind, Outcome: stack.Succeeded, Finished: time.Unix(1e9, 0), Steps: []runner.Step{{Name: "plan", MaxRSS: mib << 20}}}
	}
	after := func(c *Stacks, e *entry) int64 { return c.charge(ctx, e, stack.PlanRun) >> 20 }

	if got := after(c, p.entry); got != unknownMemory>>20 {
		t.Errorf("before any run: %d MiB, want what is unknown", got)
	}
	for _, step := range []struct {
		name   string
		run    *runner.Report
		want   int64
		writes int
	}{
		{"a run", run(stack.ApplyRun, 250), 256, 1},
		{"the same again", run(stack.ApplyRun, 256), 256, 0},
		{"one that takes more", run(stack.PlanRun, 1000), 1008, 1},
		{"one that takes much less", run(stack.PlanRun, 10), 768, 1},
		{"one that asks for health", run(stack.HealthRun, 5000), 768, 0},
		{"a quiet look", run(stack.CheckRun, 740), 752, 0},
	} {
		blobs.n = 0
		if err := c.weigh(ctx, p, step.run); err != nil {
			t.Fatal(err)
		}
		if got := after(c, p.entry); got != step.want || blobs.n != step.writes {
			t.Errorf("after %s: %d MiB and %d writes, want %d and %d", step.name, got, blobs.n, step.want, step.writes)
		}
	}
	if err := c.looked(ctx, p, run(stack.CheckRun, 740)); err != nil {
		t.Fatal(err)
	}
	if blobs.n != 1 {
		t.Errorf("a quiet look cost %d writes, want one", blobs.n)
	}
	restarted := &Stacks{Blobs: blobs, Config: Config{Limits: runner.Limits{Memory: 700 << 20}}}
	if got := after(restarted, &entry{id: "uid"}); got != 700 {
		t.Errorf("after a restart: %d MiB, want what was known, bounded by what a run may take", got)
	}
	if known, err := restarted.driftChecks(ctx, &entry{id: "uid"}); err != nil || !known.At.Equal(time.Unix(1e9, 0)) {
		t.Errorf("driftChecks() = %v, %v; want the time of the check", known, err)
	}
}

// atWork are runs that were found.
type atWork struct {
	Runs
	reports []runner.Report
	fail    error
}

func (a atWork) List() ([]runner.Report, error) { return a.reports, a.fail }

// A controller that has just started admits no more than what an earlier one
// has left room for, although it has looked at none of its stacks.
func TestRunsFoundAtWorkCount(t *testing.T) {
	ctx := t.Context()
	found := atWork{}
	for i, phase := range []runner.Phase{runner.Planning, runner.Applying, runner.Starting, runner.Done} {
		found.reports = append(found.reports, runner.Report{Stack: fmt.Sprint("found-", i), Name: fmt.Sprint("ns/found-", i), Phase: phase})
	}
	c := &Stacks{Blobs: openRecords(t), Runs: found, queue: newQueue(limits{runs: 4}, func(types.NamespacedName) {}, time.Now), Log: slog.New(slog.DiscardHandler)}
	if err := c.countRuns(ctx); err != nil {
		t.Fatal(err)
	}
	admit := func(id string) string { return c.queue.admit(id, ask{key: nn("ns", id), tenant: "ns"}) }
	if why := admit("new-1"); why != "" {
		t.Errorf("admit() = %q, want the one slot that is left", why)
	}
	if why := admit("new-2"); why == "" {
		t.Error("a fifth run was admitted")
	}
	// The stack of the first run is looked at, and of the second nothing is seen
	// but its end.
	c.queue.took("found-0", ask{key: nn("ns", "found-0"), tenant: "team"})
	c.queue.ended("found-0")
	if why := admit("new-2"); why == "" {
		t.Error("the slot of a run went to another before its end was recorded")
	}
	c.queue.ended("found-1")
	if why := admit("new-2"); why != "" {
		t.Errorf("admit() = %q, want the slot of the run that ended", why)
	}
	var seen []string
	for _, tenant := range c.Backlog().Tenants {
		seen = append(seen, fmt.Sprint(tenant.Tenant, "=", tenant.AtWork))
	}
	if got := strings.Join(seen, " "); got != "ns=3 team=1" {
		t.Errorf("at work: %s, want the tenant of the run that was looked at, and the namespace of the others", got)
	}
}

func TestBacklogAndPlace(t *testing.T) {
	y := newYard(limits{runs: 1, perTenant: 9, memory: 1 << 30})
	start := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	now := start
	y.now = func() time.Time { now = now.Add(time.Second); return now }
	y.want("0", "a", changed, 100)
	y.want("1", "a", idle, 100)
	y.want("2", "b", asked, 100)
	y.want("3", "b", idle, 100)
	y.want("4", "b", idle, 100)
	c := &Stacks{queue: y.queue}
	got, ok := c.Place("4")
	want := stack.Place{Class: "drift", Tenant: "b", Since: start.Add(6 * time.Second), Before: 2, Others: 1, Why: "Waiting for its turn: 1 runs may be at work at once"}
	if diff := cmp.Diff(want, got); !ok || diff != "" {
		t.Errorf("Place() (-want +got):\n%s", diff)
	}
	if _, ok := c.Place("0"); ok {
		t.Error("a stack at work has a place in the line")
	}
	backlog := stack.Backlog{
		AtWork: 1, MaxRuns: 1, MaxPerTenant: 9, Memory: 100 << 20, MaxMemory: 1 << 30, Waiting: 4, OldestSince: start.Add(3 * time.Second),
		Classes: []stack.ClassBacklog{
			{Class: "apply"}, {Class: "person", Waiting: 1, OldestSince: start.Add(4 * time.Second)}, {Class: "spec"}, {Class: "upstream"},
			{Class: "drift", Waiting: 3, OldestSince: start.Add(3 * time.Second)},
		},
		Tenants: []stack.TenantBacklog{
			{Tenant: "a", AtWork: 1, Memory: 100 << 20, Waiting: map[string]int{"drift": 1}, OldestSince: start.Add(3 * time.Second)},
			{Tenant: "b", Waiting: map[string]int{"drift": 2, "person": 1}, OldestSince: start.Add(4 * time.Second)},
		},
	}
	if diff := cmp.Diff(backlog, c.Backlog()); diff != "" {
		t.Errorf("Backlog() (-want +got):\n%s", diff)
	}
	y.lazy = true
	y.leave("0")
	if got, ok := c.Place("2"); !ok || !got.Called {
		t.Errorf("Place() = %+v, %v; want that it is its turn", got, ok)
	}
}

func TestARunKnowsHowLongItWaited(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	q := newQueue(limits{runs: 1}, func(types.NamespacedName) {}, func() time.Time { return now })
	admit := func(id string) string { return q.admit(id, ask{key: nn("ns", id), tenant: "ns"}) }
	if why := admit("first"); why != "" {
		t.Fatalf("admit() = %q, want the slot", why)
	}
	if why := admit("second"); why == "" {
		t.Fatal("a second run was admitted")
	}
	now = now.Add(5 * time.Second)
	q.leave("first")
	now = now.Add(time.Second)
	if why := admit("second"); why != "" {
		t.Fatalf("admit() = %q, want the slot that became free", why)
	}
	for id, want := range map[string]time.Duration{"second": 6 * time.Second, "first": 0, "unheard of": 0} {
		if got := q.waitOf(id); got != want {
			t.Errorf("waitOf(%q) = %v, want %v", id, got, want)
		}
	}
}
