package controller

import (
	"testing"
	"time"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/stack"
)

func TestProgressWithoutAReaderIsWrittenLate(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	run := func(kind stack.RunKind) *stack.Run { return &stack.Run{ID: "run-2", Kind: kind, Since: now} }
	for name, tt := range map[string]struct {
		change func(*pass)
		want   time.Duration
	}{
		"a plan":                        {func(p *pass) { p.o.Run = run(stack.PlanRun) }, Patience},
		"an apply":                      {func(p *pass) { p.o.Run = run(stack.ApplyRun) }, Patience},
		"a turn to come":                {func(p *pass) { p.o.Queued = "4 runs are at work" }, Patience},
		"nothing is under way":          {func(*pass) {}, 0},
		"a person approves each plan":   {func(p *pass) { p.o.Run, p.o.Spec.Mode = run(stack.ApplyRun), stack.Manual }, 0},
		"a person asked for it":         {func(p *pass) { p.o.Run, p.o.Replan = run(stack.PlanRun), "now" }, 0},
		"a person deletes it":           {func(p *pass) { p.o.Queued, p.o.Deleting = "4 runs are at work", true }, 0},
		"a person looks at a preview":   {func(p *pass) { p.o.Run = run(stack.PreviewRun) }, 0},
		"a run has ended":               {func(p *pass) { p.o.Queued, p.ended = "4 runs are at work", run(stack.PlanRun) }, 0},
		"something was remembered, too": {func(p *pass) { p.o.Run, p.o.Status.LastRun = run(stack.PlanRun), "run-1" }, 0},
		"it has just become a problem":  {func(p *pass) { p.o.Queued, p.o.Status.Failures = "4 runs are at work", 1 }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := takeApart(&Stacks{Dialects: dialect.NewRegistry(infra.Dialect{}), Config: Config{Patience: Patience}})
			before, after := &v1alpha2.Terraform{}, &v1alpha2.Terraform{}
			d := stack.Decision{Ready: stack.Reconciling, Reason: stack.Applying, Message: "Waiting for its turn"}
			infra.Dialect{}.Encode(before, dialect.Summary{Decision: d, Now: now})
			p := &pass{dialect: infra.Dialect{}, id: "one", entry: &entry{id: "one"}, obj: after}
			p.o.Now, p.o.Spec.Mode = now, stack.Auto
			tt.change(p)
			d.Message = "Applying"
			infra.Dialect{}.Encode(after, dialect.Summary{Decision: d, Status: p.o.Status, Run: p.o.Run, Now: now})
			if got := c.statusDebounce(p, before); got != tt.want {
				t.Fatalf("statusDebounce() = %s, want %s", got, tt.want)
			}
			if tt.want == 0 {
				return
			}
			p.o.Now = now.Add(Patience - time.Second)
			if got := c.statusDebounce(p, before); got != time.Second {
				t.Errorf("after %s: statusDebounce() = %s, want 1s", p.o.Now.Sub(now), got)
			}
			p.o.Now = now.Add(Patience)
			if got := c.statusDebounce(p, before); got != 0 {
				t.Errorf("after %s: statusDebounce() = %s, want it told", Patience, got)
			}
			p.entry.debouncedAt = time.Time{}
			if got := c.statusDebounce(p, before); got != Patience {
				t.Errorf("the next time: statusDebounce() = %s, want %s", got, Patience)
			}
			c.committer.config.Patience = 0
			if got := c.statusDebounce(p, before); got != 0 {
				t.Errorf("without patience: statusDebounce() = %s", got)
			}
		})
	}
}
