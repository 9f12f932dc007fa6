package controller

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/stack"
)

func nn(ns, name string) types.NamespacedName { return types.NamespacedName{Namespace: ns, Name: name} }

// queueOf is a queue with so many slots.
func queueOf(runs int) *schedule.Queue {
	return schedule.New(schedule.Limits{Runs: runs}.Always(), schedule.Clock{
		Now: time.Now, After: func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop },
	})
}

func TestATenantIsTheValueOfALabel(t *testing.T) {
	for name, tt := range map[string]struct{ label, want string }{
		"its label":              {"team", "blue"},
		"a label that it lacks":  {"owner", "ns"},
		"no label is looked for": {"", "ns"},
	} {
		t.Run(name, func(t *testing.T) {
			c := takeApart(&Stacks{Blobs: openRecords(t), Config: Config{TenantLabel: tt.label}})
			obj := &v1alpha2.Terraform{}
			obj.Namespace, obj.Name, obj.Labels = "ns", "s", map[string]string{"team": "blue"}
			if got := c.candidate(t.Context(), &pass{dialect: infra.Dialect{}, id: "uid", obj: obj, entry: &entry{id: "uid"}}, stack.CheckRun, stack.Cause{}).Tenant; got != tt.want {
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
	records.Blobs
	n int
}

func (w *writes) Put(ctx context.Context, key string, r io.Reader) error {
	w.n++
	return w.Blobs.Put(ctx, key, r)
}

// What runs take is known after a restart, and a drift check that finds
// nothing costs no write more for it.
func TestMemoryOfRunsIsRemembered(t *testing.T) {
	ctx := t.Context()
	blobs := &writes{Blobs: openRecords(t)}
	c := takeApart(&Stacks{Blobs: blobs})
	p := &pass{dialect: infra.Dialect{}, id: "uid", entry: &entry{id: "uid"}}
	run := func(kind stack.RunKind, mib int64) *runner.Report {
		return &runner.Report{Kind: kind, Outcome: stack.Succeeded, Finished: time.Unix(1e9, 0), Steps: []runner.Step{{Name: "plan", MaxRSS: mib << 20}}}
	}
	after := func(c *apart, e *entry) int64 { return c.memoryFor(ctx, e, stack.PlanRun) >> 20 }

	if got := after(c, p.entry); got != schedule.UnknownMemory>>20 {
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
		{"one of steps after an apply", run(stack.StepsRun, 5000), 768, 1},
		{"a quiet look", run(stack.CheckRun, 740), 752, 0},
	} {
		blobs.n = 0
		if err := c.observeMemory(ctx, p, step.run); err != nil {
			t.Fatal(err)
		}
		if got := after(c, p.entry); got != step.want || blobs.n != step.writes {
			t.Errorf("after %s: %d MiB and %d writes, want %d and %d", step.name, got, blobs.n, step.want, step.writes)
		}
	}
	if err := c.checked(ctx, p, run(stack.CheckRun, 740), &stack.Run{}); err != nil {
		t.Fatal(err)
	}
	if blobs.n != 1 {
		t.Errorf("a quiet check cost %d writes, want one", blobs.n)
	}
	if got := c.memoryFor(ctx, p.entry, stack.StepsRun) >> 20; got != 5008 {
		t.Errorf("the next run of the steps: %d MiB, want what the last one took", got)
	}
	restarted := takeApart(&Stacks{Blobs: blobs, Config: Config{Limits: runner.Limits{Memory: 700 << 20}}})
	if got := after(restarted, &entry{id: "uid"}); got != 700 {
		t.Errorf("after a restart: %d MiB, want what was known, bounded by what a run may take", got)
	}
	if known, err := restarted.driftChecks(ctx, &entry{id: "uid"}); err != nil || !known.At.Equal(time.Unix(1e9, 0)) {
		t.Errorf("driftChecks() = %v, %v; want the time of the check", known, err)
	}
}

// foundRuns are runs that were found.
type foundRuns struct {
	runner.Runner
	reports []runner.Report
	fail    error
}

func (a foundRuns) List() ([]runner.Report, error) { return a.reports, a.fail }

// leftPods are the pods that ended runs left.
type leftPods struct {
	runner.Lingering
	of string // the stack
}

func (l leftPods) Remains(stack string) (left []runner.Remain) {
	if stack == l.of {
		left = append(left, runner.Remain{Stack: stack, Place: "pod", Namespace: "ns"})
	}
	return left
}

// A controller that has just started admits no more than what an earlier one
// has left room for, although it has reconciled none of its stacks.
func TestRunsThatAreFoundCount(t *testing.T) {
	ctx := t.Context()
	found := foundRuns{}
	for i, phase := range []runner.Phase{runner.Planning, runner.Applying, runner.Starting, runner.Done} {
		found.reports = append(found.reports, runner.Report{Stack: fmt.Sprint("found-", i), Name: fmt.Sprint("ns/found-", i), Phase: phase})
	}
	found.reports = append(found.reports, runner.Report{Stack: "found-3", Beside: "pr-1", Name: "ns/found-3", Phase: runner.Planning})
	queue := queueOf(4)
	c := takeApart(&Stacks{
		Dialects: dialect.NewRegistry(infra.Dialect{}), Blobs: openRecords(t), Runner: found, Queue: queue, Log: slog.New(slog.DiscardHandler),
		Lingering: leftPods{of: "found-1"},
	})
	if err := c.whole.countRuns(ctx); err != nil {
		t.Fatal(err)
	}
	admit := func(id string) string {
		return c.whole.Queue.Admit(id, schedule.Candidate{Key: objectRef{infra.Dialect{}, nn("ns", id)}.scheduleKey(), Tenant: "ns"})
	}
	if why := admit("new-1"); why != "" {
		t.Errorf("admit() = %q, want the one slot that is left", why)
	}
	if why := admit("new-2"); why == "" {
		t.Error("a fifth run was admitted")
	}
	// The stack of the first run is reconciled, and of the second nothing is seen
	// but its end.
	c.whole.Queue.Running("found-0", schedule.Candidate{Key: objectRef{infra.Dialect{}, nn("ns", "found-0")}.scheduleKey(), Tenant: "team"})
	hear := func(id string) {
		ended := make(chan string, 1)
		ended <- id
		close(ended)
		c.whole.listen(ctx, ended)
	}
	hear("found-0")
	if why := admit("new-2"); why == "" {
		t.Error("the slot of a run went to another before its end was recorded")
	}
	hear("found-1")
	if why := admit("new-2"); why == "" {
		t.Error("the slot of a run went to another before its pod had ended")
	}
	c.whole.Queue.Leave("found-1/pod")
	if why := admit("new-2"); why != "" {
		t.Errorf("admit() = %q, want the slot of the run that ended", why)
	}
	var seen []string
	for _, tenant := range queue.Backlog().Tenants {
		seen = append(seen, fmt.Sprint(tenant.Tenant, "=", tenant.Running))
	}
	if got := strings.Join(seen, " "); got != "ns=3 team=1" {
		t.Errorf("running: %s, want the tenant of the run that was reconciled, and the namespace of the others", got)
	}
}
