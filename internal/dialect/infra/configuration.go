package infra

import (
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"strings"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/input"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
	"github.com/terrier-iac/terrier/internal/workdir/module"
)

// invalid is an error that the user fixes by editing the named field.
func invalid(field, format string, args ...any) error {
	return fault.New(fault.Invalid, string(stack.SpecInvalid), fmt.Errorf("%s %s", field, fmt.Sprintf(format, args...)))
}

// configuration reads how the stack called name is run.
func configuration(name string, s *v1alpha2.TerraformSpec) (stack.Configuration, error) {
	p, err := legible(name, s)
	if err != nil {
		return stack.Configuration{}, err
	}
	return p, nil
}

// Legible is what can be read of how a stack is carried out, also if its spec
// is invalid. It is for showing: nothing may be decided by it.
func Legible(o *v1alpha2.Terraform) stack.Configuration {
	p, _ := legible(o.Name, &o.Spec) // Decode returns the error
	_ = pluggedIn(o, &p)             // and this one
	return p
}

// dependenciesMost bounds what a stack waits for. An object has room for a hundred thousand names,
// and each pass of each stack that depends on it would follow them.
const dependenciesMost = 256

// legible reads all that it can, and returns the first error.
func legible(name string, s *v1alpha2.TerraformSpec) (stack.Configuration, error) {
	err := refused(s)
	p := stack.Configuration{
		Backend:     backendOf(name, s.BackendConfig),
		Targets:     s.Targets,
		Parallelism: int(max(0, s.Parallelism)),
		Destroy:     s.Destroy,
		Upgrade:     s.UpgradeOnInit == nil || *s.UpgradeOnInit,
		NoPlanLock:  s.Plan != nil && s.Plan.Lock != nil && !*s.Plan.Lock,
	}
	if s.TfState != nil && s.TfState.LockTimeout != nil {
		p.LockTimeout = max(0, s.TfState.LockTimeout.Duration)
	}
	for _, in := range s.ReadInputsFromSecrets {
		p.Inputs = append(p.Inputs, stack.Input{Secret: in.Name, As: in.As})
	}
	if n := len(s.DependsOn); n > dependenciesMost && err == nil {
		err = invalid("spec.dependsOn", "names %d stacks, and at most %d are allowed: let stacks in between depend on some of them", n, dependenciesMost)
	}
	for _, d := range s.DependsOn[:min(len(s.DependsOn), dependenciesMost)] {
		p.DependsOn = append(p.DependsOn, stack.Ref{Kind: v1alpha2.Kind, Namespace: d.Namespace, Name: d.Name})
	}
	for _, step := range []func(*stack.Configuration, *v1alpha2.TerraformSpec) error{
		moduleOf, variables, varFiles, workspace, readable, outputs, webhooks, checks,
		files, cloud, completes, cliConfig, runnerPod,
	} {
		if why := step(&p, s); err == nil {
			err = why
		}
	}
	return p, err
}

// moduleOf reads where the module comes from: a source, or values.hcl alone.
func moduleOf(p *stack.Configuration, s *v1alpha2.TerraformSpec) error {
	if r := s.SourceRef; r != nil {
		p.Source = &stack.Ref{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
		p.Path = within(s.Path)
		if s.Values != nil {
			p.Values = json.RawMessage(s.Values.Raw)
		}
		return nil
	}
	if s.Values == nil {
		return invalid("spec.sourceRef", "is missing, and there is no spec.values.hcl with an inline module instead")
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(s.Values.Raw, &values); err != nil || len(values) != 1 || values["hcl"] == nil {
		return invalid("spec.values", "must hold exactly the key hcl, since there is no spec.sourceRef")
	}
	if err := json.Unmarshal(values["hcl"], &p.Inline); err != nil || strings.TrimSpace(p.Inline) == "" {
		return invalid("spec.values.hcl", "must be the text of a module")
	}
	var err error
	if p.Inline, _, err = module.Repair(workdir.InlinePath, p.Inline); err != nil {
		return invalid("spec.values.hcl", "%v", err)
	}
	if within(s.Path) != "" {
		return invalid("spec.path", "needs a spec.sourceRef: an inline module has no directories")
	}
	return nil
}

// brokenLines are the blocks of an inline module that had to be broken into lines.
func brokenLines(s *v1alpha2.TerraformSpec) []module.OneLine {
	var p stack.Configuration
	if s.SourceRef != nil || moduleOf(&p, s) != nil {
		return nil
	}
	var values struct{ HCL string }
	if json.Unmarshal(s.Values.Raw, &values) != nil {
		return nil
	}
	_, found, _ := module.Repair(workdir.InlinePath, values.HCL)
	return found
}

// within reads a path as one below a root that it cannot leave, as upstream's
// securejoin does; "" is the root itself.
func within(p string) string { return strings.TrimPrefix(path.Clean("/"+p), "/") }

func variables(p *stack.Configuration, s *v1alpha2.TerraformSpec) error {
	for i, v := range s.Vars {
		if v.Name == "" {
			return invalid(fmt.Sprintf("spec.vars[%d].name", i), "is empty")
		}
		out := stack.Var{Name: v.Name}
		from := v.ValueFrom
		switch {
		case v.Value != nil:
			out.Value = json.RawMessage(v.Value.Raw)
		case from != nil && from.SecretKeyRef != nil:
			r := from.SecretKeyRef
			out.Secret = &stack.KeyRef{Name: r.Name, Key: r.Key, Optional: r.Optional != nil && *r.Optional}
		case from != nil && from.ConfigMapKeyRef != nil:
			r := from.ConfigMapKeyRef
			out.Config = &stack.KeyRef{Name: r.Name, Key: r.Key, Optional: r.Optional != nil && *r.Optional}
		case from != nil && from.FieldRef != nil:
			if out.Field = from.FieldRef.FieldPath; !stack.IsField(out.Field) {
				return invalid(fmt.Sprintf("spec.vars[%d].valueFrom.fieldRef.fieldPath", i), "is %.80q: a run has %s", out.Field, stack.Fields)
			}
		default: // null, as upstream; an absent value is the module's default
			out.Value = json.RawMessage("null")
		}
		p.Vars = append(p.Vars, out)
	}
	for i, v := range s.VarsFrom {
		if err := input.CheckKind(v.Kind); err != nil {
			return invalid(fmt.Sprintf("spec.varsFrom[%d].kind", i), "%v", err)
		}
		p.VarsFrom = append(p.VarsFrom, stack.VarsFrom{Kind: v.Kind, Name: v.Name, Keys: v.VarsKeys, Optional: v.Optional})
	}
	return nil
}

func varFiles(p *stack.Configuration, s *v1alpha2.TerraformSpec) error {
	for i, f := range s.TfVarsFiles {
		if p.Source == nil {
			return invalid("spec.tfVarsFiles", "needs a spec.sourceRef: an inline module has no files")
		}
		if f = within(f); f == "" {
			return invalid(fmt.Sprintf("spec.tfVarsFiles[%d]", i), "names no file")
		}
		p.VarFiles = append(p.VarFiles, f)
	}
	return nil
}

// workspace reads the engine's workspace by the engine's rule for names, and
// keeps a name from being taken for an option.
func workspace(p *stack.Configuration, s *v1alpha2.TerraformSpec) error {
	w := s.Workspace
	if w == "default" {
		w = ""
	}
	if w != url.PathEscape(w) || strings.HasPrefix(w, "-") || w == "." || w == ".." {
		return invalid("spec.workspace", "is %q, which is no name for a workspace", w)
	}
	p.Workspace = w
	return nil
}

func readable(p *stack.Configuration, s *v1alpha2.TerraformSpec) error {
	switch s.StoreReadablePlan {
	case "", v1alpha2.ReadableNone:
		p.Readable = stack.ReadableNone
	case v1alpha2.ReadableJSON:
		p.Readable = stack.ReadableJSON
	case v1alpha2.ReadableHuman:
		p.Readable = stack.ReadableHuman
	default:
		return invalid("spec.storeReadablePlan", "is %q, not none, json or human", s.StoreReadablePlan)
	}
	return nil
}

func outputs(p *stack.Configuration, s *v1alpha2.TerraformSpec) error {
	o := s.WriteOutputsToSecret
	if o == nil {
		return nil
	}
	if o.Name == "" {
		return invalid("spec.writeOutputsToSecret.name", "is empty")
	}
	taken := map[string]string{} // key → entry
	for i, entry := range o.Outputs {
		field := fmt.Sprintf("spec.writeOutputsToSecret.outputs[%d]", i)
		_, key := stack.SelectedOutput(entry)
		if !stack.IsSecretKey(key) {
			return invalid(field, "is %q: a Secret cannot have the key %q; a key has %s", entry, key, stack.SecretKeys)
		}
		if other, ok := taken[key]; ok && other != entry {
			return invalid(field, "is %q, and %q has the key %q already: give one of them another key, as in OUTPUT:KEY", entry, other, key)
		}
		taken[key] = entry
	}
	p.Outputs = &stack.Outputs{Secret: o.Name, Select: o.Outputs, Labels: o.Labels, Annotations: o.Annotations}
	return nil
}

// backendOf reads where the state is. The Secret of the managed backend is the
// one that upstream's default backend uses, so that existing states are found.
func backendOf(name string, c *v1alpha2.BackendConfig) stack.Backend {
	switch {
	case c == nil:
		return stack.Backend{Kind: stack.Managed, Suffix: name, InCluster: true}
	case c.Disable:
		return stack.Backend{Kind: stack.Declared}
	case c.CustomConfiguration != "":
		return stack.Backend{Kind: stack.Custom, Custom: c.CustomConfiguration}
	}
	b := stack.Backend{Kind: stack.Managed, Suffix: c.SecretSuffix, Labels: c.Labels, InCluster: c.InClusterConfig}
	if b.Suffix == "" { // no Secret can have upstream's name for this, so none exists
		b.Suffix = name
	}
	if c.ConfigPath != "" {
		b.Kind, b.ConfigPath = stack.Kubernetes, c.ConfigPath
	}
	return b
}
