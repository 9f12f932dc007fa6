package input

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

const podField = "runnerPodTemplate.spec."

// environment are the environment variables that a stack asks for, in the order in
// which they count: whole objects, then single ones.
func (s *resolution) environment(ctx context.Context) ([]workdir.Setting, error) {
	var all []workdir.Setting
	for i, from := range s.Configuration.EnvFrom {
		some, err := s.settingsFrom(ctx, from)
		if err != nil {
			return nil, fmt.Errorf("%senvFrom[%d]: %w", podField, i, err)
		}
		all = append(all, some...)
	}
	for i, v := range s.Configuration.Env {
		one, ok, err := s.setting(ctx, v)
		if err != nil {
			if v.Literal {
				return nil, fmt.Errorf("variables: %w", err)
			}
			return nil, fmt.Errorf("%senv[%d]: %w", podField, i, err)
		}
		if ok {
			all = append(all, one)
		}
	}
	return all, nil
}

// settingsFrom makes settings of all keys of an object. A key that is no name of
// an environment variable is passed over, as Kubernetes does; one that controls
// the engine is refused.
func (s *resolution) settingsFrom(ctx context.Context, from stack.EnvFrom) ([]workdir.Setting, error) {
	v, err := s.read(ctx, from.Kind, from.Name)
	if from.Optional && fault.Of(err) == fault.Missing {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if v.Made {
		return nil, fault.New(fault.Invalid, "", fmt.Errorf("%s is made for each run, and its keys are not known before: name them one by one, in %senv", from.Name, podField))
	}
	if err := s.take(size(v.Data)); err != nil {
		return nil, err
	}
	var all []workdir.Setting
	for _, key := range slices.Sorted(maps.Keys(v.Data)) {
		name := from.Prefix + key
		err := workdir.CheckEnvironment(name, s.Settable...)
		if fault.Of(err) == fault.Invalid {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", from.Kind, from.Name, err)
		}
		secret := HoldsSecrets(from.Kind) && !v.isPublic(key)
		if secret {
			s.mask = append(s.mask, string(v.Data[key]))
		}
		all = append(all, workdir.Setting{Name: name, Value: string(v.Data[key]), Secret: secret})
	}
	return all, nil
}

// setting resolves one environment variable; ok is false if it has no value and
// need not have one.
func (s *resolution) setting(ctx context.Context, v stack.EnvVar) (out workdir.Setting, ok bool, err error) {
	out = workdir.Setting{Name: v.Name, Value: v.Value, Refers: !v.Literal}
	if err := workdir.CheckEnvironment(v.Name, s.Settable...); err != nil {
		return out, false, err
	}
	ref, kind := v.Secret, Secret
	if ref == nil {
		ref, kind = v.Config, ConfigMap
	}
	switch {
	case v.Field != "":
		out.Refers, out.Value = false, s.Object.Field(v.Field)
		return out, true, nil
	case ref == nil:
		return out, true, nil
	}
	text, found, err := s.key(ctx, kind, *ref)
	if err != nil || !found {
		return out, false, err
	}
	out.Value, out.Refers, out.Secret = string(text), false, HoldsSecrets(kind)
	return out, true, nil
}
