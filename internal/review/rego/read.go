package rego

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plainyaml"
)

// Options say how a directory of policies is read.
type Options struct {
	Format     Format
	Version    Version
	Namespaces []string // of conftest
	Lenient    bool
	Tests      bool // with the modules whose names end in _test.rego, which only test others
}

// Part is one policy of a directory. Directories have one, except those with Policy
// objects of the Weave policy agent.
type Part struct {
	Source     Source
	Weave      *WeavePolicy // that it is
	Parameters any          // of Weave
}

// filesMost bounds the files of a directory of policies.
const filesMost = 5000

// conftestConfig is the part of conftest.toml that says which policies there are.
type conftestConfig struct {
	Policy        any    `toml:"policy"` // a text, or a list of texts
	Data          any    `toml:"data"`
	Namespace     any    `toml:"namespace"`
	AllNamespaces bool   `toml:"all-namespaces"`
	RegoVersion   string `toml:"rego-version"`
}

// Read reads the policies in a directory.
func Read(dir fs.FS, o Options) ([]Part, error) {
	parts, err := read(dir, o)
	if err != nil {
		return nil, fault.New(fault.Invalid, "PolicyInvalid", fmt.Errorf("reading the policy: %w", err))
	}
	return parts, nil
}

func read(dir fs.FS, o Options) ([]Part, error) {
	s := Source{Format: o.Format, Version: o.Version, Namespaces: o.Namespaces, Lenient: o.Lenient, Modules: map[string]string{}, Data: map[string]any{}}
	modules, data := []string{"."}, []string{"."}
	switch o.Format {
	case Weave:
		return readWeave(dir)
	case Conftest:
		c, err := conftestOf(dir)
		if err != nil {
			return nil, err
		}
		if len(c.policy) > 0 {
			modules = c.policy
		}
		if data = c.data; data == nil {
			if present(dir, "data", true) { // where its authors mostly keep what they pass as --data
				data = []string{"data"}
			}
		}
		if len(s.Namespaces) == 0 {
			s.Namespaces = c.namespaces
		}
		if s.Version == "" {
			s.Version = c.version
		}
	}
	if several, err := Library(dir, o.Format); err != nil {
		return nil, err
	} else if len(several) > 0 {
		return nil, fmt.Errorf("the directory has %d policies (%s), whose rules would be mixed: name one of them, or, if they are one policy, put a file of Rego beside them", len(several), strings.Join(several, ", "))
	}
	for _, root := range modules {
		if err := walk(dir, root, func(name string, b []byte) error {
			if path.Ext(name) == ".rego" && (o.Tests || !strings.HasSuffix(name, "_test.rego")) {
				s.Modules[name] = string(b)
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	size := 0
	for _, root := range data {
		if err := walk(dir, root, func(name string, b []byte) error {
			if !isData(o.Format, name) {
				return nil
			}
			if size += len(b); size > dataBytes {
				return fmt.Errorf("its files of data are larger than %d MiB together: leave out what the policy does not need", dataBytes>>20)
			}
			value, err := decoded(b)
			if err != nil {
				return fmt.Errorf("reading the data in %s: %w", name, err)
			}
			rest := strings.TrimPrefix(strings.TrimPrefix(path.Dir(name), root), "/")
			if rest == "." {
				rest = ""
			}
			return merge(s.Data, rest, name, value)
		}); err != nil {
			return nil, err
		}
	}
	return []Part{{Source: s}}, nil
}

// isData reports whether a file holds data: with Terrier, as in bundles of Open Policy
// Agent, that is a file named data. Everything else may be for tests.
func isData(f Format, name string) bool {
	ext := path.Ext(name)
	if ext != ".json" && ext != ".yaml" && ext != ".yml" {
		return false
	}
	return f == Conftest || strings.TrimSuffix(path.Base(name), ext) == "data"
}

// present reports whether there is a file of that name, or a directory.
func present(dir fs.FS, name string, directory bool) bool {
	info, err := fs.Stat(dir, name)
	return err == nil && info.IsDir() == directory
}

// walk reads all files of a directory that may be part of a policy.
func walk(dir fs.FS, root string, file func(name string, content []byte) error) error {
	if !fs.ValidPath(root) {
		return fmt.Errorf("the path %q leads out of the directory of the policy", root)
	}
	n := 0
	err := fs.WalkDir(dir, root, func(name string, d fs.DirEntry, err error) error {
		hidden := strings.HasPrefix(path.Base(name), ".") && name != "."
		switch {
		case err != nil:
			return err
		case d.IsDir() && hidden:
			return fs.SkipDir
		case !d.Type().IsRegular() || hidden:
			return nil
		}
		if ext := path.Ext(name); !slices.Contains([]string{".rego", ".json", ".yaml", ".yml"}, ext) {
			return nil
		}
		if n++; n > filesMost {
			return fmt.Errorf("it has more than %d files", filesMost)
		}
		b, err := contents(dir, name)
		if err != nil {
			return err
		}
		return file(name, b)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no directory %s", root)
	}
	return err
}

func contents(dir fs.FS, name string) ([]byte, error) {
	f, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, dataBytes+1))
	if err == nil && len(b) > dataBytes {
		err = fmt.Errorf("%s is larger than %d MiB", name, dataBytes>>20)
	}
	return b, err
}

func decoded(b []byte) (any, error) {
	j, err := plainyaml.Within(b, dataBytes) // this is read in the controller, and not in a worker
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(j))
	dec.UseNumber()
	var v any
	return v, dec.Decode(&v)
}

// merge puts a document below a path of data. Two files that say something about the same
// are an error.
func merge(data map[string]any, below, name string, value any) error {
	for part := range strings.SplitSeq(below, "/") {
		if part == "" {
			continue
		}
		next, ok := data[part].(map[string]any)
		if !ok {
			if data[part] != nil {
				return fmt.Errorf("%s: the data have a value in the place of the directory %s", name, below)
			}
			next = map[string]any{}
			data[part] = next
		}
		data = next
	}
	object, ok := value.(map[string]any)
	if !ok {
		return fmt.Errorf("the data in %s are no object", name)
	}
	return mergeObjects(data, object, name)
}

func mergeObjects(into, from map[string]any, name string) error {
	for key, value := range from {
		have, exists := into[key]
		a, isObject := have.(map[string]any)
		b, isToo := value.(map[string]any)
		switch {
		case !exists:
			into[key] = value
		case isObject && isToo:
			if err := mergeObjects(a, b, name); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%s: another file of data has %s as well", name, key)
		}
	}
	return nil
}

// configured is what conftest.toml says.
type configured struct {
	policy, data, namespaces []string
	version                  Version
}

func conftestOf(dir fs.FS) (configured, error) {
	b, err := contents(dir, "conftest.toml")
	if errors.Is(err, fs.ErrNotExist) {
		return configured{}, nil
	}
	if err != nil {
		return configured{}, err
	}
	var c conftestConfig
	if err := toml.Unmarshal(b, &c); err != nil {
		return configured{}, fmt.Errorf("reading conftest.toml: %w", err)
	}
	out := configured{version: Version(strings.ToLower(c.RegoVersion))}
	for _, f := range []struct {
		name string
		from any
		to   *[]string
	}{{"policy", c.Policy, &out.policy}, {"data", c.Data, &out.data}, {"namespace", c.Namespace, &out.namespaces}} {
		switch v := f.from.(type) {
		case nil:
		case string:
			*f.to = []string{v}
		case []any:
			for _, one := range v {
				s, ok := one.(string)
				if !ok {
					return out, fmt.Errorf("reading conftest.toml: %s is no list of texts", f.name)
				}
				*f.to = append(*f.to, s)
			}
		default:
			return out, fmt.Errorf("reading conftest.toml: %s is no text and no list", f.name)
		}
	}
	for _, list := range [][]string{out.policy, out.data} {
		for i, p := range list {
			list[i] = path.Clean(p)
		}
	}
	if c.AllNamespaces {
		out.namespaces = []string{"*"}
	}
	return out, nil
}

// readWeave reads the Policy objects in a directory that are for plans.
func readWeave(dir fs.FS) ([]Part, error) {
	var parts []Part
	err := walk(dir, ".", func(name string, b []byte) error {
		if path.Ext(name) == ".rego" {
			return nil
		}
		found, err := weaveObjects(name, b)
		parts = append(parts, found...)
		return err
	})
	if err == nil && len(parts) == 0 {
		err = errNoPolicies
	}
	return parts, err
}

// ReadWeaveFile reads the Policy objects in one file.
func ReadWeaveFile(name string, b []byte) ([]Part, error) {
	parts, err := weaveObjects(name, b)
	if err == nil && len(parts) == 0 {
		err = invalid(errNoPolicies)
	}
	return parts, err
}

func weaveObjects(name string, b []byte) ([]Part, error) {
	var parts []Part
	for _, doc := range bytes.Split(append([]byte("\n"), b...), []byte("\n---")) {
		p, err := ReadWeave(doc)
		switch {
		case errors.Is(err, errOther), err == nil && !p.Judges():
			continue // another object
		case err != nil:
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		parameters, err := p.Parameters()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		parts = append(parts, Part{Source: p.Source(), Weave: &p, Parameters: parameters})
	}
	return parts, nil
}
