// Package policies tries policies on the machine of a user: their unit tests, and what they
// say of plans. It evaluates them with the code of the controller, and changes nothing.
//
// Start reading at Open.
package policies

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/policy/document"
	"github.com/terrier-iac/terrier/internal/review/rego"
	"github.com/terrier-iac/terrier/policies"
)

// Tests are the results of unit tests.
type Tests = rego.Tests

// TestResult is one of them.
type TestResult = rego.TestResult

// Options say how a policy is read.
type Options struct {
	Format     string // terrier, conftest or weave
	Version    string // of the language: v0, v1, or empty to try both
	Namespaces []string
	Parameters any // what the policy reads as input.parameters
}

func (o Options) read() rego.Options {
	return rego.Options{Format: rego.Format(cmp.Or(o.Format, string(rego.Terrier))), Version: rego.Version(o.Version), Namespaces: o.Namespaces}
}

// Policy is a policy that was compiled.
type Policy struct {
	members []rego.Member
	weave   []*rego.WeavePolicy // of each member; nil of others
	Rules   []string            // that give findings
}

// fileBytes bounds a file that is a whole policy.
const fileBytes = 16 << 20

// Open reads a policy: a directory, a file of Rego, a manifest of a ClusterPolicy or a
// Policy, or the name of one that comes with Terrier.
func Open(ctx context.Context, where string, o Options) (*Policy, error) {
	parts, name, o, err := find(where, o, false)
	if err != nil {
		return nil, err
	}
	p := &Policy{}
	for _, part := range parts {
		set, err := rego.Compile(ctx, part.Source)
		if err != nil {
			return nil, err
		}
		m := rego.Member{Policy: name, Set: set, Parameters: o.Parameters}
		if part.Weave != nil {
			m.Policy, m.Parameters = name+"/"+part.Weave.Metadata.Name, part.Parameters
		}
		p.members, p.weave = append(p.members, m), append(p.weave, part.Weave)
		p.Rules = append(p.Rules, set.Rules()...)
	}
	return p, nil
}

// find reads the text of a policy, and says how its findings call it.
func find(where string, o Options, tests bool) ([]rego.Part, string, Options, error) {
	read := func(dir fs.FS, name string) ([]rego.Part, string, Options, error) {
		options := o.read()
		options.Tests = tests
		parts, err := rego.Read(dir, options)
		return parts, name, o, err
	}
	info, err := os.Stat(where)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		name := filepath.Base(where)
		if dir, ok := policies.Named(name); ok {
			return read(dir, name)
		}
		return nil, "", o, fault.New(fault.Missing, "PolicyMissing", fmt.Errorf("%s is no directory and no file, and no policy of that name comes with Terrier; these do: %s", name, strings.Join(policies.Names(), ", ")))
	case err != nil:
		return nil, "", o, err
	case info.IsDir():
		return read(os.DirFS(where), filepath.Base(where))
	case info.Size() > fileBytes:
		return nil, "", o, invalid("%s is larger than %d MiB", where, fileBytes>>20)
	}
	b, err := os.ReadFile(where)
	if err != nil {
		return nil, "", o, err
	}
	name := filepath.Base(where)
	switch {
	case filepath.Ext(where) == ".rego":
		return []rego.Part{{Source: o.source(map[string]string{name: string(b)})}}, name, o, nil
	case o.Format == string(rego.Weave):
		parts, err := rego.ReadWeaveFile(name, b)
		return parts, name, o, err
	}
	modules, name, o, err := fromManifest(b, o)
	if err != nil {
		return nil, "", o, err
	}
	return []rego.Part{{Source: o.source(modules)}}, name, o, nil
}

// source is a policy that is no directory.
func (o Options) source(modules map[string]string) rego.Source {
	r := o.read()
	return rego.Source{Format: r.Format, Version: r.Version, Namespaces: r.Namespaces, Modules: modules}
}

func invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "PolicyInvalid", fmt.Errorf(format, args...))
}

// manifest is the part of a ClusterPolicy or a Policy that has a program.
type manifest struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Spec struct {
		Rego *struct {
			Modules    map[string]string `json:"modules"`
			SourceRef  any               `json:"sourceRef"`
			Parameters any               `json:"parameters"`
			Format     string            `json:"format"`
			Namespaces []string          `json:"namespaces"`
		} `json:"rego"`
	} `json:"spec"`
}

func fromManifest(b []byte, o Options) (map[string]string, string, Options, error) {
	var m manifest
	if err := yaml.Unmarshal(b, &m); err != nil {
		return nil, "", o, invalid("reading the manifest of a policy: %w", err)
	}
	r := m.Spec.Rego
	switch {
	case m.Kind != "ClusterPolicy" && m.Kind != "Policy":
		return nil, "", o, invalid("the manifest is a %q, and may be a ClusterPolicy or a Policy", m.Kind)
	case r == nil:
		return nil, "", o, invalid("spec.rego: the policy has no program")
	case len(r.Modules) == 0 && r.SourceRef != nil:
		return nil, "", o, invalid("spec.rego.sourceRef: the program is in a source: pass the directory of its files")
	}
	o.Format, o.Namespaces = cmp.Or(o.Format, r.Format), append(o.Namespaces, r.Namespaces...)
	if o.Parameters == nil {
		o.Parameters = r.Parameters
	}
	name := m.Kind + "/" + m.Metadata.Name
	if m.Kind == "Policy" {
		name = m.Kind + "/" + cmp.Or(m.Metadata.Namespace, "default") + "/" + m.Metadata.Name
	}
	return r.Modules, name, o, nil
}

// Test runs the unit tests of a directory of policies. The filter is a regular expression
// for names of tests; empty for all.
func Test(ctx context.Context, where string, o Options, filter string) (Tests, error) {
	parts, _, _, err := find(where, o, true)
	if err != nil {
		return Tests{}, err
	}
	return rego.RunTests(ctx, parts[0].Source, filter)
}

// Answer is what a policy says of a plan.
type Answer struct {
	Effect   policy.Effect    `json:"effect,omitempty"` // of all findings together; empty if there are none
	Findings []policy.Finding `json:"findings"`
	Trace    []string         `json:"trace,omitempty"`
	Prints   []string         `json:"prints,omitempty"`
}

// Asked is a plan that a policy is asked about.
type Asked struct {
	Document []byte // of the plan, as "show -json" of the engine prints it
	Facts    document.Facts
	Trace    bool
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
	for i, m := range p.members {
		s := q.Facts.Stack
		if w := p.weave[i]; w != nil && s.Name != "" && !w.Selects(s.Kind, s.Namespace, s.Name, s.Labels) {
			continue
		}
		e := &rego.Explanation{Steps: q.Trace}
		out.Findings = append(out.Findings, m.Set.Evaluate(ctx, rego.Question{Policy: m.Policy, Input: in, Parameters: m.Parameters, Explain: e})...)
		out.Trace, out.Prints = append(out.Trace, e.Trace...), append(out.Prints, e.Prints...)
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
