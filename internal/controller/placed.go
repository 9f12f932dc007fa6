package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
	"github.com/terrier-iac/terrier/internal/workdir/module"
)

// placed are the files that a stack brings to its runs beside its module.
type placed struct {
	work     []workdir.File    // in the working directory
	home     []workdir.File    // at home
	cli      module.CLI        // what completes the configuration of the command line
	settings map[string]string // what completes the backend; nil if nothing does
}

// lasting is what of them a plan depends on: renewed credentials are no other
// plan.
func (f placed) lasting() any {
	return []any{f.work, f.home, f.cli.Lasting(), module.LastingSettings(f.settings)}
}

// place reads everything that becomes a file.
func (c *Stacks) place(ctx context.Context, p *pass) (placed, error) {
	var out placed
	for i, f := range p.st.Configuration.Files {
		file, err := c.mapped(ctx, p, f)
		if err != nil {
			return out, fmt.Errorf("fileMappings[%d]: %w", i, err)
		}
		if f.Home {
			out.home = append(out.home, file)
		} else {
			out.work = append(out.work, file)
		}
	}
	if err := workdir.CheckSizes(slices.Concat(out.work, out.home)); err != nil {
		return out, fmt.Errorf("fileMappings: %w", err)
	}
	var err error
	if out.cli, err = c.cli(ctx, p); err != nil {
		return out, err
	}
	out.settings, err = c.backendSettings(ctx, p)
	return out, err
}

func (c *Stacks) mapped(ctx context.Context, p *pass, f stack.File) (workdir.File, error) {
	content, _, err := c.key(ctx, p, "Secret", f.Secret)
	return workdir.File{Path: f.Path, Mode: 0o600, Content: content}, err
}

// cli reads the stack's configuration of the command line, and the token of its
// cloud.
func (c *Stacks) cli(ctx context.Context, p *pass) (module.CLI, error) {
	out := module.CLI{Credentials: map[string]string{}}
	if ref := p.st.Configuration.CLIConfig; ref != nil {
		var err error
		if out, err = c.cliSecret(ctx, p, *ref); err != nil {
			return out, err
		}
	}
	if cloud := p.st.Configuration.Backend.Cloud; cloud != nil && !cloud.Token.Empty() {
		out.Credentials[cloudHost(*cloud)] = cloud.Token.Reveal()
	}
	p.in.mask = append(p.in.mask, out.Tokens()...)
	return out, nil
}

func cloudHost(c stack.Cloud) string {
	if c.Hostname == "" {
		return module.CloudHost
	}
	return c.Hostname
}

func (c *Stacks) cliSecret(ctx context.Context, p *pass, ref stack.Ref) (module.CLI, error) {
	key := c.keyOf(ref, p.obj)
	if key.Namespace != p.obj.GetNamespace() && !c.Config.CrossNamespace {
		return module.CLI{}, fault.New(fault.Denied, "", fmt.Errorf("cliConfigSecretRef: Secret %s is in another namespace, which this platform does not allow", key))
	}
	data, _, err := kube.ReadSecret(ctx, c.Live, key)
	if err != nil {
		return module.CLI{}, fmt.Errorf("cliConfigSecretRef: %w", err)
	}
	if names := slices.Sorted(maps.Keys(data)); len(names) != 1 || !strings.HasSuffix(names[0], ".tfrc") {
		return module.CLI{}, fault.New(fault.Invalid, "", fmt.Errorf("cliConfigSecretRef: Secret %s must have exactly one key, which ends in .tfrc, and has %q", key, names))
	}
	for _, content := range data {
		return module.ParseCLI(content)
	}
	return module.CLI{}, nil
}

// backendSettings reads what completes the backend; later ones win.
func (c *Stacks) backendSettings(ctx context.Context, p *pass) (map[string]string, error) {
	if len(p.st.Configuration.Completes) == 0 {
		return nil, nil
	}
	settings := map[string]string{}
	for i, f := range p.st.Configuration.Completes {
		data, public, err := c.read(ctx, p, f.Kind, f.Name)
		if f.Optional && fault.Of(err) == fault.Missing {
			continue
		}
		if err == nil {
			data, err = choose(data, stack.VarsFrom(f))
		}
		if err != nil {
			return nil, fmt.Errorf("backendConfigsFrom[%d]: %w", i, err)
		}
		for key, value := range data {
			settings[key] = string(value)
			if f.Kind == "Secret" && !slices.Contains(public, key) {
				p.in.mask = append(p.in.mask, string(value))
			}
		}
	}
	return settings, nil
}

// backendDigest names where a state is: credentials are not part of it.
func backendDigest(prog stack.Configuration, settings map[string]string) string {
	parts := []any{prog.Backend, prog.Workspace}
	if settings != nil {
		parts = append(parts, module.LastingSettings(settings))
	}
	return stack.Digest(parts)
}

// given are the files of a job that stand for f.
func (c *Stacks) given(f placed) ([]workdir.File, error) {
	config := f.cli.File(c.Config.MirrorProviders, runner.MirrorInside)
	config.Path = runner.CLIConfig
	files := append([]workdir.File{config}, f.work...)
	if f.settings == nil {
		return files, nil
	}
	settings, err := module.BackendSettings(runner.BackendFile, f.settings)
	return append(files, settings), err
}

// readsFrom lists the objects that a program is resolved from, so that a change
// of one wakes the stack.
func (c *Stacks) readsFrom(p stack.Configuration, namespace string) []string {
	var keys []string
	add := func(kind, ns, name string) {
		keys = append(keys, kind+"/"+types.NamespacedName{Namespace: ns, Name: name}.String())
	}
	either := func(secret, config *stack.KeyRef) {
		if secret != nil {
			add("Secret", namespace, secret.Name)
		}
		if config != nil {
			add("ConfigMap", namespace, config.Name)
		}
	}
	for _, f := range p.VarsFrom {
		add(f.Kind, namespace, f.Name)
	}
	for _, v := range p.Vars {
		either(v.Secret, v.Config)
	}
	for _, i := range p.Inputs {
		add("Secret", namespace, i.Secret)
	}
	for _, e := range p.EnvFrom {
		add(e.Kind, namespace, e.Name)
	}
	for _, v := range p.Env {
		either(v.Secret, v.Config)
	}
	for _, f := range p.Files {
		add("Secret", namespace, f.Secret.Name)
	}
	for _, f := range p.Completes {
		add(f.Kind, namespace, f.Name)
	}
	if r := p.CLIConfig; r != nil {
		ns := r.Namespace
		if ns == "" {
			ns = namespace
		}
		add("Secret", ns, r.Name)
	}
	return keys
}
