package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

const podField = "runnerPodTemplate.spec."

// settings are the environment variables that a stack asks for, in the order in
// which they count: whole objects, then single ones.
func (c *Stacks) settings(ctx context.Context, p *pass) ([]workdir.Setting, error) {
	var all []workdir.Setting
	for i, from := range p.st.Configuration.EnvFrom {
		some, err := c.settingsFrom(ctx, p, from)
		if err != nil {
			return nil, fmt.Errorf("%senvFrom[%d]: %w", podField, i, err)
		}
		all = append(all, some...)
	}
	for i, v := range p.st.Configuration.Env {
		s, ok, err := c.setting(ctx, p, v)
		if err != nil {
			return nil, fmt.Errorf("%senv[%d]: %w", podField, i, err)
		}
		if ok {
			all = append(all, s)
		}
	}
	return all, nil
}

// settingsFrom makes settings of all keys of an object. A key that is no name of
// an environment variable is passed over, as Kubernetes does; one that controls
// the engine is refused.
func (c *Stacks) settingsFrom(ctx context.Context, p *pass, from stack.EnvFrom) ([]workdir.Setting, error) {
	data, public, err := c.read(ctx, p, from.Kind, from.Name)
	if from.Optional && fault.Of(err) == fault.Missing {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []workdir.Setting
	for _, key := range slices.Sorted(maps.Keys(data)) {
		name := from.Prefix + key
		err := workdir.CheckEnvironment(name)
		if fault.Of(err) == fault.Invalid {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", from.Kind, from.Name, err)
		}
		secret := from.Kind == "Secret" && !slices.Contains(public, key)
		if secret {
			p.in.mask = append(p.in.mask, string(data[key]))
		}
		all = append(all, workdir.Setting{Name: name, Value: string(data[key]), Secret: secret})
	}
	return all, nil
}

// setting resolves one environment variable; ok is false if it has no value and
// need not have one.
func (c *Stacks) setting(ctx context.Context, p *pass, v stack.EnvVar) (s workdir.Setting, ok bool, err error) {
	s = workdir.Setting{Name: v.Name, Value: v.Value, Refers: true}
	ref, kind := v.Secret, "Secret"
	if ref == nil {
		ref, kind = v.Config, "ConfigMap"
	}
	switch {
	case v.Field != "":
		s.Refers, s.Value = false, fieldOf(p.obj, v.Field)
		return s, true, nil
	case ref == nil:
		return s, true, nil
	}
	text, found, err := c.key(ctx, p, kind, *ref)
	if err != nil || !found {
		return s, false, err
	}
	s.Value, s.Refers, s.Secret = string(text), false, kind == "Secret"
	return s, true, nil
}

// key reads one key of a Secret or ConfigMap. What a Secret holds is hidden from
// then on. It is an error if there is none, unless that is allowed.
func (c *Stacks) key(ctx context.Context, p *pass, kind string, ref stack.KeyRef) (value []byte, found bool, err error) {
	data, public, err := c.read(ctx, p, kind, ref.Name)
	value, found = data[ref.Key]
	switch {
	case ref.Optional && (fault.Of(err) == fault.Missing || err == nil && !found):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	case !found:
		return nil, false, fault.New(fault.Missing, "", fmt.Errorf("%s %s has no key %q", kind, ref.Name, ref.Key))
	}
	if kind == "Secret" && !slices.Contains(public, ref.Key) {
		p.in.mask = append(p.in.mask, string(value))
	}
	return value, true, nil
}

// fieldOf is a field of an object; one that it does not have is empty.
func fieldOf(obj client.Object, path string) string {
	switch of, key, _ := stack.CutField(path); of {
	case "name":
		return obj.GetName()
	case "namespace":
		return obj.GetNamespace()
	case "uid":
		return string(obj.GetUID())
	case "labels":
		if isStatusLabel(key) {
			return ""
		}
		return obj.GetLabels()[key]
	case "annotations":
		return obj.GetAnnotations()[key]
	default:
		return ""
	}
}
