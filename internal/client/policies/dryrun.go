package policies

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/policy/document"
	"github.com/terrier-iac/terrier/internal/query"
)

// Stacks are where a dry run finds plans: a cluster or a server, with the rights of the
// user.
type Stacks interface {
	List(context.Context, query.Filter) ([]query.Stack, error)
	Plan(ctx context.Context, key query.Key, digest string) (query.PlanDocument, error)
}

// Outcome is what a policy would have said of one plan.
type Outcome struct {
	Stack   string        `json:"stack"`
	Plan    string        `json:"plan"`
	Applied time.Time     `json:"applied,omitzero"` // when it was applied; zero of a pending plan
	Effect  policy.Effect `json:"effect,omitempty"`
	Answer
}

// Rehearsal is what a policy would have said of many plans.
type Rehearsal struct {
	Plans    int                   `json:"plans"`
	Effects  map[policy.Effect]int `json:"effects"`
	Errors   int                   `json:"errors"` // plans for which it could not be evaluated
	Outcomes []Outcome             `json:"outcomes"`
	Unread   []string              `json:"unread,omitempty"` // plans that could not be read, and why
}

// atOnce is how many plans are read at once.
const atOnce = 4

// Rehearse asks a policy about the pending plans of stacks, and about those that were
// applied last: as many as last, the newest first. It changes nothing.
func (p *Policy) Rehearse(ctx context.Context, s Stacks, f query.Filter, last int, now time.Time) (Rehearsal, error) {
	all, err := s.List(ctx, f)
	if err != nil {
		return Rehearsal{}, err
	}
	type one struct {
		stack   query.Stack
		plan    query.PlanInfo
		applied time.Time
	}
	var pending, applied []one
	for _, st := range all {
		if st.Plan != nil {
			pending = append(pending, one{st, *st.Plan, time.Time{}})
		}
		if st.Applied != nil && st.Applied.Digest != "" {
			applied = append(applied, one{st, *st.Applied, st.AppliedAt})
		}
	}
	slices.SortStableFunc(applied, func(a, b one) int { return b.applied.Compare(a.applied) })
	plans := append(pending, applied[:min(len(applied), max(0, last))]...)

	out := Rehearsal{Effects: map[policy.Effect]int{}}
	outcomes, unread := make([]*Outcome, len(plans)), make([]string, len(plans))
	var work sync.WaitGroup
	var judging sync.Mutex // one evaluation at a time: the answers of a policy bound its own memory
	slots := make(chan struct{}, atOnce)
	for i, one := range plans {
		work.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			key := one.stack.Key()
			name := key.String() + ": " + one.plan.Name
			doc, err := s.Plan(ctx, key, one.plan.Digest)
			if err != nil {
				why := err.Error()
				if fault.Of(err) == fault.Missing {
					why = "its record is not kept any more"
				}
				unread[i] = name + ": " + why
				return
			}
			judging.Lock()
			defer judging.Unlock()
			a, err := p.Judge(ctx, Asked{Document: doc.Document, Facts: FactsOf(one.stack, now)})
			if err != nil {
				unread[i] = name + ": " + err.Error()
				return
			}
			outcomes[i] = &Outcome{Stack: key.String(), Plan: one.plan.Name, Applied: one.applied, Effect: a.Effect, Answer: a}
		})
	}
	work.Wait()
	for i := range plans {
		if unread[i] != "" {
			out.Unread = append(out.Unread, unread[i])
		}
		o := outcomes[i]
		if o == nil {
			continue
		}
		out.Plans++
		out.Effects[o.Effect]++
		if slices.ContainsFunc(o.Findings, func(f policy.Finding) bool { return f.Error }) {
			out.Errors++
		}
		out.Outcomes = append(out.Outcomes, *o)
	}
	return out, ctx.Err()
}

// FactsOf are the facts about a stack that its user can read. The controller knows more:
// the tenant and the environment by the labels of the namespace, the source with its
// signature, and the modules as they were resolved.
func FactsOf(s query.Stack, now time.Time) document.Facts {
	f := document.Facts{
		Stack: document.Stack{
			Kind: "Terraform", Namespace: s.Namespace, Name: s.Name, Labels: s.Labels, Path: s.Path, Mode: string(s.Mode),
			Environment: s.Labels[EnvironmentLabel], Tenant: s.Labels[TenantLabel],
		},
		Source: document.Source{Revision: s.Revision},
		Run:    document.Run{Kind: "plan", Deletion: s.Deleting},
		Now:    Now(now),
	}
	if a := s.Applied; a != nil {
		c := a.Changes
		f.Previous = &document.Previous{Name: a.Name, Digest: a.Digest, AppliedAt: s.AppliedAt, Counts: map[string]int{
			"add": c.Add, "change": c.Change, "destroy": c.Destroy, "import": c.Import, "forget": c.Forget, "move": c.Move, "outputs": c.Outputs,
		}}
	}
	return f
}

// The labels that say for which tenant and environment a stack is.
const (
	TenantLabel      = "terrier.dev/tenant"
	EnvironmentLabel = "terrier.dev/environment"
)
