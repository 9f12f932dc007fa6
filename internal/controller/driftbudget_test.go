package controller

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan/usage"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/stack"
)

// due is a pass of a stack whose drift check is due, and which policies give budgets.
func due(id, namespace string, now time.Time, budgets ...policy.Budget) *pass {
	p := &pass{id: id, entry: &entry{id: id}, obj: &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: id}}}
	p.o.Now = now
	p.o.Spec = stack.Spec{Mode: stack.Auto, CheckDrift: true, Interval: time.Hour, Drift: policy.Drift{Budgets: budgets}}
	p.o.Status.PlannedAt = now.Add(-2 * time.Hour)
	p.decision.Action = stack.Wait{}
	return p
}

// Stacks of a tenant share its budget, and those of another tenant do not. What a stack waits for
// is in the record of its checks.
func TestDriftChecksShareABudget(t *testing.T) {
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	tenant := policy.Budget{Policy: "ClusterPolicy/p", Field: "spec.drift.budgets[0]", Per: policy.PerTenant, Checks: 60}
	blobs := openRecords(t)
	c := takeApart(&Stacks{Blobs: blobs})
	for _, tt := range []struct {
		name string
		p    *pass
		want time.Duration
	}{
		{"the first of a tenant", due("a", "one", now, tenant), 0},
		{"the second", due("b", "one", now, tenant), time.Minute},
		{"of another tenant", due("c", "two", now, tenant), 0},
		{"without a budget", due("d", "one", now), 0},
	} {
		if err := c.observeBudget(t.Context(), tt.p); err != nil {
			t.Fatal(err)
		}
		if err := c.writeNextCheck(t.Context(), tt.p); err != nil {
			t.Fatal(err)
		}
		if got := tt.p.o.BudgetUntil; got.IsZero() != (tt.want == 0) || !got.IsZero() && !got.Equal(now.Add(tt.want)) {
			t.Errorf("%s: the check waits until %v, want %s", tt.name, got, tt.want)
		}
	}
	k, err := record.Checked("b").Read(t.Context(), blobs)
	if want := "the tenant one, which spec.drift.budgets[0] of ClusterPolicy/p has"; err != nil || !k.Next.Equal(now.Add(time.Minute)) || !strings.Contains(k.Why, want) {
		t.Errorf("the record says %v %q, %v, want %q", k.Next, k.Why, err, want)
	}

	asked := due("b", "one", now, tenant)
	asked.o.Replan = "now"
	if err := c.observeBudget(t.Context(), asked); err != nil || !asked.o.BudgetUntil.IsZero() {
		t.Errorf("a check that a user requests waits until %v, %v", asked.o.BudgetUntil, err)
	}
}

// A record says when a stack is checked next and why, if that is not its interval. It is written when
// that changes, and not again.
func TestTheNextCheckIsWrittenDownOnce(t *testing.T) {
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	blobs := openRecords(t)
	c := takeApart(&Stacks{Blobs: blobs})
	after := func(p *pass) record.Check {
		t.Helper()
		if err := c.writeNextCheck(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		k, err := record.Checked(p.id).Read(t.Context(), blobs)
		if err != nil && fault.Of(err) != fault.Missing {
			t.Fatal(err)
		}
		return k
	}
	p := due("a", "one", now)
	if k := after(p); k != (record.Check{}) {
		t.Errorf("the record of a stack that is checked at its interval is %+v, want none", k)
	}
	p.o.Spec.Drift.Pace = policy.Pace{Policy: "ClusterPolicy/p", Min: time.Minute, Max: 24 * time.Hour}
	p.o.CheckedAt = now.Add(-time.Minute)
	k := after(p)
	if want := "spec.drift.interval of ClusterPolicy/p has pauses from 1m to 24h, and the pause is an eighth of the time since it was planned at 2026-02-28T22:00:00Z"; k.Why != want || k.Next.Sub(p.o.CheckedAt) < 10*time.Minute || k.Next.Sub(p.o.CheckedAt) > 15*time.Minute {
		t.Errorf("the record says %v %q, want 10 to 15 minutes after the last check, and %q", k.Next, k.Why, want)
	}
	if err := record.Checked("a").Write(t.Context(), blobs, record.Check{Why: "as it was"}); err != nil {
		t.Fatal(err)
	}
	if k := after(p); k.Why != "as it was" {
		t.Errorf("the record was written again: %+v", k)
	}
	p.o.Status.AppliedAt = now
	if k := after(p); !strings.Contains(k.Why, "since it was applied") || !k.Next.Before(now.Add(time.Minute+time.Second)) {
		t.Errorf("after an apply the record says %v %q, want the shortest pause", k.Next, k.Why)
	}
	p.o.Spec.Drift.Pace = policy.Pace{}
	if k := after(p); k.Why != "" {
		t.Errorf("without the policy the record says %q", k.Why)
	}
}

// Drift that was not known makes the next check come sooner. The same drift again does not.
func TestDriftThatIsKnownIsNoNews(t *testing.T) {
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	c := takeApart(&Stacks{Blobs: openRecords(t)})
	m, err := newMetrics(nil, false, &schedule.Budgets{})
	if err != nil {
		t.Fatal(err)
	}
	c.settler.metrics = m
	p := due("a", "one", now)
	check := func(at time.Time, digest string) time.Time {
		t.Helper()
		run := &stack.Run{Kind: stack.CheckRun, Plan: &stack.Plan{Digest: digest, Drift: true, Changes: stack.Changes{Change: 1}}}
		if err := c.settler.checked(t.Context(), p, &runner.Report{Kind: stack.CheckRun, Outcome: stack.Succeeded, Finished: at}, run); err != nil {
			t.Fatal(err)
		}
		p.o.Status.Pending, p.o.Status.Drift = run.Plan, &stack.Drift{At: at}
		return p.entry.checks.Drifted
	}
	if got := check(now, "d"); !got.Equal(now) {
		t.Errorf("drift was found at %v, want %v", got, now)
	}
	if got := check(now.Add(time.Hour), "d"); !got.Equal(now) {
		t.Errorf("the same drift counts as found at %v, want %v", got, now)
	}
	if got := check(now.Add(2*time.Hour), "e"); !got.Equal(now.Add(2 * time.Hour)) {
		t.Errorf("other drift was found at %v, want two hours later", got)
	}
}

// The stacks that use a provider share its budget, and what checks really took counts.
func TestDriftChecksShareTheBudgetOfAProvider(t *testing.T) {
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	aws := policy.Budget{Policy: "ClusterPolicy/p", Field: "spec.drift.budgets[0]", Per: policy.PerProvider, Provider: "*/hashicorp/aws", CPU: time.Minute}
	blobs := openRecords(t)
	for id, source := range map[string]string{"a": "registry.opentofu.org/hashicorp/aws", "b": "registry.opentofu.org/hashicorp/aws", "c": "registry.opentofu.org/hashicorp/google"} {
		uses := usage.Record{At: now, Usage: usage.Usage{Providers: []usage.Provider{{Source: source}}}}
		if err := record.Uses(id).Write(t.Context(), blobs, uses); err != nil {
			t.Fatal(err)
		}
	}
	c := takeApart(&Stacks{Blobs: blobs})
	begins := func(p *pass, want time.Duration) {
		t.Helper()
		if err := c.observeBudget(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if got := max(0, p.o.BudgetUntil.Sub(now)); got != want {
			t.Errorf("the check of %s waits %s, want %s", p.id, got, want)
		}
	}
	a := due("a", "one", now, aws)
	begins(a, 0)
	took := &runner.Report{Kind: stack.CheckRun, Outcome: stack.Succeeded, Steps: []runner.Step{{Name: "plan", CPU: time.Second}, {Name: "provider x", CPU: 2 * time.Second}}}
	if err := c.observeMemory(t.Context(), a, took); err != nil {
		t.Fatal(err)
	}
	if err := c.noteDriftCheck(t.Context(), a, now, false, cpuOf(took.Steps)); err != nil || a.entry.checks.CPU != 3*time.Second {
		t.Errorf("the record says that the check took %s, %v, want 3s", a.entry.checks.CPU, err)
	}
	begins(due("b", "two", now, aws), 3*time.Minute)
	begins(due("c", "one", now, aws), 0)
	begins(due("unknown", "one", now, aws), 0)
}
