package policies

import (
	"context"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/policy/v1alpha1"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/policy/guard"
	"github.com/terrier-iac/terrier/internal/review"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Programs compiles policies that are programs, and asks them.
type Programs interface {
	// Find says where the text of a program is. It reads nothing but objects of a cache, and
	// returns soon. Its error is Invalid if the spec is wrong; any other is about a source,
	// and may pass.
	Find(ctx context.Context, of client.Object, r v1alpha1.Rego) (Text, error)
	// Compile reads a text and makes its program ready, which may take long. The digest is that
	// of all that its answers depend on beside the plan and the stack. The error is Invalid if
	// the text is wrong; any other may pass.
	Compile(ctx context.Context, t Text) (p Program, digest string, err error)
	// Judge asks programs about a plan. What cannot be evaluated is a finding that holds the
	// plan. The digest is that of what they were shown. There is an error only if none of them
	// was asked, because all that evaluate programs were busy.
	Judge(ctx context.Context, q Question) (findings []policy.Finding, input string, err error)
}

// Text is the text of a program, or where it is. Two texts with the same ID say the same.
type Text struct {
	ID       string
	Revision string // of the source that it is from; empty if it is in the object
	What     any    // only the Programs that found it knows what it is
}

// Program is a compiled program; only the Programs that made it knows what is in it.
type Program any

// Question is what programs are asked.
type Question struct {
	Plan     *review.Plan
	Document []byte // of the plan, masked
	Stack    Subject
	Members  []Member
	Source   policy.Signature // of the source of the plan
	Now      time.Time
}

// Subject is what programs know of the stack beside its object.
type Subject struct {
	Group, Namespace, Name, UID string
	Tenant, Environment         string
	Labels, Annotations         map[string]string // without those that Terrier writes
}

// Member is one of the programs.
type Member struct {
	Policy   string
	Program  Program
	Approval *policy.Approval
	OnError  policy.Effect // if it cannot be evaluated: Hold or Deny
	DryRun   bool
}

// reviewer asks the policies that judge one stack.
type reviewer struct {
	policies []*compiled
	programs Programs
	about    about
	from     guard.Origin // if one of the policies asks for it
	now      func() time.Time
}

var _ review.Reviewer = (*reviewer)(nil)

// depends reports whether the answer depends on the stack as well.
func (r *reviewer) depends() bool {
	for _, c := range r.policies {
		if c.program != nil {
			return true
		}
	}
	return false
}

// asksForSource reports whether the answer depends on the source as well.
func (r *reviewer) asksForSource() bool {
	return r.depends() || slices.ContainsFunc(r.policies, func(c *compiled) bool { return c.guards.SignedSource != nil })
}

// Sees implements review.Reviewer.
func (*reviewer) Sees() review.Document { return review.Masked }

// Review implements review.Reviewer. It has an error only if the plan cannot be read now, or
// its programs cannot be asked yet.
func (r *reviewer) Review(ctx context.Context, p *review.Plan) (review.Answer, error) {
	raw, err := p.Document(ctx)
	if err != nil {
		return review.Answer{}, err
	}
	a := review.Answer{Input: stack.Digest(string(raw))}
	for _, c := range r.policies {
		a.Policies = append(a.Policies, policy.Judge{Policy: c.source.Policy, Digest: c.digest})
	}
	facts, err := factsOf(raw, p.Destroys)
	from := r.from
	if from.Signature.Verified && from.Artifact != p.Source {
		// The pass read the source before it knew of the plan. The next one reads it again.
		from.Signature = policy.Signature{Reason: "the source has another artifact than the plan was made from"}
	}
	facts.From = from
	var members []Member
	for _, c := range r.policies {
		switch {
		case c.broken != "":
			a.Findings = append(a.Findings, c.failed("spec", c.broken))
		case err != nil:
			a.Findings = append(a.Findings, c.failed("plan", err.Error()))
		default:
			found := guard.Judge(c.source, c.guards, facts)
			policy.OnError(c.onError, found)
			a.Findings = append(a.Findings, found...)
		}
		if c.program != nil && c.broken == "" && err == nil {
			members = append(members, Member{c.source.Policy, c.program, c.source.Approval, c.onError, c.source.DryRun})
		}
	}
	if len(members) > 0 {
		found, input, err := r.programs.Judge(ctx, Question{Plan: p, Document: raw, Stack: r.about.subject(), Members: members, Source: from.Signature, Now: r.now()})
		if err != nil {
			return review.Answer{}, review.Busy{Why: err}
		}
		a.Findings, a.Input = append(a.Findings, r.within(found)...), input
	}
	switch policy.Combine(a.Findings) {
	case policy.Deny:
		a.Outcome, a.Why = review.Refuse, policy.Text(policy.Deny, a.Findings)
	case "", policy.Allow, policy.Warn:
	default: // an effect that is not known holds as well
		a.Outcome, a.Why = review.Hold, policy.Text(policy.Hold, a.Findings)
	}
	return a, nil
}

func factsOf(raw []byte, destroys int) (guard.Facts, error) {
	doc, err := plan.ParseDocument(raw)
	if err != nil {
		return guard.Facts{}, err
	}
	return guard.FactsOf(doc).Counted(destroys), nil
}

// within keeps the policies of owners of namespaces from allowing what others hold.
func (r *reviewer) within(found []policy.Finding) []policy.Finding {
	owners := map[string]bool{}
	for _, c := range r.policies {
		owners[c.source.Policy] = c.owner
	}
	for i, f := range found {
		if owners[f.Policy] {
			found[i] = policy.Stricter(f)
		}
	}
	return found
}

func (c *compiled) failed(rule, message string) policy.Finding {
	found := []policy.Finding{policy.Failed(c.source.Policy, rule, message)}
	policy.OnError(c.onError, found)
	f := found[0]
	if f.DryRun = c.source.DryRun; f.Effect == policy.Hold {
		f.Approval = c.source.Approval
	}
	return f
}

func (a about) subject() Subject {
	return Subject{Group: a.group, Namespace: a.namespace, Name: a.name, UID: a.uid, Tenant: a.tenant, Environment: a.environment, Labels: a.labels, Annotations: a.annotations}
}
