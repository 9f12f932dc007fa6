package rego

import (
	"context"
	"runtime"

	"github.com/terrier-iac/terrier/internal/policy"
)

// Member is one of the policies that are asked about a plan.
type Member struct {
	Policy     string // ClusterPolicy/production
	Set        *Set   // nil of a policy that is Broken
	Broken     string // why it cannot be evaluated; the plan is held
	Parameters any
	DryRun     bool             // its findings are shown, and change nothing
	Approval   *policy.Approval // of holds that do not say who approves
}

// Judge asks policies about plans, a few at a time. NewJudge makes one.
type Judge struct{ slots chan struct{} }

// NewJudge returns a Judge that evaluates as many policies at once as there are
// processors.
func NewJudge() *Judge { return &Judge{make(chan struct{}, max(1, runtime.GOMAXPROCS(0)))} }

// Findings asks every policy about a plan. The order of the findings is that of
// policy.Sort.
func (j *Judge) Findings(ctx context.Context, in *Input, members []Member) []policy.Finding {
	var all []policy.Finding
	for _, m := range members {
		found := j.of(ctx, in, m)
		for i := range found {
			found[i].DryRun = m.DryRun
			if found[i].Effect == policy.Hold && found[i].Approval == nil {
				found[i].Approval = m.Approval
			}
		}
		all = append(all, found...)
	}
	policy.Sort(all)
	return all
}

func (j *Judge) of(ctx context.Context, in *Input, m Member) []policy.Finding {
	if m.Set == nil {
		return []policy.Finding{policy.Failed(m.Policy, evaluation, text("the policy could not be evaluated: "+m.Broken))}
	}
	select {
	case j.slots <- struct{}{}:
		defer func() { <-j.slots }()
	case <-ctx.Done():
		return []policy.Finding{policy.Failed(m.Policy, evaluation, unable(context.Cause(ctx)))}
	}
	return m.Set.Evaluate(ctx, Question{Policy: m.Policy, Input: in, Parameters: m.Parameters})
}
