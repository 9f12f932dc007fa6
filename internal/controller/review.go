package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/controller/policies"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/review"
	"github.com/terrier-iac/terrier/internal/stack"
)

// review takes the verdict of the reviewers into the status, or has them asked.
func (ac *actor) review(ctx context.Context, p *pass, made stack.Plan) error {
	q := ac.question(p, made)
	p.inside = q.Inside
	v, err := ac.keptVerdict(ctx, p, q)
	if v != nil || err != nil {
		if v != nil {
			p.o.Status.Review = v
		}
		return err
	}
	r, answered := ac.reply(ctx, p, q)
	switch {
	case !answered:
		if !ac.reviews.Asked(q) {
			// Webhooks that are no longer wanted may not be shown a plan. Policies are of the
			// operator, and belong to the controller.
			if err := ac.confirmReviewers(ctx, p); err != nil {
				return err
			}
			if q.Plan.Object, err = ac.shown(ctx, p); err != nil {
				return err
			}
			ac.reviews.Ask(q)
		}
		p.o.Asking = true // the answer wakes the stack
		return nil
	case r.Lost != nil:
		return p.lost(made, r.Lost)
	}
	is := stack.Reviewed(p.o.Status, r.Verdict, p.o.Spec.ApprovedNames()...)
	if err := ac.keepVerdict(ctx, p, stack.Judged(is, r.Verdict, r.Judged)); err != nil {
		return err
	}
	p.o.Status = is
	return nil
}

// keptVerdict is the verdict that the same reviewers gave before this process began, nil if
// there is none: it need not be in the status. See more.
func (ac *actor) keptVerdict(ctx context.Context, p *pass, q review.Question) (*stack.Verdict, error) {
	if p.entry.verdictRead || p.policies.Guards && q.Inside {
		return nil, nil
	}
	p.entry.verdictRead = true
	j, err := record.Verdict(p.id, q.Plan.Digest).Read(ctx, ac.blobs)
	if reason := fault.Reason(err, ""); fault.Of(err) == fault.Missing || reason == blob.Damaged || reason == blob.KeyUnknown {
		return nil, nil
	}
	if err != nil || j.By != q.By {
		return nil, err
	}
	return stack.KeptVerdict(p.o.Status, j), nil
}

// asJudged reports whether the status has the verdict that was kept beside the plan which an
// action applies. The status alone is not trusted: users may have the right to write it.
func (ac *actor) asJudged(ctx context.Context, p *pass, a stack.Action) (bool, error) {
	made := appliedBy(p, a)
	if made == nil || stack.Reviewers(p.o) == "" {
		return true, nil
	}
	b, err := ac.records.Get(ctx, record.Plan(p.id, made.Digest, record.VerdictFile))
	if fault.Of(err) == fault.Missing {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the verdict of plan %s: %w", made.Name, err)
	}
	var j policy.Judgement
	if err := json.Unmarshal(b, &j); err != nil {
		return false, fmt.Errorf("reading the verdict of plan %s: %w", made.Name, err)
	}
	return stack.JudgedAs(p.o.Status, *made, j), nil
}

// appliedBy is the plan that an action applies, or lets a script do so; nil if there is none.
func appliedBy(p *pass, a stack.Action) *stack.Plan {
	switch a := a.(type) {
	case stack.Apply:
		return &a.Plan
	case stack.RunScript:
		return a.Plan
	case stack.Destroy:
		return p.o.Status.Pending
	case stack.Wait, stack.Start, stack.Cancel, stack.Publish, stack.Renew, stack.RollBack, stack.Review, stack.Finish:
	}
	return nil
}

// reply is the answer to a question, false if there is none yet. Guards are asked at once: they
// wait for nothing, and a change of one has all pending plans judged again.
func (ac *actor) reply(ctx context.Context, p *pass, q review.Question) (review.Reply, bool) {
	if q.Inside && p.policies.Guards {
		return review.Ask(ctx, q, ac.loader.now), true
	}
	return ac.reviews.Answer(q)
}

// confirmReviewers makes sure that the object still names the webhooks that are asked.
func (ac *actor) confirmReviewers(ctx context.Context, p *pass) error {
	if p.inside {
		return nil
	}
	return ac.loader.confirm(ctx, p)
}

// question puts together what the reviewers of a stack are asked about a plan. The object that
// they are shown is added when they are asked: not each pass that waits for them needs it, and
// guards see none.
func (ac *actor) question(p *pass, made stack.Plan) review.Question {
	key := client.ObjectKeyFromObject(p.obj)
	q := review.Question{
		Stack: p.id, Namespace: key.Namespace, Wake: func() { ac.wakes.add(p.entry.objectRef) },
		By: stack.Reviewers(p.o), Reviewers: p.policies.Reviewers(), Hide: plan.NewRedactor(p.in.Mask),
		Plan: &review.Plan{
			Digest: made.Digest, Destroys: made.Changes.Destroy, Source: made.PlanInputs.Source,
			Open: func(ctx context.Context, d review.Document) (io.ReadCloser, error) {
				return ac.blobs.Get(ctx, record.Plan(p.id, made.Digest, string(d)))
			},
		},
	}
	if !p.o.Deleting {
		q.Reviewers = ac.reviewers.Of(p.st.Configuration, q.Reviewers...)
	}
	q.Inside = p.policies.Reviewer != nil && len(q.Reviewers) == 1
	past := ""
	if r := p.o.Status.Review; r != nil {
		past = r.At.String()
	}
	q.ID = stack.Digest([]any{made.Digest, q.By, past})
	return q
}

// shown is the object of a stack as reviewers are shown it.
func (ac *actor) shown(ctx context.Context, p *pass) (map[string]json.RawMessage, error) {
	obj := p.obj.DeepCopyObject().(client.Object)
	obj.SetManagedFields(nil)
	if epoch, err := ac.approvals.Epoch(ctx); err != nil || epoch != p.st.Spec.Stamped {
		for _, stamp := range kube.Stamps() {
			dialect.SetAnnotation(obj, stamp, "") // users may have written it
		}
	}
	gvk, err := ac.live.GroupVersionKindFor(obj)
	if err != nil {
		return nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	var out map[string]json.RawMessage
	b, err := json.Marshal(obj)
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	return out, err
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

// Policies says which policies judge a stack.
type Policies interface {
	// For returns the policies of a stack.
	For(ctx context.Context, obj client.Object) (policies.Set, error)
	// Judged notes that policies judged a plan.
	Judged(by []policy.Judge, at time.Time)
}

// Wake has a stack reconciled, because policies changed.
func (c *Stacks) Wake(obj client.Object) {
	c.wakes.addAt(objectRef{c.Dialects.For(obj), client.ObjectKeyFromObject(obj)}, 0)
}

// observeSpent finds out whether the pending plan may destroy as much as it does now.
func (ob *observer) observeSpent(ctx context.Context, p *pass) error {
	m := p.o.Status
	if m.Pending == nil || p.o.Run != nil {
		return nil
	}
	var err error
	p.o.Spent, err = policies.Withheld(ctx, ob.destroys, p.o.Now, p.id, p.policies.PerHour, m.Pending.Changes.Destroy)
	return err
}

// keepVerdict keeps all that reviewers said of a plan beside it.
func (ac *actor) keepVerdict(ctx context.Context, p *pass, j policy.Judgement) error {
	b, err := json.Marshal(j)
	if err != nil {
		return err
	}
	if len(j.Policies) > 0 {
		ac.policies.Judged(j.Policies, j.At)
	}
	return ac.records.Put(ctx, record.Plan(p.id, j.Plan, record.VerdictFile), b)
}

// verdictEntry is what policies said of a plan, as the audit log has it. It has no name if
// they neither hold nor deny the plan.
func verdictEntry(v *stack.Verdict, made *stack.Plan) audit.Entry {
	e := audit.Entry{Digest: v.Plan, Details: map[string]string{"verdict": v.Digest}}
	if made != nil && made.Digest == v.Plan {
		e.Plan, e.Run, e.Changes = made.Name, made.Run, made.Changes
	}
	effect := policy.Hold
	switch {
	case v.Refused:
		e.What, effect = audit.PlanRefused, policy.Deny
	case v.Held:
		e.What = audit.PlanHeld
	}
	e.Details["policies"], e.Details["rules"] = policyNames(policy.With(effect, v.Findings))
	return e
}

// policyNames are the policies and rules of findings, with commas.
func policyNames(findings []policy.Finding) (names, rules string) {
	var all, of []string
	seen := map[string]bool{}
	add := func(to *[]string, text string) {
		if !seen[text] {
			seen[text] = true
			*to = append(*to, text)
		}
	}
	for _, f := range findings {
		add(&all, f.Policy)
		add(&of, f.Policy+": "+f.Rule)
	}
	return strings.Join(all, ", "), strings.Join(of, ", ")
}

// judgedIn adds to the entry of a run that applies a plan what policies had said of it.
func judgedIn(e *audit.Entry, p *pass, made *stack.Plan) {
	v := p.o.Status.Review
	if made == nil || v == nil || v.Plan != made.Digest || v.Digest == "" {
		return
	}
	e.Details["verdict"] = v.Digest
	if v.Held {
		e.Details["held-by"], _ = policyNames(policy.With(policy.Hold, v.Findings))
	}
	if v.Allowed && !p.o.Spec.Approves(made) {
		e.Details["allowed-by"], _ = policyNames(policy.With(policy.Allow, v.Findings))
	}
}

// linksTold bounds the links to pages about rules in a notification.
const linksTold = 5

// verdictFacts are what programs are told of a verdict.
func verdictFacts(v stack.Verdict, made *stack.Plan) map[string]string {
	facts := counted(made.Changes, map[string]string{"plan": made.Name})
	effect := policy.Hold
	if v.Refused {
		effect = policy.Deny
	}
	if v.Digest != "" {
		found := policy.With(effect, v.Findings)
		facts["policies"], facts["rules"] = policyNames(found)
		var links []string
		for _, f := range found { // the most severe first
			if facts["severity"] == "" && f.Severity != "" {
				facts["severity"] = f.Severity
			}
			if f.Link != "" && !slices.Contains(links, f.Link) && len(links) < linksTold {
				links = append(links, f.Link)
			}
		}
		if len(links) > 0 {
			facts["links"] = strings.Join(links, " ")
		}
	}
	return facts
}

// judged counts what policies find in a plan. Policies of owners of namespaces are counted
// together, so that the number of series has a bound.
func (m *metrics) judged(v *stack.Verdict) {
	for _, f := range v.Findings {
		name, effect := f.Policy, string(f.Effect)
		if !strings.HasPrefix(name, "ClusterPolicy/") {
			name, _, _ = strings.Cut(name, "/")
		}
		switch {
		case f.DryRun:
			effect = "dry-run"
		case f.Error:
			effect = "error"
		}
		m.findings.WithLabelValues(name, effect).Inc()
	}
}
