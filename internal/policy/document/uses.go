package document

import (
	"slices"

	"github.com/terrier-iac/terrier/internal/plan/usage"
)

// Use adds the modules and providers that a run found after init, in place of what the
// configuration says of them.
func (f *Facts) Use(u usage.Usage) {
	f.Modules, f.Providers, f.Incomplete = []Module{}, []Provider{}, slices.Clone(u.Problems)
	for _, m := range u.Modules {
		f.Modules = append(f.Modules, Module{
			Path: m.Path, Parent: m.Parent(), Declared: m.Declared, Constraint: m.Constraint, Source: m.Source, Kind: string(m.Kind), Address: m.Address,
			Directory: m.Directory, Version: m.Version, Commit: m.Commit,
		})
	}
	for _, p := range u.Providers {
		f.Providers = append(f.Providers, providerOf(p))
	}
}

// providerOf has the constraint of each module; those of a lock file are all of them
// together.
func providerOf(u usage.Provider) Provider {
	out := Provider{Source: u.Source, Version: u.Version, Constraints: []string{}}
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
