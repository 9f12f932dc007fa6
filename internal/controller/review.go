package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
)

// question is what the webhooks of a stack are asked. It holds all that it
// takes to ask: by then the pass that asked is over.
type question struct {
	stack string // the UID
	id    string // the same for the same question after the same past
	key   types.NamespacedName

	plan   stack.Plan
	by     string // digest of the webhooks
	hooks  []stack.Webhook
	record string // the key of the plan's document
	object map[string]json.RawMessage
	hide   *plan.Redactor
}

// review takes the verdict of the webhooks into the status, or has them asked.
func (c *Stacks) review(ctx context.Context, p *pass, made stack.Plan) error {
	q, err := c.question(p, made)
	if err != nil {
		return err
	}
	if !c.reviews.asked(q) {
		if err := c.current(ctx, p); err != nil {
			return err // webhooks that are no longer wanted may not be shown a plan
		}
	}
	r, answered := c.reviews.answer(q)
	switch {
	case !answered:
		p.o.Asking = true // the answer wakes the stack
		return nil
	case r.lost != nil:
		return p.lost(made, r.lost)
	}
	p.o.Status.Review = &r.verdict
	return nil
}

// question puts together what is asked about a plan.
func (c *Stacks) question(p *pass, made stack.Plan) (question, error) {
	q := question{
		stack: p.id, key: client.ObjectKeyFromObject(p.obj),
		plan: made, by: p.o.Spec.Reviews, hooks: p.st.Configuration.Webhooks,
		record: record.Plan(p.id, made.Digest, planDocument(p.st.Configuration)),
		hide:   plan.NewRedactor(p.in.Mask),
	}
	past := ""
	if r := p.o.Status.Review; r != nil {
		past = r.At.String()
	}
	q.id = stack.Digest([]any{made.Digest, q.by, past})
	obj := p.obj.DeepCopyObject().(client.Object)
	obj.SetManagedFields(nil)
	gvk, err := c.Live.GroupVersionKindFor(obj)
	if err != nil {
		return q, err
	}
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	b, err := json.Marshal(obj)
	if err == nil {
		err = json.Unmarshal(b, &q.object)
	}
	return q, err
}

// The names under which the document of a plan is kept, without and with the
// secrets in it.
const (
	documentMasked = "plan.json"
	documentRaw    = "plan-raw.json"
)

// planDocument is what webhooks are shown of a plan.
func planDocument(p stack.Configuration) string {
	if p.Unmasked {
		return documentRaw
	}
	return documentMasked
}

// reviewable refuses a stack whose webhooks would see more than the platform
// shows.
func (c *Stacks) reviewable(p stack.Configuration) error {
	if p.Unmasked && len(p.Webhooks) > 0 && !c.Webhooks.Unmasked {
		return fault.New(fault.Denied, "", errors.New("terrier.dev/webhook-plan: this platform shows webhooks no secrets (its operator can allow it with --allow-unmasked-plans); remove the annotation to have them asked about the masked plan"))
	}
	return nil
}

// lost has a plan made again whose record cannot be found; it is never guessed.
func (p *pass) lost(made stack.Plan, err error) error {
	p.o.Status.Pending, p.o.Status.Planned = nil, stack.PlanInputs{}
	p.o.Status.Note = "the saved plan " + made.Name + " could not be found"
	return fault.New(fault.Conflict, "PlanLost", fmt.Errorf("reading plan %s: %w", made.Name, err))
}
