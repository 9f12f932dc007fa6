package registry

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
)

// Kind is what a name is the name of.
type Kind string

// The kinds. They begin the keys of their archives.
const (
	Modules   Kind = "modules"
	Providers Kind = "providers"
)

// Namespace is a namespace in the spelling of a kind: those of providers are in lower
// case. Rights are checked with this spelling, and content is read with it.
func (k Kind) Namespace(text string) string {
	if k == Providers {
		return strings.ToLower(text)
	}
	return text
}

const (
	modulesPrefix   = string(Modules) + "/"
	providersPrefix = string(Providers) + "/"
	namesPrefix     = "index/names/"
)

// nameIndex is the names at one place of the store.
type nameIndex struct {
	Names []string `json:"names"` // sorted
}

func (n nameIndex) entries() int { return len(n.Names) }

func (n nameIndex) arranged() nameIndex { return n }

// Namespaces are those that have published something of a kind, sorted.
func (c *common) Namespaces(ctx context.Context, k Kind) ([]string, error) {
	n, err := c.names.read(ctx, namesPrefix+string(k)+".json", c.listNames(string(k)+"/", 1))
	return slices.Clone(n.Names), err
}

// Names are what a namespace has published of a kind, sorted: NAME/SYSTEM of modules,
// TYPE of providers.
func (c *common) Names(ctx context.Context, k Kind, namespace string) ([]string, error) {
	n, err := c.names.read(ctx, namesKey(k, namespace), c.listNames(path.Join(string(k), namespace)+"/", k.depth()))
	return slices.Clone(n.Names), err
}

// Admits is Invalid if a namespace does not exist, and has published nothing either: it is a
// mistake in a name. One that has content, for instance of another program, goes on.
func (c *common) Admits(ctx context.Context, namespace string) error {
	if c.o.Exists == nil {
		return nil
	}
	err := c.o.Exists(ctx, namespace)
	if fault.Of(err) != fault.Missing {
		return err
	}
	for _, k := range []Kind{Modules, Providers} {
		all, failed := c.Namespaces(ctx, k)
		if failed != nil {
			return failed
		}
		if _, has := slices.BinarySearch(all, k.Namespace(namespace)); has {
			return nil
		}
	}
	return fault.New(fault.Invalid, NamespaceMissing, err)
}

// depth is of how many parts the name of a kind is in its namespace.
func (k Kind) depth() int {
	if k == Modules {
		return 2
	}
	return 1
}

func namesKey(k Kind, namespace string) string {
	return namesPrefix + string(k) + "/" + namespace + ".json"
}

// listNames finds names in the keys below a prefix: that many parts of each.
func (c *common) listNames(prefix string, depth int) rebuild[nameIndex] {
	return func(ctx context.Context) (nameIndex, error) {
		keys, err := c.store.List(ctx, prefix)
		if err != nil {
			return nameIndex{}, err
		}
		var all []string
		for _, key := range keys {
			if parts := strings.Split(strings.TrimPrefix(key, prefix), "/"); len(parts) > depth {
				all = append(all, path.Join(parts[:depth]...))
			}
		}
		slices.Sort(all)
		return nameIndex{slices.Compact(all)}, nil
	}
}

// named is a rebuild for clients, who may ask for any name: it lists what has a name only
// if the namespace has that name. All names of a namespace cost one list a minute.
func named[D any](c *common, k Kind, namespace, name string, again rebuild[D]) rebuild[D] {
	return func(ctx context.Context) (D, error) {
		prefix := path.Join(string(k), namespace) + "/"
		all, err := c.stored.Load(ctx, prefix, c.listNames(prefix, k.depth()))
		if _, there := slices.BinarySearch(all.Names, name); err != nil || !there {
			var none D
			return none, err
		}
		return again(ctx)
	}
}

// addName puts a name into the lists of names. It comes before the index of what has the
// name: after a crash between them, the next upload does both.
func (c *common) addName(ctx context.Context, k Kind, namespace, name string) error {
	add := func(key, name string, again rebuild[nameIndex]) error {
		return c.names.update(ctx, key, again, func(n *nameIndex) error {
			if at, there := slices.BinarySearch(n.Names, name); !there {
				n.Names = slices.Insert(n.Names, at, name)
			}
			return nil
		})
	}
	if err := add(namesKey(k, namespace), name, c.listNames(path.Join(string(k), namespace)+"/", k.depth())); err != nil {
		return err
	}
	return add(namesPrefix+string(k)+".json", namespace, c.listNames(string(k)+"/", 1))
}
