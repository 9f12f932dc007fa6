package policies

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/policy/v1alpha1"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/policy"
)

// Early is a question about a stack that has no plan yet.
type Early struct {
	Object    map[string]json.RawMessage // of the stack
	Stack     Subject
	Requester string // the user who applies the object
	Members   []Member
	Now       time.Time
}

// Tell says what policies have against a stack that is applied now, as far as it is known
// before there is a plan: sentences for the user who applies it. They decide nothing. Nothing
// is said until the policies were read once.
func (p *Policies) Tell(ctx context.Context, d dialect.Dialect, obj client.Object, raw map[string]json.RawMessage, user string) []string {
	set, r := aboutOf(ctx, p, obj)
	if r == nil && len(set.Times.Windows)+len(set.Times.Freezes) == 0 {
		return nil
	}
	now := p.Now()
	var out []string
	if w := set.Times.Withhold(now, time.Time{}); !w.None() {
		out = append(out, fmt.Sprintf("no plan of this stack is applied %s, by %s: %s", until(w), w.Policy, w.Why))
	}
	if r == nil {
		return out
	}
	var members []Member
	for _, c := range r.policies {
		switch {
		case c.broken != "" && c.source.Policy != policy.OwnGuards: // the annotations have a warning of their own
			out = append(out, fmt.Sprintf("%s cannot be evaluated, and holds every plan of this stack: %s", c.source.Policy, c.broken))
		case c.program != nil:
			members = append(members, Member{c.source.Policy, c.program, c.source.Approval, c.onError, c.source.DryRun})
		}
	}
	if len(members) == 0 || p.Foresee == nil {
		return out
	}
	found := r.within(p.Foresee(ctx, Early{Object: raw, Stack: r.about.subject(), Requester: user, Members: members, Now: now}))
	for _, f := range found {
		if f.DryRun || f.Error || f.Effect == policy.Allow {
			continue
		}
		out = append(out, fmt.Sprintf("%s %s: %s: %s", f.Policy, does[f.Effect], f.Rule, f.Message))
	}
	return out
}

// TellPolicy says what is wrong with a policy that is applied now: sentences for the user who
// applies it, each with the field. The status says the same later, and decides. Nil Policies
// tell nothing of programs. Nothing is told of a program that is not compiled within the time
// of ctx.
func (p *Policies) TellPolicy(ctx context.Context, obj client.Object) []string {
	name, spec := specOf(obj)
	if spec == nil {
		return nil
	}
	c, wrong := read(obj, name, spec)
	if r := spec.Rego; r != nil && p != nil && p.Programs != nil {
		text, err := p.Programs.Find(ctx, obj, *r)
		if err == nil {
			err = p.builds.compile(ctx, text).err
		}
		if kind := fault.Of(err); kind == fault.Invalid || kind == fault.Missing {
			wrong = append(wrong, ofRego(err))
		}
	}
	for i, text := range wrong {
		wrong[i] = text + ". Until this is corrected, " + c.then()
	}
	return wrong
}

// specOf is the name of a policy as findings have it, and its spec, nil if the object is none.
func specOf(obj client.Object) (string, *v1alpha1.PolicySpec) {
	switch o := obj.(type) {
	case *v1alpha1.ClusterPolicy:
		return v1alpha1.ClusterPolicyKind + "/" + o.Name, &o.Spec
	case *v1alpha1.Policy:
		return v1alpha1.PolicyKind + "/" + o.Namespace + "/" + o.Name, &o.Spec
	default:
		return "", nil
	}
}

// does is what follows for every plan of a stack from a finding that depends on no plan.
var does = map[policy.Effect]string{
	policy.Deny: "denies every plan of this stack",
	policy.Hold: "holds every plan of this stack until it is approved",
	policy.Warn: "warns of this stack",
}

// TellDeleted says what a deletion of the stack waits for. Nothing is said of a stack whose
// deletion destroys nothing.
func (p *Policies) TellDeleted(ctx context.Context, d dialect.Dialect, obj client.Object) []string {
	st, err := d.Decode(obj)
	if err != nil || !st.Spec.DestroyLast || st.Spec.Retain || st.Status.Applied == nil {
		return nil
	}
	set, r := aboutOf(ctx, p, obj)
	var out []string
	if r != nil {
		var names []string
		for _, c := range r.policies {
			if !c.source.DryRun {
				names = append(names, c.source.Policy)
			}
		}
		if len(names) > 0 {
			out = append(out, fmt.Sprintf("the destroy is planned first, and %s judges the plan: if it is held, the object stays until a user approves it", strings.Join(names, ", ")))
		}
	}
	if w := set.Times.Withhold(p.Now(), time.Time{}); !w.None() {
		out = append(out, fmt.Sprintf("nothing is destroyed %s, by %s: %s", until(w), w.Policy, w.Why))
	}
	if len(out) > 0 {
		out = append(out, "to let the object go and keep its resources, annotate it with terrier.dev/deletion=retain")
	}
	return out
}

// aboutOf are the policies of a stack, and their reviewer, nil if none judges plans.
func aboutOf(ctx context.Context, p *Policies, obj client.Object) (Set, *reviewer) {
	if p == nil {
		return Set{}, nil
	}
	s := p.now.Load()
	if s == nil {
		return Set{}, nil
	}
	set, err := s.set(ctx, p, obj, s.namespaces[obj.GetNamespace()])
	if err != nil {
		return Set{}, nil // a program is not compiled yet
	}
	r, _ := set.Reviewer.(*reviewer)
	return set, r
}

func until(w policy.Withheld) string {
	if w.Until.IsZero() {
		return "now"
	}
	return "until " + w.Until.UTC().Format(time.RFC3339)
}
