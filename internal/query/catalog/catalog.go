// Package catalog answers what users ask about the registry: which modules and providers
// are published, what one of them declares, who published it, and what the mirror of
// providers has.
//
// It decides nothing about rights: the caller passes what a user may see. It lists no
// bucket: the indexes of the registry answer. Start reading at Catalog.
package catalog

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/inspect"
	"github.com/terrier-iac/terrier/internal/registry/mirror"
	"github.com/terrier-iac/terrier/internal/registry/room"
)

// Catalog answers questions about one registry.
type Catalog struct {
	o            Options
	mirrored     cache.Map[struct{}, []Mirrored]
	repositories cache.Map[struct{}, []Repository]
}

// Options are what a catalog is made of.
type Options struct {
	Registry  *registry.Registry
	Documents *inspect.Reader
	Mirror    *mirror.Mirror
	Room      *room.Room
	Figures   func() []Figures                // of the mirror, by upstream
	Archive   func(key, sha256 string) string // a signed address of an archive
	Now       func() time.Time

	// Repositories are those whose tags become versions of modules; nil if none are registered
	// here.
	Repositories func(context.Context) ([]Repository, error)
}

// New returns a catalog.
func New(o Options) *Catalog {
	return &Catalog{
		o:            o,
		mirrored:     cache.Map[struct{}, []Mirrored]{Size: 1, TTL: mirroredFor, Now: o.Now},
		repositories: cache.Map[struct{}, []Repository]{Size: 1, TTL: repositoriesFor, Now: o.Now},
	}
}

// Kind is what is published.
type Kind string

// The kinds.
const (
	Modules   Kind = "modules"
	Providers Kind = "providers"
)

// Entry is a module or a provider that is published here.
type Entry struct {
	Kind      Kind            `json:"kind"`
	Address   string          `json:"address"` // NAMESPACE/NAME/SYSTEM or NAMESPACE/TYPE
	Namespace string          `json:"namespace"`
	Newest    address.Version `json:"newest,omitempty"` // that clients may use; empty if all are retracted
	Versions  int             `json:"versions"`         // those that are retracted included
	Published time.Time       `json:"published,omitzero"`
	By        string          `json:"by,omitempty"`
	Size      int64           `json:"size,omitempty"` // of the newest version, in bytes; of a provider, of all platforms
	Platforms []string        `json:"platforms,omitempty"`
	Problem   string          `json:"problem,omitempty"` // why the rest is not known
}

// Query selects entries.
type Query struct {
	Text      string // words that the address must have
	Kind      Kind   // all kinds if empty
	Namespace string
	Sort      Sort
	Offset    int
	Limit     int
}

// Sort is the order of entries.
type Sort string

// The orders.
const (
	ByName Sort = ""
	Newest Sort = "newest" // the last published first
)

// Page is a part of the entries.
type Page struct {
	Items      []Entry  `json:"items"`
	Total      int      `json:"total"`
	Offset     int      `json:"offset"`
	Namespaces []string `json:"namespaces"`         // with something that the user may see
	Unsorted   bool     `json:"unsorted,omitempty"` // there are too many for this order, and they are by name
	Empty      bool     `json:"-"`                  // nothing is published at all
}

// Sight reports whether a user may read what a namespace publishes.
type Sight func(namespace string) bool

const (
	together   = 16   // reads at once for one question
	mostSorted = 2000 // entries that are sorted by time, which takes a read of each index
	mostLimit  = 200
)

// Search returns entries that a user may see.
func (c *Catalog) Search(ctx context.Context, sees Sight, q Query) (Page, error) {
	q.Limit = min(cmp.Or(q.Limit, 50), mostLimit)
	found, page, err := c.names(ctx, sees, q)
	if err != nil {
		return page, err
	}
	slices.SortFunc(found, func(a, b Entry) int {
		return cmp.Or(strings.Compare(a.Address, b.Address), strings.Compare(string(a.Kind), string(b.Kind)))
	})
	page.Total = len(found)
	if q.Sort == Newest {
		if page.Unsorted = len(found) > mostSorted; !page.Unsorted {
			c.fill(ctx, found)
			slices.SortStableFunc(found, func(a, b Entry) int { return b.Published.Compare(a.Published) })
		}
	}
	if page.Offset = q.Offset; page.Offset >= page.Total {
		page.Offset = max(0, page.Total-1) / q.Limit * q.Limit
	}
	page.Items = found[page.Offset:min(page.Total, page.Offset+q.Limit)]
	if q.Sort != Newest || page.Unsorted {
		c.fill(ctx, page.Items)
	}
	return page, ctx.Err()
}

// names are the entries of a query, of which only the addresses are known.
func (c *Catalog) names(ctx context.Context, sees Sight, q Query) ([]Entry, Page, error) {
	page := Page{Items: []Entry{}, Namespaces: []string{}, Empty: true}
	of := map[Kind][]string{}
	for _, k := range []Kind{Modules, Providers} {
		all, err := c.o.Registry.Namespaces(ctx, registry.Kind(k))
		if err != nil {
			return nil, page, err
		}
		of[k] = all
		page.Namespaces = append(page.Namespaces, all...)
	}
	slices.Sort(page.Namespaces)
	page.Namespaces = slices.Compact(page.Namespaces)
	page.Empty = len(page.Namespaces) == 0
	page.Namespaces = visible(page.Namespaces, sees)
	words := strings.Fields(strings.ToLower(q.Text))
	var mu sync.Mutex
	var found []Entry
	var failed error
	for _, k := range []Kind{Modules, Providers} {
		if q.Kind != "" && q.Kind != k {
			continue
		}
		chosen := slices.DeleteFunc(of[k], func(ns string) bool {
			_, sees := slices.BinarySearch(page.Namespaces, ns)
			return !sees || q.Namespace != "" && q.Namespace != ns
		})
		each(len(chosen), func(i int) {
			names, err := c.o.Registry.Names(ctx, registry.Kind(k), chosen[i])
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = err
			}
			for _, name := range names {
				at := chosen[i] + "/" + name
				if lower := strings.ToLower(at); !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(lower, w) }) {
					found = append(found, Entry{Kind: k, Address: at, Namespace: chosen[i]})
				}
			}
		})
	}
	return found, page, failed
}

// visible are the namespaces that a user may see, asked about together.
func visible(all []string, sees Sight) []string {
	may := make([]bool, len(all))
	each(len(all), func(i int) { may[i] = sees(all[i]) })
	out := []string{}
	for i, ns := range all {
		if may[i] {
			out = append(out, ns)
		}
	}
	return out
}

// each calls do for each of some numbers, several at once.
func each(n int, do func(int)) {
	var wait sync.WaitGroup
	next := make(chan int)
	for range min(n, together) {
		wait.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wait.Wait()
}

// fill reads the indexes of entries. One that cannot be read says so in its row.
func (c *Catalog) fill(ctx context.Context, all []Entry) {
	each(len(all), func(i int) {
		e := &all[i]
		var err error
		if e.Kind == Modules {
			err = c.fillModule(ctx, e)
		} else {
			err = c.fillProvider(ctx, e)
		}
		if err != nil {
			e.Problem = err.Error()
		}
	})
}

func (c *Catalog) fillModule(ctx context.Context, e *Entry) error {
	m, err := address.ParseModule(e.Address)
	if err != nil {
		return err
	}
	all, err := c.o.Registry.ModuleVersions(ctx, m)
	if err != nil {
		return err
	}
	e.Versions = len(all)
	v, err := registry.Choose(m, all, registry.Latest)
	if err != nil {
		return err
	}
	if e.Published, e.By, e.Size = v.Published, v.By, v.Size; v.Retracted == nil {
		e.Newest = v.Version
	}
	return nil
}

func (c *Catalog) fillProvider(ctx context.Context, e *Entry) error {
	p, err := address.ParseProvider(e.Address)
	if err != nil {
		return err
	}
	all, err := c.o.Registry.ProviderVersions(ctx, p)
	if err != nil {
		return err
	}
	e.Versions = len(all)
	v, err := chooseProvider(p, all, registry.Latest)
	if err != nil {
		return err
	}
	if e.Published, e.By = v.Published, v.By; v.Retracted == nil {
		e.Newest = v.Version
	}
	for platform, pkg := range v.Packages {
		e.Platforms = append(e.Platforms, platform.String())
		e.Size += pkg.Size
	}
	slices.Sort(e.Platforms)
	return nil
}
