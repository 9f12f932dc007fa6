package policies

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan/usage"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/query"
)

// Stacks are where a dry run finds plans: a cluster or a server, with the rights of the
// user.
type Stacks interface {
	List(context.Context, query.Filter) ([]query.Stack, error)
	Plan(ctx context.Context, key query.Key, digest string) (query.PlanDocument, error)
	Uses(context.Context, query.Key) (usage.Record, error)
}

// Outcome is what a policy would have said of one plan.
type Outcome struct {
	Stack   string        `json:"stack"`
	Plan    string        `json:"plan"`
	Digest  string        `json:"digest"`
	Applied time.Time     `json:"applied,omitzero"` // when it was applied; zero of a pending plan
	Now     policy.Effect `json:"now,omitempty"`    // what the policies of the cluster say of a pending plan
	Answer
}

// Rehearsal is what a policy would have said of many plans.
type Rehearsal struct {
	Stacks   int                        `json:"stacks"` // that have these plans
	Plans    int                        `json:"plans"`
	Pending  int                        `json:"pending"` // of the plans; the others were applied
	Effects  map[policy.Effect]int      `json:"effects"`
	Errors   int                        `json:"errors"` // plans for which it could not be evaluated
	Verdicts map[policy.Effect][]string `json:"verdicts"`
	Outcomes []Outcome                  `json:"outcomes"`         // by stack
	Unread   []string                   `json:"unread,omitempty"` // plans that could not be read, and why
	Notes    []string                   `json:"notes,omitempty"`  // what was not known
}

// Rehearsing is what a dry run is about.
type Rehearsing struct {
	Filter     query.Filter
	Applied    int                                       // how many plans that were applied are judged, the newest first
	Namespaces func(context.Context) (Namespaces, error) // the labels of namespaces
	Now        time.Time
}

// atOnce is how many plans are read at once.
const atOnce = 4

// judged is a plan that a policy is asked about.
type judged struct {
	stack   query.Stack
	plan    query.PlanInfo
	applied time.Time
}

// Rehearse asks a policy about the pending plans of the stacks that it selects, and about
// those that they applied last. It changes nothing.
func (p *Policy) Rehearse(ctx context.Context, s Stacks, r Rehearsing) (Rehearsal, error) {
	out := Rehearsal{Effects: map[policy.Effect]int{}, Verdicts: map[policy.Effect][]string{}, Outcomes: []Outcome{}}
	namespaces, err := r.Namespaces(ctx)
	if err != nil {
		return out, err
	}
	if namespaces == nil && p.needsNamespaces() {
		out.Notes = append(out.Notes, "The labels of namespaces cannot be read, so only the labels of stacks say which stacks the policy selects.")
	}
	all, err := s.List(ctx, r.Filter)
	if err != nil {
		return out, err
	}
	plans := p.plans(all, namespaces, r.Applied)
	outcomes, unread := make([]*Outcome, len(plans)), make([]string, len(plans))
	var work sync.WaitGroup
	var judging sync.Mutex // one evaluation at a time: the answers of a policy bound its own memory
	slots := make(chan struct{}, atOnce)
	for i, one := range plans {
		work.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			o, err := p.outcome(ctx, s, one, namespaces, r.Now, &judging)
			if outcomes[i] = o; err != nil {
				unread[i] = one.stack.Key().String() + ": " + one.plan.Name + ": " + reasonOf(err)
			}
		})
	}
	work.Wait()
	out.count(plans, outcomes, unread)
	return out, ctx.Err()
}

// plans are those that a policy is asked about.
func (p *Policy) plans(all []query.Stack, n Namespaces, most int) []judged {
	var pending, applied []judged
	for _, st := range all {
		if !p.Selects(SubjectOf(st, n)) {
			continue
		}
		if st.Plan != nil {
			pending = append(pending, judged{st, *st.Plan, time.Time{}})
		}
		if st.Applied != nil && st.Applied.Digest != "" {
			applied = append(applied, judged{st, *st.Applied, st.AppliedAt})
		}
	}
	slices.SortStableFunc(applied, func(a, b judged) int { return b.applied.Compare(a.applied) })
	return append(pending, applied[:min(len(applied), max(0, most))]...)
}

func (p *Policy) outcome(ctx context.Context, s Stacks, one judged, n Namespaces, now time.Time, judging *sync.Mutex) (*Outcome, error) {
	key := one.stack.Key()
	doc, err := s.Plan(ctx, key, one.plan.Digest)
	if err != nil {
		return nil, err
	}
	facts, err := FactsOf(ctx, s, one.stack, one.plan, n, now)
	if err != nil {
		return nil, err
	}
	judging.Lock()
	defer judging.Unlock()
	of := SubjectOf(one.stack, n)
	a, err := p.Judge(ctx, Asked{Document: doc.Document, Destroys: one.plan.Changes.Destroy, Facts: facts, Subject: &of})
	if err != nil {
		return nil, err
	}
	out := &Outcome{Stack: key.String(), Plan: one.plan.Name, Digest: one.plan.Digest, Applied: one.applied, Answer: a}
	if v := one.stack.Verdict; v != nil && one.applied.IsZero() {
		out.Now = v.Effect
	}
	return out, nil
}

func reasonOf(err error) string {
	if fault.Of(err) == fault.Missing {
		return "its record is not kept any more"
	}
	return err.Error()
}

// count adds the outcomes, by stack.
func (r *Rehearsal) count(plans []judged, outcomes []*Outcome, unread []string) {
	stacks := map[string]bool{}
	for i := range plans {
		if unread[i] != "" {
			r.Unread = append(r.Unread, unread[i])
		}
		o := outcomes[i]
		if o == nil {
			continue
		}
		stacks[o.Stack] = true
		r.Plans++
		r.Effects[o.Effect]++
		if o.Applied.IsZero() {
			r.Pending++
		}
		if slices.ContainsFunc(o.Findings, func(f policy.Finding) bool { return f.Error }) {
			r.Errors++
		}
		r.Outcomes = append(r.Outcomes, *o)
	}
	slices.SortStableFunc(r.Outcomes, func(a, b Outcome) int { return cmp.Compare(a.Stack, b.Stack) })
	for _, o := range r.Outcomes {
		if names := r.Verdicts[o.Effect]; !slices.Contains(names, o.Stack) {
			r.Verdicts[o.Effect] = append(names, o.Stack)
		}
	}
	r.Stacks = len(stacks)
}
