package controller

import (
	"context"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// refresh renews the credentials of a recorded job where they still are: those
// in its environment, its files, its backend and the configuration of its
// command line. The record stands in for what is gone, each by itself. Variables
// stay as recorded: they say what was built.
func (c *Stacks) refresh(ctx context.Context, p *pass, job *runner.Job) {
	p.in.mask = nil
	fresh, err := workdir.Environ(c.freshSettings(ctx, p))
	if err == nil {
		for name := range job.Env {
			if v, ok := fresh[name]; ok {
				job.Env[name] = v
			}
		}
	}
	var f placed
	for _, mapping := range p.st.Configuration.Files {
		file, err := c.mapped(ctx, p, mapping)
		switch {
		case err != nil:
		case mapping.Home:
			f.home = append(f.home, file)
		case !workdir.IsConfiguration(file.Path): // else it is part of what was built
			f.work = append(f.work, file)
		}
	}
	job.Home = renew(job.Home, f.home)
	var errCLI, errBackend error
	f.cli, errCLI = c.cli(ctx, p)
	f.settings, errBackend = c.backendSettings(ctx, p)
	if errBackend != nil || backendDigest(p.st.Configuration, f.settings) != p.note.Backend {
		f.settings = nil // other settings are of another state
	}
	if files, err := c.given(f); err == nil {
		if errCLI != nil {
			files = slices.DeleteFunc(files, func(f workdir.File) bool { return f.Path == runner.CLIConfig })
		}
		job.Files = renew(job.Files, files)
	}
	for _, s := range p.in.mask {
		if !slices.Contains(job.Mask, s) {
			job.Mask = append(job.Mask, s)
		}
	}
}

// renew puts fresh files in the place of old ones, and adds none.
func renew(old, fresh []workdir.File) []workdir.File {
	for i, o := range old {
		if n := slices.IndexFunc(fresh, func(f workdir.File) bool { return f.Path == o.Path }); n >= 0 {
			old[i] = fresh[n]
		}
	}
	return old
}

// freshSettings reads the environment again as far as it can be. If some of it
// is gone, what refers to other variables is left as it was.
func (c *Stacks) freshSettings(ctx context.Context, p *pass) []workdir.Setting {
	var all []workdir.Setting
	whole := true
	for _, f := range p.st.Configuration.VarsFrom {
		if f.Kind != "Secret" {
			continue
		}
		data, _, err := c.read(ctx, p, f.Kind, f.Name)
		if err == nil {
			data, err = choose(data, f)
		}
		if err != nil {
			whole = false
			continue
		}
		for name, value := range data {
			if workdir.CheckEnvironment(name) == nil {
				p.in.mask = append(p.in.mask, string(value))
				all = append(all, workdir.Setting{Name: name, Value: string(value), Secret: true})
			}
		}
	}
	for _, from := range p.st.Configuration.EnvFrom {
		some, err := c.settingsFrom(ctx, p, from)
		whole = whole && err == nil
		all = append(all, some...)
	}
	for _, v := range p.st.Configuration.Env {
		s, ok, err := c.setting(ctx, p, v)
		whole = whole && err == nil
		if err == nil && ok {
			all = append(all, s)
		}
	}
	return slices.DeleteFunc(all, func(s workdir.Setting) bool { return !whole && s.Refers && strings.Contains(s.Value, "$(") })
}

// renewed is a digest of the credentials that a plan does not depend on and a
// destroy will need: their newest values are recorded with what was applied.
func (c *Stacks) renewed(p *pass) string {
	return c.keyed([]any{p.in.env, p.in.placed.cli, p.in.placed.settings})
}
