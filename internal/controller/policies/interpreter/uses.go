package interpreter

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan/usage"
	"github.com/terrier-iac/terrier/internal/policy/document"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Records hold what runs left. The error for an absent one is Missing.
type Records interface {
	Get(ctx context.Context, key string) (io.ReadCloser, error)
}

// modules adds the modules and providers that the last plan used. A record that is absent,
// or of another plan, leaves them to the configuration, and the input says that they are not
// known as they were resolved.
func (p *Programs) modules(ctx context.Context, f *document.Facts, uid string, m stack.Status) error {
	if m.Uses == "" || p.records == nil {
		return nil
	}
	kept, err := p.record(ctx, record.Uses(uid).Key)
	if fault.Of(err) == fault.Missing {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the used modules and providers: %w", err)
	}
	r, err := record.Uses(uid).Decode(kept)
	if err != nil || r.Usage.Digest() != m.Uses {
		return nil
	}
	f.Modules, f.Providers, f.Incomplete = []document.Module{}, []document.Provider{}, slices.Clone(r.Problems)
	for _, u := range r.Modules {
		f.Modules = append(f.Modules, moduleOf(u))
	}
	for _, u := range r.Providers {
		f.Providers = append(f.Providers, providerOf(u))
	}
	return nil
}

// record reads a whole record.
func (p *Programs) record(ctx context.Context, key string) ([]byte, error) {
	r, err := p.records.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, 2*usage.MaxBytes))
}

func moduleOf(m usage.Module) document.Module {
	return document.Module{
		Path: m.Path, Parent: m.Parent(), Declared: m.Declared, Constraint: m.Constraint, Source: m.Source, Kind: string(m.Kind), Address: m.Address,
		Directory: m.Directory, Version: m.Version, Commit: m.Commit,
	}
}

// providerOf has the constraint of each module; those of a lock file are all of them
// together.
func providerOf(u usage.Provider) document.Provider {
	out := document.Provider{Source: u.Source, Version: u.Version, Constraints: []string{}}
	for _, r := range u.Required {
		if r.Constraint != "" && !slices.Contains(out.Constraints, r.Constraint) {
			out.Constraints = append(out.Constraints, r.Constraint)
		}
	}
	if len(out.Constraints) == 0 && u.Constraint != "" {
		out.Constraints = append(out.Constraints, u.Constraint)
	}
	return out
}
