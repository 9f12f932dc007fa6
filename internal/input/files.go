package input

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
	"github.com/terrier-iac/terrier/internal/workdir/module"
)

// Files are the files that a stack brings to its runs beside its module, and
// what else becomes a file.
type Files struct {
	Work     []workdir.File    // in the working directory
	Home     []workdir.File    // in the home directory
	CLI      module.CLI        // what completes the configuration of the command line
	Settings map[string]string // what completes the backend; nil if nothing does
}

// lasting is what of them a plan depends on: renewed credentials are no other
// plan.
func (f Files) lasting() any {
	return []any{f.Work, f.Home, f.CLI.Lasting(), module.LastingSettings(f.Settings)}
}

// files reads everything that becomes a file.
func (s *resolution) files(ctx context.Context) (Files, error) {
	var out Files
	for i, f := range s.Configuration.Files {
		file, err := s.mapped(ctx, f)
		if err != nil {
			return out, fmt.Errorf("fileMappings[%d]: %w", i, err)
		}
		if f.Home {
			out.Home = append(out.Home, file)
		} else {
			out.Work = append(out.Work, file)
		}
	}
	if err := workdir.CheckSizes(slices.Concat(out.Work, out.Home)); err != nil {
		return out, fmt.Errorf("fileMappings: %w", err)
	}
	var err error
	if out.CLI, err = s.cli(ctx); err != nil {
		return out, err
	}
	out.Settings, err = s.backendSettings(ctx)
	return out, err
}

func (s *resolution) mapped(ctx context.Context, f stack.File) (workdir.File, error) {
	content, _, err := s.key(ctx, Secret, f.Secret)
	return workdir.File{Path: f.Path, Mode: 0o600, Content: content}, err
}

// cli reads the stack's configuration of the command line, and the token of its
// cloud.
func (s *resolution) cli(ctx context.Context) (module.CLI, error) {
	out := module.CLI{Credentials: map[string]string{}}
	if ref := s.Configuration.CLIConfig; ref != nil {
		var err error
		if out, err = s.cliSecret(ctx, *ref); err != nil {
			return out, err
		}
	}
	if cloud := s.Configuration.Backend.Cloud; cloud != nil && !cloud.Token.Empty() {
		out.Credentials[cmp.Or(cloud.Hostname, module.CloudHost)] = cloud.Token.Reveal()
	}
	s.mask = append(s.mask, out.Tokens()...)
	return out, nil
}

func (s *resolution) cliSecret(ctx context.Context, ref stack.Ref) (module.CLI, error) {
	ref = within(ref, s.Object.Namespace)
	ref.Kind = Secret
	key := ref.Namespace + "/" + ref.Name
	if s.Refer != nil {
		if err := s.Refer(ctx, ref); err != nil {
			return module.CLI{}, fmt.Errorf("cliConfigSecretRef: %w", err)
		}
	} else if ref.Namespace != s.Object.Namespace {
		return module.CLI{}, fault.New(fault.Denied, "", errors.New("cliConfigSecretRef: it is in another namespace"))
	}
	v, err := s.readFrom(ctx, ref)
	if err != nil {
		return module.CLI{}, fmt.Errorf("cliConfigSecretRef: %w", err)
	}
	if names := slices.Sorted(maps.Keys(v.Data)); len(names) != 1 || !strings.HasSuffix(names[0], ".tfrc") {
		return module.CLI{}, fault.New(fault.Invalid, "", fmt.Errorf("cliConfigSecretRef: Secret %s must have exactly one key, which ends in .tfrc, and has %q", key, names))
	}
	for _, content := range v.Data {
		return module.ParseCLI(content)
	}
	return module.CLI{}, nil
}

// backendSettings reads what completes the backend; later ones win.
func (s *resolution) backendSettings(ctx context.Context) (map[string]string, error) {
	if len(s.Configuration.Completes) == 0 {
		return nil, nil
	}
	settings := map[string]string{}
	for i, f := range s.Configuration.Completes {
		v, err := s.read(ctx, f.Kind, f.Name)
		if f.Optional && fault.Of(err) == fault.Missing {
			continue
		}
		if err == nil && v.Made {
			err = fault.New(fault.Invalid, "", fmt.Errorf("%s is made for each run, and the settings of a backend last longer: give it as an environment variable (runnerPodTemplate.spec.env)", f.Name))
		}
		data := v.Data
		if err == nil {
			data, err = choose(data, stack.VarsFrom(f))
		}
		if err == nil {
			err = s.take(size(data))
		}
		if err != nil {
			return nil, fmt.Errorf("backendConfigsFrom[%d]: %w", i, err)
		}
		for key, value := range data {
			settings[key] = string(value)
			if HoldsSecrets(f.Kind) && !v.isPublic(key) {
				s.mask = append(s.mask, string(value))
			}
		}
	}
	return settings, nil
}
