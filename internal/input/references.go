package input

import (
	"cmp"
	"slices"

	"github.com/terrier-iac/terrier/internal/stack"
)

// Refs are the objects that a stack refers to.
type Refs struct {
	Source    *stack.Ref  // of its module; nil if that is inline
	Reads     []stack.Ref // what its inputs come from; one may be named twice
	Writes    *stack.Ref  // the Secret with its outputs; nil if it publishes none
	DependsOn []stack.Ref // stacks
}

// References returns what a stack in a namespace refers to.
func References(c stack.Configuration, namespace string) Refs {
	var r Refs
	if c.Source != nil {
		r.Source = new(within(*c.Source, namespace))
	}
	for _, ref := range named(c) {
		kind, err := kindOf(ref.Kind)
		if err == nil { // else resolving it says so
			r.Reads = append(r.Reads, kind.Open(within(ref, namespace)).Wakes()...)
		}
	}
	if c.Outputs != nil {
		r.Writes = &stack.Ref{Kind: Secret, Namespace: namespace, Name: c.Outputs.Secret}
	}
	for _, ref := range c.DependsOn {
		r.DependsOn = append(r.DependsOn, within(ref, namespace))
	}
	return r
}

// Outside reports whether a stack reads anything that is no part of its spec: objects,
// secrets of a Vault, or fields of its metadata, which users change without changing the spec.
func Outside(c stack.Configuration) bool {
	return len(named(c)) > 0 ||
		slices.ContainsFunc(c.Vars, func(v stack.Var) bool { return v.Field != "" }) ||
		slices.ContainsFunc(c.Env, func(v stack.EnvVar) bool { return v.Field != "" })
}

// within is ref with the namespace that an empty one stands for.
func within(ref stack.Ref, namespace string) stack.Ref {
	ref.Namespace = cmp.Or(ref.Namespace, namespace)
	return ref
}

// named lists the sources that a stack names, in the order of its fields.
func named(c stack.Configuration) []stack.Ref {
	var refs []stack.Ref
	add := func(kind, name string) { refs = append(refs, stack.Ref{Kind: kind, Name: name}) }
	either := func(secret, config *stack.KeyRef) {
		if secret != nil {
			add(Secret, secret.Name)
		}
		if config != nil {
			add(ConfigMap, config.Name)
		}
	}
	for _, f := range c.VarsFrom {
		add(f.Kind, f.Name)
	}
	if c.Image != nil {
		either(c.Image.Login, nil)
	}
	for _, v := range c.Vars {
		either(v.Secret, v.Config)
	}
	for _, i := range c.Inputs {
		add(Secret, i.Secret)
	}
	for _, e := range c.EnvFrom {
		add(e.Kind, e.Name)
	}
	for _, v := range c.Env {
		either(v.Secret, v.Config)
	}
	for _, f := range c.Files {
		add(Secret, f.Secret.Name)
	}
	for _, f := range c.Completes {
		add(f.Kind, f.Name)
	}
	if s := c.Script; s != nil {
		either(nil, s.Apply.Config)
		either(nil, s.Destroy.Config)
	}
	if r := c.CLIConfig; r != nil {
		refs = append(refs, stack.Ref{Kind: Secret, Namespace: r.Namespace, Name: r.Name})
	}
	return refs
}
