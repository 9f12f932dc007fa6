package rego

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/terrier-iac/terrier/internal/plainyaml"
	"github.com/terrier-iac/terrier/internal/policy"
)

// WeavePolicy is a Policy object of the Weave policy agent, in the versions v2beta2 and
// v2beta3 of its group.
type WeavePolicy struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec WeaveSpec `json:"spec"`
}

// WeaveSpec is what such an object says, as far as it matters for a plan.
type WeaveSpec struct {
	Name       string           `json:"name"`
	ID         string           `json:"id"`
	Code       string           `json:"code"`
	Provider   string           `json:"provider"` // kubernetes if empty
	Severity   string           `json:"severity"`
	Enabled    *bool            `json:"enabled"` // of v2beta1 and v2beta2; nil is true
	Enforce    *bool            `json:"enforce"` // of v2beta3; nil is true
	Parameters []WeaveParameter `json:"parameters"`
	Targets    struct {
		Kinds      []string            `json:"kinds"`
		Labels     []map[string]string `json:"labels"`
		Namespaces []string            `json:"namespaces"`
	} `json:"targets"`
	Exclude struct {
		Namespaces []string          `json:"namespaces"`
		Resources  []string          `json:"resources"`
		Labels     map[string]string `json:"labels"`
	} `json:"exclude"`
}

// WeaveParameter is one value that the code reads as input.parameters.
type WeaveParameter struct {
	Name     string `json:"name"`
	Required bool   `json:"required"`
	Value    any    `json:"value"`
}

// WeaveGroup is the group of these objects.
const WeaveGroup = "pac.weave.works"

// ReadWeave reads such an object from YAML or JSON.
func ReadWeave(manifest []byte) (WeavePolicy, error) {
	var p WeavePolicy
	b, err := plainyaml.Within(manifest, dataBytes)
	if err == nil {
		dec := json.NewDecoder(strings.NewReader(string(b)))
		dec.UseNumber()
		err = dec.Decode(&p)
	}
	switch {
	case err != nil:
		return p, invalid(fmt.Errorf("reading a Policy of %s: %w", WeaveGroup, err))
	case !p.is():
		return p, invalid(fmt.Errorf("%w: it is %q of %q", errOther, p.Kind, p.APIVersion))
	}
	return p, nil
}

// WeaveOf reads such an object as an API server has it.
func WeaveOf(object map[string]any) (WeavePolicy, error) {
	b, err := json.Marshal(object)
	if err != nil {
		return WeavePolicy{}, invalid(err)
	}
	return ReadWeave(b)
}

func (p WeavePolicy) is() bool {
	return p.Kind == "Policy" && strings.HasPrefix(p.APIVersion, WeaveGroup+"/")
}

// Judges reports whether the policy is for plans, and is switched on.
func (p WeavePolicy) Judges() bool {
	return p.Spec.Provider == "terraform" && (p.Spec.Enabled == nil || *p.Spec.Enabled)
}

// Selects reports whether the targets of the policy include an object, and its
// exclusions do not.
func (p WeavePolicy) Selects(kind, namespace, name string, labels map[string]string) bool {
	t, x := p.Spec.Targets, p.Spec.Exclude
	has := func(want map[string]string) bool {
		for key, value := range want {
			if got, ok := labels[key]; ok && (value == "*" || value == got) {
				return true
			}
		}
		return false
	}
	return (len(t.Kinds) == 0 || slices.Contains(t.Kinds, kind)) &&
		(len(t.Namespaces) == 0 || slices.Contains(t.Namespaces, namespace)) &&
		(len(t.Labels) == 0 || slices.ContainsFunc(t.Labels, has)) &&
		!slices.Contains(x.Namespaces, namespace) && !slices.Contains(x.Resources, namespace+"/"+name) && !has(x.Labels)
}

// Source is the code of the policy.
func (p WeavePolicy) Source() Source {
	audit := p.Spec.Enforce != nil && !*p.Spec.Enforce
	return Source{
		Format: Weave, Modules: map[string]string{p.Metadata.Name + ".rego": p.Spec.Code}, Severity: strings.ToLower(p.Spec.Severity),
		Rule: p.Spec.ID, Title: p.Spec.Name, Audit: audit,
	}
}

// Parameters are the values of the parameters. Its error names one that has to have a
// value, and has none.
func (p WeavePolicy) Parameters() (map[string]any, error) {
	out := map[string]any{}
	for _, one := range p.Spec.Parameters {
		if one.Required && one.Value == nil {
			return nil, invalid(fmt.Errorf("the parameter %s of the Policy %s needs a value", one.Name, p.Metadata.Name))
		}
		out[one.Name] = one.Value
	}
	return out, nil
}

// weaveRules is the rule violation, of whatever package.
func (s *Set) weaveRules() []rule {
	for _, m := range s.modules {
		for _, r := range m.Rules {
			if headName(r.Head) == "violation" {
				effect := policy.Deny
				if s.source.Audit {
					effect = policy.Warn
				}
				name := s.source.Rule
				if name == "" {
					name = "violation"
				}
				return []rule{{name: name, ref: m.Package.Path.String() + ".violation", effect: effect}}
			}
		}
	}
	return nil
}

// weaveGiven reads what the rule gave, as the Weave policy agent does: a set, one object
// or one text. What has no message has that of the policy.
func (s *Set) weaveGiven(r rule, value *ast.Term) []policy.Finding {
	var out []policy.Finding
	item := func(t *ast.Term) bool {
		f := policy.Finding{Rule: r.name, Effect: r.effect, Severity: s.source.Severity, Message: s.title()}
		if o, ok := t.Value.(ast.Object); ok {
			if msg := o.Get(ast.StringTerm("msg")); msg != nil && isText(msg) {
				f.Message = text(string(msg.Value.(ast.String)))
			}
			if key := o.Get(ast.StringTerm("violating_key")); key != nil && isText(key) {
				f = f.At(name(string(key.Value.(ast.String))))
			}
		}
		out = append(out, f)
		return len(out) <= findingsMost
	}
	switch v := value.Value.(type) {
	case ast.Set, *ast.Array:
		each(value, item)
	case ast.Boolean:
		if v {
			item(value)
		}
	case ast.Null:
	default:
		item(value)
	}
	return out
}

func (s *Set) title() string {
	if s.source.Title == "" {
		return "the policy is violated"
	}
	return text(s.source.Title)
}

var errOther = errors.New("the object is no Policy of " + WeaveGroup)

var errNoPolicies = errors.New("it has no Policy of " + WeaveGroup + " with provider: terraform")
