// Package policies tries policies on the machine of a user: their unit tests, and what they
// say of plans. It evaluates them with the code of the controller, and changes nothing.
//
// Start reading at Open.
package policies

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/api/policy/v1alpha1"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/policy/document"
	"github.com/terrier-iac/terrier/internal/policy/guard"
	"github.com/terrier-iac/terrier/internal/policyapi"
	"github.com/terrier-iac/terrier/internal/review/rego"
)

// Options say how a policy is read.
type Options struct {
	Format     string // terrier, conftest or weave
	Version    string // of the language: v0, v1, or empty to try both
	Namespaces []string
	Parameters any    // what the policy reads as input.parameters
	Source     string // the directory with the files of the source that a manifest names; empty if there is none
}

func (o Options) read() rego.Options {
	return rego.Options{Format: rego.Format(cmp.Or(o.Format, string(rego.Terrier))), Version: rego.Version(o.Version), Namespaces: o.Namespaces}
}

// Policy is what a user tries: one policy, or those of one file.
type Policy struct {
	parts []part
	Rules []string // that give findings
	Left  []string // names of its guards that are not evaluated here: those about times, and about signatures
}

// part is one policy, as the controller has it.
type part struct {
	name     string // how its findings call it
	selector policyapi.Selector
	guards   policy.Guards
	approval *policy.Approval
	onError  policy.Effect // if it cannot be evaluated
	owner    bool          // it is of a namespace, and may only be stricter
	members  []member
	weave    []*rego.WeavePolicy // of each member; nil of others
}

// member is one program of a policy.
type member struct {
	policy     string // how its findings call it
	set        *rego.Set
	parameters any
}

// fileBytes bounds a file that is a whole policy.
const fileBytes = 16 << 20

// Open reads a policy: a directory, a file of Rego, a file of ClusterPolicy and Policy
// objects, or the name of one that comes with Terrier.
func Open(ctx context.Context, where string, o Options) (*Policy, error) {
	texts, err := find(where, o)
	if err != nil {
		return nil, err
	}
	p := &Policy{}
	for _, t := range texts {
		if err := p.add(ctx, t); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// add compiles one policy.
func (p *Policy) add(ctx context.Context, t text) error {
	one := part{name: t.name}
	if t.spec != nil {
		if err := one.of(*t.spec, t.namespace); err != nil {
			return err
		}
		p.Rules, p.Left = append(p.Rules, guardNames(one.guards)...), append(p.Left, leftOut(t.spec.Guards)...)
	}
	for _, program := range t.programs {
		set, err := rego.Compile(ctx, program.Source)
		if err != nil {
			return err
		}
		m := member{policy: one.name, set: set, parameters: t.parameters}
		if program.Weave != nil {
			m.policy, m.parameters = one.name+"/"+program.Weave.Metadata.Name, program.Parameters
		} else if err := rego.CheckParameters(set, t.parameters); err != nil {
			return invalid("%s: %w", one.name, err)
		}
		one.members, one.weave = append(one.members, m), append(one.weave, program.Weave)
		p.Rules = append(p.Rules, set.Rules()...)
	}
	p.parts = append(p.parts, one)
	return nil
}

// of takes over what a manifest says beside its program.
func (p *part) of(spec v1alpha1.PolicySpec, namespace string) error {
	var err error
	if p.selector, err = policyapi.SelectorOf(spec.Selector, namespace); err != nil {
		return invalid("%w", err)
	}
	if spec.Guards != nil {
		if p.guards, err = policyapi.Guards(spec.Guards); err != nil {
			return invalid("%w", err)
		}
		p.guards.SignedSource = nil
	}
	p.approval, p.owner = policyapi.Approval(spec.Approval), namespace != ""
	if spec.OnError == v1alpha1.Deny {
		p.onError = policy.Deny
	}
	return nil
}

// guardNames names the guards that judge plans.
func guardNames(g policy.Guards) []string {
	var out []string
	for _, one := range []struct {
		name string
		set  bool
	}{
		{policy.MaxDestroys, g.MaxDestroys != nil}, {policy.MaxReplaces, g.MaxReplaces != nil}, {policy.MaxDestroyedShare, g.MaxDestroyedShare != nil},
		{policy.MaxDestroysPerHour, g.MaxDestroysPerHour != nil}, {policy.ProtectedGuard, len(g.Protected) > 0},
	} {
		if one.set {
			out = append(out, one.name)
		}
	}
	return out
}

// leftOut names the guards that are not evaluated here: those that say when plans are applied
// hold no plan, and the signature of a source is known to the controller.
func leftOut(g *v1alpha1.Guards) []string {
	if g == nil {
		return nil
	}
	var out []string
	for _, one := range []struct {
		name string
		set  bool
	}{
		{policy.WindowsGuard, len(g.Windows) > 0}, {policy.FreezesGuard, len(g.Freezes) > 0},
		{policy.MinSourceAge, g.MinSourceAge != nil}, {policy.MaxPlanAge, g.MaxPlanAge != nil}, {policy.SignedSourceGuard, g.RequireSignedSource != nil},
	} {
		if one.set {
			out = append(out, one.name)
		}
	}
	return out
}

// Selects reports whether any of the policies is for a stack.
func (p *Policy) Selects(of policyapi.Subject) bool {
	return slices.ContainsFunc(p.parts, func(one part) bool { return one.selector.Selects(of) })
}

// needsNamespaces reports whether labels of namespaces say which stacks it is for.
func (p *Policy) needsNamespaces() bool {
	return slices.ContainsFunc(p.parts, func(one part) bool { return one.selector.NeedsNamespaces() })
}

// Answer is what a policy says of a plan.
type Answer struct {
	Effect   policy.Effect    `json:"effect,omitempty"` // of all findings together; empty if there are none
	Findings []policy.Finding `json:"findings"`
	Rules    []rego.RuleTrace `json:"rules,omitempty"` // which fired, and why the others did not
	Trace    []string         `json:"trace,omitempty"` // each step
	Prints   []string         `json:"prints,omitempty"`
}

// Asked is a plan that a policy is asked about.
type Asked struct {
	Document []byte // of the plan, as "show -json" of the engine prints it
	Destroys int    // as the engine counted them, which a document that was cut does not say
	Facts    document.Facts
	Subject  *policyapi.Subject // for which policies have to be; nil for all
	Why      bool               // with Answer.Rules
	Steps    bool               // with Answer.Trace
}

// Judge asks the policy about a plan. The plan may have secrets in it: it is masked first.
func (p *Policy) Judge(ctx context.Context, q Asked) (Answer, error) {
	doc, err := plan.ParseDocument(q.Document)
	if err != nil {
		return Answer{}, err
	}
	input, err := document.Make(doc.Masked(), q.Facts)
	if err != nil {
		return Answer{}, err
	}
	in, err := rego.NewInput(input, objectOf(q.Facts.Stack), q.Facts.Now)
	if err != nil {
		return Answer{}, err
	}
	out := Answer{Findings: []policy.Finding{}}
	for _, one := range p.parts {
		if q.Subject != nil && !one.selector.Selects(*q.Subject) {
			continue
		}
		found := guard.Judge(guard.Source{Policy: one.name, Approval: one.approval}, one.guards, guard.FactsOf(doc).Counted(q.Destroys))
		for i, m := range one.members {
			s := q.Facts.Stack
			if w := one.weave[i]; w != nil && s.Name != "" && !w.Selects(s.Kind, s.Namespace, s.Name, s.Labels) {
				continue
			}
			e := &rego.Explanation{Why: q.Why, Steps: q.Steps}
			found = append(found, m.set.Evaluate(ctx, rego.Question{Policy: m.policy, Input: in, Parameters: m.parameters, Explain: e})...)
			out.Rules, out.Trace, out.Prints = append(out.Rules, e.Rules...), append(out.Trace, e.Trace...), append(out.Prints, e.Prints...)
		}
		policy.OnError(one.onError, found)
		for i := range found {
			if one.owner {
				found[i] = policy.Stricter(found[i])
			}
			if found[i].Effect == policy.Hold && found[i].Approval == nil {
				found[i].Approval = one.approval
			}
		}
		out.Findings = append(out.Findings, found...)
	}
	policy.Sort(out.Findings)
	out.Effect = policy.Combine(out.Findings)
	return out, ctx.Err()
}

// objectOf is as much of the object of a stack as is known here.
func objectOf(s document.Stack) map[string]any {
	if s.Name == "" {
		return nil
	}
	b, err := json.Marshal(map[string]any{
		"apiVersion": "infra.contrib.fluxcd.io/v1alpha2", "kind": cmp.Or(s.Kind, "Terraform"),
		"metadata": map[string]any{"name": s.Name, "namespace": s.Namespace, "labels": s.Labels}, "spec": map[string]any{},
	})
	var out map[string]any
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		panic("policies: encoding names: " + err.Error()) // texts
	}
	return out
}

// Parameters reads the parameters of a policy from YAML or JSON.
func Parameters(b []byte) (any, error) {
	var v any
	if err := yaml.Unmarshal(b, &v); err != nil {
		return nil, fault.New(fault.Invalid, "ParametersInvalid", fmt.Errorf("reading the parameters: %w", err))
	}
	return v, nil
}

// Now is a time as policies see it: without fractions of a second.
func Now(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }
