package infra

import (
	"fmt"
	"strings"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/input"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// files reads which keys of Secrets become files of a run.
func files(p *stack.Configuration, s *v1alpha2.TerraformSpec) error {
	taken := map[stack.File]bool{}
	for i, f := range s.FileMappings {
		field := fmt.Sprintf("spec.fileMappings[%d]", i)
		if f.Location != "home" && f.Location != "workspace" {
			return invalid(field+".location", "is %.40q, not home or workspace", f.Location)
		}
		if f.SecretRef.Name == "" || f.SecretRef.Key == "" {
			return invalid(field+".secretRef", "needs a name and a key")
		}
		out := stack.File{Secret: stack.KeyRef{Name: f.SecretRef.Name, Key: f.SecretRef.Key}, Home: f.Location == "home", Path: within(f.Path)}
		if err := workdir.CheckPlace(out.Path, out.Home); err != nil {
			return fault.New(fault.Of(err), string(stack.SpecInvalid), fmt.Errorf("%s.path: %w", field, err))
		}
		place := stack.File{Home: out.Home, Path: out.Path}
		if taken[place] {
			return invalid(field+".path", "is %.80q, where another file is placed", f.Path)
		}
		taken[place] = true
		p.Files = append(p.Files, out)
	}
	return nil
}

// cloud reads where a remote state is. It wins over backendConfig, as upstream.
func cloud(p *stack.Configuration, s *v1alpha2.TerraformSpec) error {
	c := s.Cloud
	if c == nil {
		return nil
	}
	out := &stack.Cloud{Organization: c.Organization, Hostname: c.Hostname, Token: secret.New(c.Token)}
	if w := c.Workspaces; w != nil {
		out.Workspace, out.Tags = w.Name, w.Tags
	}
	switch {
	case out.Organization == "":
		return invalid("spec.cloud.organization", "is empty")
	case (out.Workspace == "") == (len(out.Tags) == 0):
		return invalid("spec.cloud.workspaces", "needs a name or tags, and not both")
	case c.Hostname != "" && !workdir.IsHost(c.Hostname):
		return invalid("spec.cloud.hostname", "is %.80q, which is no host name", c.Hostname)
	case strings.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return invalid("spec.cloud.token", "holds what no token holds")
	case len(s.BackendConfigsFrom) > 0:
		return invalid("spec.backendConfigsFrom", "cannot complete spec.cloud, which has no such settings")
	case p.Workspace != "" && out.Workspace != "":
		return invalid("spec.workspace", "cannot be chosen beside spec.cloud.workspaces.name")
	}
	p.Backend = stack.Backend{Kind: stack.Remote, Cloud: out}
	return nil
}

// completes reads what completes the configuration of the backend. The default
// backend is then the engine's own: its settings may say another cluster.
func completes(p *stack.Configuration, s *v1alpha2.TerraformSpec) error {
	for i, c := range s.BackendConfigsFrom {
		if err := input.CheckKind(c.Kind); err != nil {
			return invalid(fmt.Sprintf("spec.backendConfigsFrom[%d].kind", i), "%v", err)
		}
		p.Completes = append(p.Completes, stack.ConfigFrom{Kind: c.Kind, Name: c.Name, Keys: c.Keys, Optional: c.Optional})
	}
	if len(p.Completes) > 0 && p.Backend.Kind == stack.Managed {
		p.Backend.Kind = stack.Kubernetes
	}
	return nil
}

func cliConfig(p *stack.Configuration, s *v1alpha2.TerraformSpec) error {
	r := s.CliConfigSecretRef
	if r == nil {
		return nil
	}
	if r.Name == "" {
		return invalid("spec.cliConfigSecretRef.name", "is empty")
	}
	p.CLIConfig = &stack.Ref{Kind: "Secret", Namespace: r.Namespace, Name: r.Name}
	return nil
}
