package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/review"
	"github.com/terrier-iac/terrier/internal/stack"
)

// review takes the verdict of the reviewers into the status, or has them asked.
func (ac *actor) review(ctx context.Context, p *pass, made stack.Plan) error {
	q, err := ac.question(p, made)
	if err != nil {
		return err
	}
	if !ac.reviews.Asked(q) {
		if err := ac.loader.confirm(ctx, p); err != nil {
			return err // reviewers that are no longer wanted may not be shown a plan
		}
		ac.reviews.Ask(q)
	}
	r, answered := ac.reviews.Answer(q)
	switch {
	case !answered:
		p.o.Asking = true // the answer wakes the stack
		return nil
	case r.Lost != nil:
		return p.lost(made, r.Lost)
	}
	p.o.Status.Review = &r.Verdict
	return nil
}

// question puts together what the reviewers of a stack are asked about a plan.
func (ac *actor) question(p *pass, made stack.Plan) (review.Question, error) {
	key := client.ObjectKeyFromObject(p.obj)
	q := review.Question{
		Stack: p.id, Namespace: key.Namespace, Wake: func() { ac.wakes.add(p.entry.objectRef) },
		By: p.o.Spec.Reviews, Reviewers: ac.reviewers.Of(p.st.Configuration), Hide: plan.NewRedactor(p.in.Mask),
		Plan: &review.Plan{
			Digest: made.Digest,
			Open: func(ctx context.Context, d review.Document) (io.ReadCloser, error) {
				return ac.blobs.Get(ctx, record.Plan(p.id, made.Digest, string(d)))
			},
		},
	}
	past := ""
	if r := p.o.Status.Review; r != nil {
		past = r.At.String()
	}
	q.ID = stack.Digest([]any{made.Digest, q.By, past})
	obj := p.obj.DeepCopyObject().(client.Object)
	obj.SetManagedFields(nil)
	gvk, err := ac.live.GroupVersionKindFor(obj)
	if err != nil {
		return q, err
	}
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	b, err := json.Marshal(obj)
	if err == nil {
		err = json.Unmarshal(b, &q.Plan.Object)
	}
	return q, err
}

// ask asks the reviewers; the pool calls it.
func (c *Stacks) ask(ctx context.Context, q review.Question) review.Reply {
	return review.Ask(ctx, q, c.Now)
}

// reviewable refuses a stack whose webhooks would see more than the platform
// shows.
func (jb *jobs) reviewable(c stack.Configuration) error {
	if c.Unmasked && len(c.Webhooks) > 0 && !jb.reviewers.Webhooks.Unmasked {
		return fault.New(fault.Denied, "", errors.New("terrier.dev/webhook-plan: this platform shows webhooks no secrets (its operator can allow it with --allow-unmasked-plans); remove the annotation to have them asked about the masked plan"))
	}
	return nil
}

// lost has a plan made again whose record cannot be found; it is never guessed.
func (p *pass) lost(made stack.Plan, err error) error {
	p.o.Status.Pending, p.o.Status.Planned = nil, stack.PlanInputs{}
	p.o.Status.PlanNote = "the saved plan " + made.Name + " could not be found"
	return fault.New(fault.Conflict, "PlanLost", fmt.Errorf("reading plan %s: %w", made.Name, err))
}
