package input

import (
	"context"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/workdir"
)

// Fresh is what of the inputs could be read again, each by itself: credentials
// that may have been renewed since a run was recorded. Variables are not among
// it: they say what was applied.
type Fresh struct {
	Environment map[string]string
	Files       Files // without configuration of the module: that is part of what was applied
	NoCLI       bool  // the configuration of the command line could not be read
	NoSettings  bool  // what completes the backend could not be read
	Mask        []string
}

// Refresh reads the inputs of a stack again as far as they can be read.
func (r Resolver) Refresh(ctx context.Context) Fresh {
	s := r.begin()
	var out Fresh
	if fresh, err := workdir.Environ(s.freshSettings(ctx), s.Settable...); err == nil {
		out.Environment = fresh
	}
	for _, mapping := range s.Configuration.Files {
		file, err := s.mapped(ctx, mapping)
		switch {
		case err != nil:
		case mapping.Home:
			out.Files.Home = append(out.Files.Home, file)
		case !workdir.IsConfiguration(file.Path):
			out.Files.Work = append(out.Files.Work, file)
		}
	}
	var errCLI, errSettings error
	out.Files.CLI, errCLI = s.cli(ctx)
	out.Files.Settings, errSettings = s.backendSettings(ctx)
	out.NoCLI, out.NoSettings, out.Mask = errCLI != nil, errSettings != nil, s.mask
	return out
}

// freshSettings reads the environment again as far as it can be read and may be
// set. If some of it is gone, what refers to other variables is left as it was.
func (s *resolution) freshSettings(ctx context.Context) []workdir.Setting {
	var all []workdir.Setting
	whole := true
	for _, f := range s.Configuration.VarsFrom {
		if !HoldsSecrets(f.Kind) {
			continue
		}
		v, err := s.read(ctx, f.Kind, f.Name)
		data := v.Data
		if err == nil {
			data, err = choose(data, f)
		}
		if err != nil {
			whole = false
			continue
		}
		for name, value := range data {
			if workdir.CheckEnvironment(name, s.Settable...) == nil {
				s.mask = append(s.mask, string(value))
				all = append(all, workdir.Setting{Name: name, Value: string(value), Secret: true})
			}
		}
	}
	for _, from := range s.Configuration.EnvFrom {
		some, err := s.settingsFrom(ctx, from)
		whole = whole && err == nil
		all = append(all, some...)
	}
	for _, v := range s.Configuration.Env {
		if v.Literal {
			continue // it is a variable of the module, and says what was applied
		}
		one, ok, err := s.setting(ctx, v)
		whole = whole && err == nil
		if err == nil && ok {
			all = append(all, one)
		}
	}
	read := len(all)
	all = slices.DeleteFunc(all, func(one workdir.Setting) bool { return workdir.CheckEnvironment(one.Name, s.Settable...) != nil })
	whole = whole && len(all) == read
	return slices.DeleteFunc(all, func(s workdir.Setting) bool { return !whole && s.Refers && strings.Contains(s.Value, "$(") })
}
