package controller

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/drift"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/plan/usage"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/stack"
)

// A drift check that finds nothing must not cost a write to the API server, so
// what checks leave of a stack is a record beside its status.

// driftRecords knows when drift was checked last, when the next check may begin, and what memory
// runs take.
type driftRecords struct {
	blobs   records.Blobs
	config  Config
	log     *slog.Logger
	budgets *schedule.Budgets
	share   func() float64 // of the budgets that this controller has
}

// driftChecks returns what is known of a stack, from its record the first time.
func (ck *driftRecords) driftChecks(ctx context.Context, e *entry) (record.Check, error) {
	if e.checks != nil {
		return *e.checks, nil
	}
	k, err := record.Checked(e.id).Read(ctx, ck.blobs)
	if fault.Of(err) == fault.Missing || fault.Reason(err, "") == blob.Damaged || fault.Reason(err, "") == blob.KeyUnknown {
		k, err = record.Check{}, nil // the next drift check writes it again
	}
	if err != nil {
		return record.Check{}, fmt.Errorf("reading when drift was checked: %w", err)
	}
	e.checks = &k
	return k, nil
}

// noteDriftCheck writes down that drift was checked, whether there was any that was not known yet,
// and when the next check is due. Drift that is known, and waits for a user, is no reason to check
// oftener.
func (ck *driftRecords) noteDriftCheck(ctx context.Context, p *pass, at time.Time, found bool, took time.Duration) error {
	k, err := ck.driftChecks(ctx, p.entry)
	if err != nil {
		return err
	}
	if k.At = at.UTC(); found {
		k.Drifted = k.At
	}
	k.CPU = took
	o := p.o
	o.CheckedAt, o.DriftedAt = k.At, k.Drifted
	next, why := stack.NextCheck(o)
	k.Next, k.Why = next.UTC(), why
	return ck.putDriftChecks(ctx, p.entry, k)
}

func (ck *driftRecords) putDriftChecks(ctx context.Context, e *entry, k record.Check) error {
	if err := record.Checked(e.id).Write(ctx, ck.blobs, k); err != nil {
		return err
	}
	e.checks = &k
	return nil
}

// observeBudget finds out whether a drift check that is due may begin now, if policies bound how
// many there are. What a user requests, and what follows from a change, asks no budget.
func (ck *driftRecords) observeBudget(ctx context.Context, p *pass) error {
	if len(p.o.Spec.Drift.Budgets) == 0 {
		ck.budgets.Drop(p.id)
		return nil
	}
	due, pause, ok := stack.DueCheck(p.o)
	if !ok {
		ck.budgets.Leave(p.id)
		return nil
	}
	k, err := ck.driftChecks(ctx, p.entry)
	if err != nil {
		return err
	}
	draws, err := ck.draws(ctx, p)
	if err != nil {
		return err
	}
	p.turn = ck.budgets.Ask(p.id, schedule.Wish{Due: due, Pause: pause, Takes: k.CPU, Share: ck.share(), Draws: draws}, p.o.Now)
	p.o.BudgetUntil = p.turn.Ask
	return nil
}

// nearly is how much the time of the next check has to differ from the one in the record to be
// worth a write, as a part of the wait; and the least that is.
const (
	nearly       = 4
	nearlyAlways = time.Minute
)

// writeNextCheck keeps in the record of checks when drift of a stack that waits is checked next, and
// why then, so that users see it: the budget that the check waits for, or the policy from which the
// pause follows. Other stacks are checked at their interval, which the object has.
func (ck *driftRecords) writeNextCheck(ctx context.Context, p *pass) error {
	if _, waits := p.decision.Action.(stack.Wait); !waits || p.o.Run != nil || p.o.Deleting || p.o.Spec.Suspended || p.o.Blocked != nil {
		return nil
	}
	k, err := ck.driftChecks(ctx, p.entry)
	if err != nil {
		return err
	}
	next, why := stack.NextCheck(p.o)
	if p.turn != (schedule.Delay{}) {
		next, why = p.turn.Expected, waitsFor(p.turn)
	}
	next = next.UTC()
	differs := max(nearlyAlways, next.Sub(p.o.Now)/nearly)
	if why == k.Why && (why == "" || next.Sub(k.Next).Abs() <= differs) {
		return nil
	}
	k.Next, k.Why = next, why
	return ck.putDriftChecks(ctx, p.entry, k)
}

// waitsFor says what a check that is due waits for.
func waitsFor(t schedule.Delay) string {
	why := "the check is due, and waits for a budget of drift checks: that of " + t.Of
	if t.Raised {
		why += ". The budget is too small: it counts as one that checks each of its stacks once in its maxDelay"
	}
	if !t.Latest.IsZero() {
		why += ". The check begins at " + t.Latest.UTC().Format(time.RFC3339) + " at the latest"
	}
	return why
}

// draws are the budgets that a drift check of the stack is counted in. Which providers the stack
// uses is known from its last plan; before that it is in the budgets of its tenant alone.
func (ck *driftRecords) draws(ctx context.Context, p *pass) ([]schedule.Draw, error) {
	var out []schedule.Draw
	var uses usage.Record
	if slices.ContainsFunc(p.o.Spec.Drift.Budgets, func(b policy.Budget) bool { return b.Per == policy.PerProvider }) {
		var err error
		uses, err = record.Uses(p.id).Read(ctx, ck.blobs)
		if fault.Of(err) == fault.Missing || fault.Reason(err, "") == blob.Damaged || fault.Reason(err, "") == blob.KeyUnknown {
			uses, err = usage.Record{}, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading which providers the stack uses: %w", err)
		}
	}
	draw := func(b policy.Budget, who string) {
		d := schedule.Draw{Of: b.For(who), Checks: b.Checks, CPU: b.CPU, MaxDelay: b.MaxDelay}
		if !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	for _, b := range p.o.Spec.Drift.Budgets {
		if b.Per == policy.PerTenant {
			draw(b, tenantOf(ck.config, p.obj))
			continue
		}
		for _, used := range uses.Usage.Providers {
			if b.Of(used.Source) {
				draw(b, used.Source)
			}
		}
	}
	return out, nil
}

// cpuOf is the processor time that the processes of a run took.
func cpuOf(steps []runner.Step) time.Duration {
	var out time.Duration
	for _, s := range steps {
		out += max(0, s.CPU)
	}
	return out
}

// judgeDrift finds which attributes of what a plan or a drift check found may drift. The run
// takes it into the status; the pass keeps it for the steps that come after.
func judgeDrift(se *settler, p *pass, r *runner.Report, n note, run *stack.Run) error {
	p.tolerated = drift.Judgement{}
	kind := r.Kind == stack.PlanRun || r.Kind == stack.CheckRun
	rules := p.o.Spec.Drift.Tolerate
	if !kind || r.Outcome != stack.Succeeded || r.Changes.None() || n.Cause.Destroy || p.o.Deleting || len(rules) == 0 {
		return nil
	}
	left, err := se.records.Left(p.id, r.ID, runner.FilePlanDoc)
	if err != nil || left == nil {
		return err
	}
	doc, err := plan.ParseDocument(left)
	if err != nil {
		return fmt.Errorf("reading the plan of %s: %w", r.ID, err)
	}
	applied := p.o.Status.Applied
	asked := applied == nil || len(applied.PlanInputs.Differs(n.Cause.PlanInputs)) > 0
	if p.o.Spec.Mode == stack.DriftOnly && !p.o.Spec.Force {
		asked = false // nothing is ever applied
	}
	p.tolerated = drift.Judge(doc, rules, asked, r.Finished)
	run.Tolerated = p.tolerated.Tolerated
	return nil
}
