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
	"github.com/terrier-iac/terrier/internal/policy/document"
	"github.com/terrier-iac/terrier/internal/query"
)

// Stacks are where a dry run finds plans: a cluster or a server, with the rights of the
// user.
type Stacks interface {
	List(context.Context, query.Filter) ([]query.Stack, error)
	Plan(ctx context.Context, key query.Key, digest string) (query.PlanDocument, error)
	Uses(context.Context, query.Key) (usage.Record, error)
	Applied(context.Context, query.Key) ([]query.AppliedPlan, error)
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
	Fewer    []string                   `json:"fewer,omitempty"`  // stacks of which fewer applied plans are kept than were asked for
	Notes    []string                   `json:"notes,omitempty"`  // what was not known
}

// Rehearsing is what a dry run is about.
type Rehearsing struct {
	Filter     query.Filter
	Applied    int                                       // how many plans that it applied are judged of each stack, the newest first
	Namespaces func(context.Context) (Namespaces, error) // the labels of namespaces
	Now        time.Time
}

// atOnce is how many plans are read at once.
const atOnce = 4

// judged is a plan that a policy is asked about.
type judged struct {
	stack    query.Stack
	plan     query.PlanInfo
	applied  time.Time       // zero of a pending plan
	uses     *usage.Usage    // of a plan that was applied; nil if it is not known
	previous *query.PlanInfo // of a plan that was applied: the one before; nil if it is not known
	since    time.Time       // when that was applied
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
	var selected []query.Stack
	for _, st := range all {
		if p.Selects(SubjectOf(st, namespaces)) {
			selected = append(selected, st)
		}
	}
	plans, err := out.plans(ctx, s, selected, r.Applied)
	if err != nil {
		return out, err
	}
	outcomes, unread := make([]*Outcome, len(plans)), make([]string, len(plans))
	var judging sync.Mutex // one evaluation at a time: the answers of a policy bound its own memory
	each(len(plans), func(i int) {
		o, err := p.outcome(ctx, s, plans[i], namespaces, r.Now, &judging)
		if outcomes[i] = o; err != nil {
			unread[i] = plans[i].stack.Key().String() + ": " + plans[i].plan.Name + ": " + reasonOf(err)
		}
	})
	out.count(plans, outcomes, unread)
	return out, ctx.Err()
}

// plans are those that a policy is asked about: the pending plan of each stack, and the newest
// ones that it applied.
func (r *Rehearsal) plans(ctx context.Context, s Stacks, all []query.Stack, most int) ([]judged, error) {
	var pending []judged
	applied, failed := make([][]judged, len(all)), make([]error, len(all))
	each(len(all), func(i int) {
		if most > 0 {
			applied[i], failed[i] = appliedBy(ctx, s, all[i])
		}
	})
	for _, st := range all {
		if st.Plan != nil {
			pending = append(pending, judged{stack: st, plan: *st.Plan})
		}
	}
	for i, st := range all {
		if failed[i] != nil {
			r.Unread = append(r.Unread, st.Key().String()+": the plans that it applied: "+failed[i].Error())
		}
		if n := len(applied[i]); 0 < n && n < most && failed[i] == nil {
			r.Fewer = append(r.Fewer, st.Key().String())
		}
		pending = append(pending, applied[i][:min(len(applied[i]), max(0, most))]...)
	}
	return pending, ctx.Err()
}

// appliedBy are the plans that a stack applied, the newest first. A server of an earlier release
// knows the newest alone.
func appliedBy(ctx context.Context, s Stacks, st query.Stack) ([]judged, error) {
	if st.Applied == nil || st.Applied.Digest == "" {
		return nil, nil
	}
	kept, err := s.Applied(ctx, st.Key())
	if fault.Of(err) == fault.Missing {
		err = nil
	}
	var out []judged
	if len(kept) == 0 || kept[0].Digest != st.Applied.Digest { // it was applied before plans were kept
		out = append(out, judged{stack: st, plan: *st.Applied, applied: st.AppliedAt})
	}
	for _, k := range kept {
		out = append(out, judged{stack: st, plan: k.PlanInfo, applied: k.AppliedAt, uses: k.Uses})
	}
	for i := range out[:len(out)-1] {
		out[i].previous, out[i].since = &out[i+1].plan, out[i+1].applied
	}
	return out, err
}

// each calls do for 0 to n-1, a few at once.
func each(n int, do func(int)) {
	var work sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i := range n {
		work.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			do(i)
		})
	}
	work.Wait()
}

func (p *Policy) outcome(ctx context.Context, s Stacks, one judged, n Namespaces, now time.Time, judging *sync.Mutex) (*Outcome, error) {
	key := one.stack.Key()
	doc, err := s.Plan(ctx, key, one.plan.Digest)
	if err != nil {
		return nil, err
	}
	facts, err := one.facts(ctx, s, n, now)
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

// facts are those of FactsOf, and of a plan that was applied what was known then.
func (j judged) facts(ctx context.Context, s Stacks, n Namespaces, now time.Time) (document.Facts, error) {
	if j.applied.IsZero() {
		return FactsOf(ctx, s, j.stack, j.plan, n, now)
	}
	f := factsOf(j.stack, j.plan, n, now)
	f.Previous = nil
	if j.previous != nil {
		f.Previous = previousOf(*j.previous, j.since)
	}
	if j.uses != nil {
		f.Use(*j.uses)
	}
	return f, nil
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
