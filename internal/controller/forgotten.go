package controller

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/review"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// forgottenRecord is the record of the resources that the runs of a stack forgot.
func forgottenRecord(id string) record.Of[kube.Forgotten] {
	return record.At[kube.Forgotten](record.Retained(id, record.ForgottenFile))
}

// forgottenBefore reads that record. It is empty if no run forgot anything.
func forgottenBefore(ctx context.Context, blobs records.Blobs, id string) (kube.Forgotten, error) {
	f, err := forgottenRecord(id).Read(ctx, blobs)
	if fault.Of(err) == fault.Missing {
		return kube.Forgotten{}, nil
	}
	return f, err
}

// keepForgotten records the resources that a run took out of the state and did not
// destroy, with what an import of them takes. A resource that an apply imported again
// leaves the record.
func (se *settler) keepForgotten(ctx context.Context, p *pass, r *runner.Report, n note) error {
	now, err := se.forgottenBy(ctx, p, r, n)
	if err != nil {
		return fmt.Errorf("reading what run %s forgot: %w", r.ID, err)
	}
	imports := n.Cause.Plan != nil && n.Cause.Plan.Changes.Import > 0
	if len(now) == 0 && !imports {
		return nil
	}
	kept, err := forgottenBefore(ctx, se.blobs, p.id)
	if err != nil {
		return err
	}
	all := stack.MergeForgotten(kept.Resources, now)
	if n.State != nil && (imports || r.Outcome != stack.Succeeded) {
		state, err := se.states.Newest(ctx, p.id, r, n.State)
		if err == nil {
			all, err = plan.StillForgotten(all, state)
		}
		if err != nil {
			return err
		}
	}
	switch {
	case slices.Equal(all, kept.Resources):
		return nil
	case len(all) == 0 && len(kept.GivenUp) == 0:
		return se.blobs.Delete(ctx, forgottenRecord(p.id).Key)
	default:
		kept = kube.Forgotten{Stack: client.ObjectKeyFromObject(p.obj).String(), Kind: se.dialects.Word(p.dialect), UID: p.id, Resources: all, GivenUp: kept.GivenUp}
		return forgottenRecord(p.id).Write(ctx, se.blobs, kept)
	}
}

// forgottenBy lists the resources that a run forgot, or may have. They are in its
// plan alone: the engine reports nothing of them when it applies.
func (se *settler) forgottenBy(ctx context.Context, p *pass, r *runner.Report, n note) ([]stack.ForgottenResource, error) {
	began := r.Outcome == stack.Succeeded || r.Outcome == stack.Killed ||
		slices.ContainsFunc(r.Steps, func(s runner.Step) bool { return s.Name == "apply" })
	if !began || r.Untouched || r.Outcome == stack.Stale || r.Outcome == stack.Locked {
		return nil, nil
	}
	var doc []byte
	var err error
	switch made := n.Cause.Plan; {
	case r.Kind == stack.DestroyRun, r.Kind == stack.ScriptRun:
		doc, err = se.records.Left(p.id, r.ID, runner.FilePlanDoc) // it is left only by a destroy that forgets
	case r.Kind == stack.ApplyRun && made != nil && made.Changes.Forget > 0:
		doc, err = se.records.Get(ctx, record.Plan(p.id, made.Digest, string(review.Masked)))
		if fault.Of(err) == fault.Missing {
			se.log.Error("the resources that a run forgot are not recorded: its plan is missing", "stack", r.Name, "run", r.ID, "forgotten", made.Changes.Forget)
			return nil, nil
		}
	}
	if err != nil || doc == nil {
		return nil, err
	}
	read, err := plan.ParseDocument(doc)
	if err != nil {
		return nil, err
	}
	out := read.Forgotten()
	for i := range out {
		out[i].Run, out[i].At = r.ID, r.Finished
		out[i].Unsure = n.State == nil && r.Outcome != stack.Succeeded
	}
	return out, nil
}
