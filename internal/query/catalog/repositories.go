package catalog

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry/origin"
)

// Repository is a git repository whose tags become versions of modules, TaggedModule one of
// its modules, TagProblem a tag that contradicts what is published, and SkippedTag one of
// which no version was made.
type (
	Repository   = origin.State
	TaggedModule = origin.Module
	TagProblem   = origin.Problem
	SkippedTag   = origin.Skip
)

// TagMoved is the reason of a tag that points to another commit than its version was made
// from.
const TagMoved = origin.ReasonMoved

// repositoriesFor is how long the repositories are answered from memory: to know them takes a
// read of each.
const repositoriesFor = 5 * time.Second

// Repositories are those of the namespaces that a user may see: those with problems first,
// then those that fail, then the others by name.
func (c *Catalog) Repositories(ctx context.Context, sees Sight) ([]Repository, error) {
	all, err := c.repositories.Load(ctx, struct{}{}, c.readRepositories)
	if err != nil {
		return nil, err
	}
	may := map[string]bool{}
	all = slices.DeleteFunc(slices.Clone(all), func(r Repository) bool {
		if _, asked := may[r.Namespace]; !asked {
			may[r.Namespace] = sees(r.Namespace)
		}
		return !may[r.Namespace]
	})
	rank := func(r Repository) int {
		switch {
		case len(r.Problems) > 0:
			return 0
		case r.Error != "":
			return 1
		default:
			return 2
		}
	}
	slices.SortFunc(all, func(a, b Repository) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all, nil
}

func (c *Catalog) readRepositories(ctx context.Context) ([]Repository, error) {
	if c.o.Repositories == nil {
		return []Repository{}, nil
	}
	return c.o.Repositories(ctx)
}

// Repository is one of a namespace.
func (c *Catalog) Repository(ctx context.Context, namespace, name string) (Repository, error) {
	all, err := c.Repositories(ctx, func(ns string) bool { return ns == namespace })
	if err != nil {
		return Repository{}, err
	}
	i := slices.IndexFunc(all, func(r Repository) bool { return r.Name == name })
	if i < 0 {
		return Repository{}, fault.New(fault.Missing, origin.ReasonMissing, fmt.Errorf("no git repository %.80s/%.80s is registered", namespace, name))
	}
	return all[i], nil
}

// tagProblems are those of the tags of one version.
func (c *Catalog) tagProblems(ctx context.Context, m address.Module, v address.Version) ([]TagProblem, error) {
	all, err := c.Repositories(ctx, func(ns string) bool { return ns == m.Namespace })
	if err != nil {
		return nil, fmt.Errorf("whether its tag has moved is not known: %w", err)
	}
	var found []TagProblem
	for _, r := range all {
		for _, p := range r.Problems {
			if p.Module == m.String() && p.Version == string(v) {
				found = append(found, p)
			}
		}
	}
	return found, nil
}
