package usedby

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan/usage"
	"github.com/terrier-iac/terrier/internal/query"
)

var errNotReady = fault.Wait(time.Second, "NotReady", errors.New("the stacks are still being read; ask again in a moment"))

// Ask answers a question about the stacks in scope.
func (x *Index) Ask(scope access.Scope, q Question) (Answer, error) {
	chosen, err := chooser(q)
	if err != nil {
		return Answer{}, err
	}
	limit := min(cmp.Or(q.Limit, pageUses), pageUsesMax)
	if q.Offset < 0 || limit < 0 {
		return Answer{}, fault.New(fault.Invalid, query.ReasonQuery, fmt.Errorf("offset and limit are not negative, and %d and %d were given", q.Offset, q.Limit))
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	if !x.synced {
		return Answer{}, errNotReady
	}
	of, wanted, err := x.asked(q)
	if err != nil {
		return Answer{}, err
	}
	found, _ := x.uses(of, wanted, func(k query.Key) bool {
		return (q.Namespace == "" || q.Namespace == k.Namespace) && scope.Of(k.Kind).Has(k.Namespace)
	})
	out := Answer{Items: []Use{}, Versions: versions(found)}
	found = slices.DeleteFunc(found, func(u Use) bool { return !chosen(u) })
	slices.SortFunc(found, compare)
	out.Total, out.Stacks = len(found), countStacks(found)
	from := min(q.Offset, len(found))
	for _, u := range found[from:min(from+limit, len(found))] {
		u.Calls = slices.Clone(u.Calls)
		out.Items = append(out.Items, u)
	}
	out.Unread, out.Unknown, out.UnknownStacks = x.unsure(scope, q.Namespace)
	return out, nil
}

// chooser understands what a question says about versions.
func chooser(q Question) (func(Use) bool, error) {
	switch {
	case q.Versions != "" && q.Exact != "":
		return nil, fault.New(fault.Invalid, query.ReasonQuery, errors.New("ask for one version or for a range of versions, not for both"))
	case q.Exact != "":
		return func(u Use) bool { return u.Version == q.Exact }, nil
	case q.Versions == "":
		return func(Use) bool { return true }, nil
	}
	in, err := address.ParseRange(q.Versions)
	if err != nil && strings.ContainsAny(q.Versions, "<>=~^,| ") {
		return nil, err
	}
	return func(u Use) bool {
		// A ref of a repository need not be a version.
		return u.Version == q.Versions || err == nil && in.Has(strings.TrimPrefix(u.Version, "v"))
	}, nil
}

// side is one half of the index: modules, or providers.
type side struct {
	stacks map[string]map[query.Key]bool
	list   func(*entry) []Use
	at     func(Use) string
}

func (x *Index) ofModules() side {
	return side{x.modules, func(e *entry) []Use { return e.modules }, func(u Use) string { return u.key }}
}

func (x *Index) ofProviders() side {
	return side{x.providers, func(e *entry) []Use { return e.providers }, func(u Use) string { return u.Address }}
}

// asked is what a question is about.
func (x *Index) asked(q Question) (of side, wanted map[string]bool, err error) {
	wanted = map[string]bool{}
	if q.Module != "" {
		asked, err := usage.ParseAsked(q.Module)
		maps.Copy(wanted, x.names[asked.Name])
		for _, key := range asked.Keys {
			wanted[key] = true
		}
		return x.ofModules(), wanted, err
	}
	p, err := address.ParseProvider(q.Provider)
	if wanted[p.String()] = true; p.Host == "" {
		wanted = x.sources[p.String()]
	}
	return x.ofProviders(), wanted, err
}

// uses are those of what is wanted by the stacks that may be seen, and how many others have some.
func (x *Index) uses(of side, wanted map[string]bool, see func(query.Key) bool) (found []Use, hidden int) {
	stacks := map[query.Key]bool{}
	for key := range wanted {
		maps.Copy(stacks, of.stacks[key])
	}
	for stack := range stacks {
		if !see(stack) {
			hidden++
			continue
		}
		for _, u := range of.list(x.stacks[stack]) {
			if wanted[of.at(u)] {
				found = append(found, u)
			}
		}
	}
	return found, hidden
}

// unsure counts the stacks in scope that an answer does not know about, and names the first
// of those that no answer can know about before their next run.
func (x *Index) unsure(scope access.Scope, namespace string) (unread, unknown int, first []query.Key) {
	for key, e := range x.stacks {
		switch {
		case e.read && e.digest != "", namespace != "" && namespace != key.Namespace, !scope.Of(key.Kind).Has(key.Namespace):
		case e.read:
			unknown++
			first = append(first, key)
		default:
			unread++
		}
	}
	slices.SortFunc(first, func(a, b query.Key) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.Kind, b.Kind))
	})
	return unread, unknown, first[:min(len(first), namedUnknown)]
}

func compare(a, b Use) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(a.Kind, b.Kind),
		strings.Compare(a.Address, b.Address), strings.Compare(a.Directory, b.Directory), strings.Compare(a.Version, b.Version),
		strings.Compare(a.Commit, b.Commit), strings.Compare(a.Constraint, b.Constraint))
}

func countStacks(uses []Use) int {
	stacks := map[query.Key]bool{}
	for _, u := range uses {
		stacks[u.Key()] = true
	}
	return len(stacks)
}

// versions counts the stacks of each version, the newest version first.
func versions(uses []Use) []VersionCount {
	stacks := map[string]map[query.Key]bool{}
	for _, u := range uses {
		mark(stacks, u.Version, u.Key())
	}
	out := make([]VersionCount, 0, len(stacks))
	for version, of := range stacks {
		out = append(out, VersionCount{version, len(of)})
	}
	address.SortByVersion(out, func(v VersionCount) address.Version { return address.Version(v.Version) })
	slices.Reverse(out)
	return out
}
