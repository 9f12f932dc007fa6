package controller

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/drift"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// A drift check that finds nothing must not cost a write to the API server, so
// what checks leave of a stack is a record beside its status.

// driftRecords knows when drift was checked last, and what memory runs take.
type driftRecords struct {
	blobs  records.Blobs
	config Config
	log    *slog.Logger
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

// noteDriftCheck writes down that drift was checked.
func (ck *driftRecords) noteDriftCheck(ctx context.Context, e *entry, at time.Time) error {
	k, err := ck.driftChecks(ctx, e)
	if err != nil {
		return err
	}
	k.At = at.UTC()
	return ck.putDriftChecks(ctx, e, k)
}

func (ck *driftRecords) putDriftChecks(ctx context.Context, e *entry, k record.Check) error {
	if err := record.Checked(e.id).Write(ctx, ck.blobs, k); err != nil {
		return err
	}
	e.checks = &k
	return nil
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
