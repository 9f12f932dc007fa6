package policies

import (
	"context"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/policy/v1alpha1"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/policy"
)

// tally is what the stacks say of one policy.
type tally struct {
	selected int32
	findings v1alpha1.Findings
	judged   time.Time
}

// report writes the status of each policy whose status says another thing.
func (p *Policies) report(ctx context.Context) {
	s := p.now.Load()
	tallies, err := p.tally(ctx, s)
	if err != nil {
		p.Log.Warn("policies not counted", "err", err) // tried again
		p.stale.Store(true)
		return
	}
	for _, c := range s.policies {
		if c.foreign {
			continue
		}
		if t, at := tallies[c.source.Policy], p.judged.of(c.source.Policy); at.After(t.judged) {
			t.judged = at
		}
		if err := p.write(ctx, c, tallies[c.source.Policy]); err != nil && ctx.Err() == nil {
			p.Log.Warn("status of a policy not written", "policy", c.source.Policy, "err", err)
			p.stale.Store(true)
		}
	}
}

// tally counts what the stacks in the cache say.
func (p *Policies) tally(ctx context.Context, s *snapshot) (map[string]*tally, error) {
	all := map[string]*tally{}
	for _, c := range s.policies {
		all[c.source.Policy] = &tally{}
	}
	return all, p.Dialects.EachStack(ctx, p.cache, func(d dialect.Dialect, obj client.Object) error {
		selected := s.selected(s.subject(p, obj))
		for _, c := range selected {
			all[c.source.Policy].selected++
		}
		if len(selected) == 0 {
			return nil
		}
		st, _ := d.Decode(obj)
		v := st.Status.Review
		if v == nil || st.Status.Pending == nil || v.Plan != st.Status.Pending.Digest {
			return nil
		}
		for _, c := range selected {
			if t := all[c.source.Policy]; v.At.After(t.judged) && c.judges() {
				t.judged = v.At
			}
		}
		for _, f := range v.Findings {
			if t := all[f.Policy]; t != nil {
				t.add(f)
			}
		}
		return nil
	})
}

func (t *tally) add(f policy.Finding) {
	switch {
	case f.DryRun:
		t.findings.DryRun++
		return
	case f.Error:
		t.findings.Errors++
	}
	switch f.Effect {
	case policy.Allow:
		t.findings.Allow++
	case policy.Warn:
		t.findings.Warn++
	case policy.Deny:
		t.findings.Deny++
	case policy.Hold:
		t.findings.Hold++
	}
}

func (p *Policies) write(ctx context.Context, c *compiled, t *tally) error {
	obj, status, err := p.object(ctx, c)
	if apierrors.IsNotFound(err) || err == nil && string(obj.GetUID()) != c.id {
		return nil
	}
	if err != nil {
		return err
	}
	before := obj.DeepCopyObject().(client.Object)
	was := status.DeepCopy()
	status.ObservedGeneration, status.Digest, status.Selected, status.Findings = c.generation, c.digest, t.selected, t.findings
	if status.LastJudged = nil; !t.judged.IsZero() {
		status.LastJudged = &metav1.Time{Time: t.judged.Truncate(time.Second)}
	}
	meta.SetStatusCondition(&status.Conditions, c.condition(p.Now()))
	if reflect.DeepEqual(was, status) {
		return nil
	}
	return client.IgnoreNotFound(p.Live.Status().Patch(ctx, obj, client.MergeFrom(before), client.FieldOwner(kube.FieldManager)))
}

// condition says whether the policy is evaluated.
func (c *compiled) condition(now time.Time) metav1.Condition {
	condition := metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "PolicyReady", Message: "The policy is evaluated", ObservedGeneration: c.generation,
	}
	switch {
	case c.broken != "":
		condition.Status, condition.Reason = metav1.ConditionFalse, "PolicyInvalid"
		condition.Message = c.broken + ". Until this is corrected, " + c.then() + "."
	case c.pending:
		condition.Status, condition.Reason = metav1.ConditionUnknown, "PolicyPending"
		condition.Message = "The program of the policy is compiled. Until then the stacks that the policy selects wait."
	case c.earlier != "":
		condition.Reason = "EarlierArtifact"
		condition.Message = "The policy is evaluated with an earlier artifact of its source, the revision " + c.revision + ", since the source cannot be read: " + c.earlier + ". Terrier tries again by itself."
	case c.source.DryRun:
		condition.Message = "The policy is evaluated as a dry run: its findings are shown and counted, and have no effect"
	}
	if ends := c.drift.Endings(now); ends != "" {
		condition.Message += ". " + ends
	}
	return condition
}

// dated is the next time at which the condition says another thing although nothing changed.
func (s *snapshot) dated(now time.Time) time.Time {
	var next time.Time
	for _, c := range s.policies {
		if at := c.drift.NextTold(now); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// then says what follows if the policy cannot be evaluated.
func (c *compiled) then() string {
	switch {
	case c.source.DryRun:
		return "the dry run shows this in place of its findings, and has no effect"
	case c.onError == policy.Deny:
		return "every plan of a stack that the policy selects is denied"
	default:
		return "every plan of a stack that the policy selects is held"
	}
}

// object reads the object of a policy from the cache, as a copy.
func (p *Policies) object(ctx context.Context, c *compiled) (client.Object, *v1alpha1.PolicyStatus, error) {
	key := c.key
	if !c.owner {
		o := &v1alpha1.ClusterPolicy{}
		return o, &o.Status, p.cache.Get(ctx, key, o)
	}
	o := &v1alpha1.Policy{}
	return o, &o.Status, p.cache.Get(ctx, key, o)
}
