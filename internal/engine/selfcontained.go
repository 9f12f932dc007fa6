package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// SelfContained looks whether a root module needs nothing that init would
// install: it calls no module and uses no provider but the one that is built
// into engines. All that init then does is to write down the backend. It has to
// be http without settings, in one file; which file is the answer. The error
// says what asks for init, and what is not understood does: an engine is the
// judge in the end, so nothing but the time of a process is lost or won here.
func SelfContained(root fs.FS) (backend string, err error) {
	r := &configReader{left: maxConfiguration}
	files, err := r.files(root)
	if err != nil {
		return "", err
	}
	var backends []string
	for name, src := range files {
		read := selfContainedFile
		if strings.HasSuffix(name, ".json") {
			read = selfContainedJSON
		}
		n, err := read(src)
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		backends = append(backends, slices.Repeat([]string{name}, n)...)
	}
	if len(backends) != 1 {
		return "", fmt.Errorf("there are %d backend blocks", len(backends))
	}
	return backends[0], nil
}

// Blocks that ask for nothing, whatever stands in them, and blocks of a type
// that belongs to a provider. All others ask for init: module and provider, but
// also import and removed, which may be about another provider's resources, and
// whatever later engines know.
var (
	freeBlocks  = []string{"variable", "locals", "output", "moved"}
	typedBlocks = []string{"resource", "data", "ephemeral"}
)

// builtIn reports whether resources of a type are those of the built-in
// provider: an engine takes the name of the provider from the type.
func builtIn(kind string) bool { return kind == "terraform" || strings.HasPrefix(kind, "terraform_") }

// providerFunction is a function of a provider, or in JSON a text that may hide
// one.
func providerFunction(src []byte, json bool) bool {
	return bytes.Contains(src, []byte("::")) || json && bytes.Contains(src, []byte(`\u`))
}

var errProviderFunction = errors.New("it may call a function of a provider")

func selfContainedFile(src []byte) (backends int, err error) {
	if providerFunction(src, false) {
		return 0, errProviderFunction
	}
	items, err := parseSyntax(src)
	if err != nil {
		return 0, err
	}
	for _, i := range items {
		switch {
		case !i.block:
			return 0, fmt.Errorf("the attribute %s", i.name)
		case slices.Contains(freeBlocks, i.name):
		case slices.Contains(typedBlocks, i.name):
			err = i.typed()
		case i.name == "check":
			err = i.check()
		case i.name == "terraform":
			var n int
			n, err = i.settings()
			backends += n
		default:
			err = fmt.Errorf("a block %s", i.name)
		}
		if err != nil {
			return 0, err
		}
	}
	return backends, nil
}

// typed looks at a resource, a data source or an ephemeral resource.
func (i item) typed() error {
	if len(i.labels) != 2 || !builtIn(i.labels[0]) {
		return fmt.Errorf("%s %s", i.name, strings.Join(i.labels, "."))
	}
	for _, a := range i.body {
		if a.name == "provider" {
			return fmt.Errorf("%s %s chooses its provider", i.name, strings.Join(i.labels, "."))
		}
	}
	return nil
}

// check looks at a check block, which may have a data source of its own.
func (i item) check() error {
	for _, b := range i.body {
		if b.block && b.name != "assert" {
			if err := b.typed(); err != nil {
				return err
			}
		}
	}
	return nil
}

// settings counts the backends of a terraform block.
func (i item) settings() (backends int, err error) {
	for _, s := range i.body {
		switch {
		case s.name == "required_version" && !s.block:
		case s.name == "backend" && s.block && len(s.labels) == 1 && s.labels[0] == "http" && len(s.body) == 0:
			backends++
		default:
			return 0, fmt.Errorf("terraform has %s", s.name)
		}
	}
	return backends, nil
}

// selfContainedJSON is selfContainedFile for JSON.
func selfContainedJSON(src []byte) (backends int, err error) {
	if providerFunction(src, true) {
		return 0, errProviderFunction
	}
	file, err := members(src)
	if err != nil {
		return 0, err
	}
	for _, m := range file {
		switch {
		case m.name == "//" || slices.Contains(freeBlocks, m.name):
		case slices.Contains(typedBlocks, m.name):
			err = m.typed()
		case m.name == "terraform":
			var n int
			n, err = m.settings()
			backends += n
		default:
			err = fmt.Errorf("a block %s", m.name)
		}
		if err != nil {
			return 0, err
		}
	}
	return backends, nil
}

// typed looks at the resources, data sources or ephemeral resources of a file,
// which are objects by type and name.
func (m member) typed() error {
	types, err := members(m.value)
	if err != nil {
		return err
	}
	for _, t := range types {
		if !builtIn(t.name) {
			return fmt.Errorf("%s %s", m.name, t.name)
		}
		named, err := members(t.value)
		if err != nil {
			return err
		}
		for _, n := range named {
			body, err := members(n.value)
			if err != nil {
				return err
			}
			if slices.ContainsFunc(body, func(a member) bool { return a.name == "provider" }) {
				return fmt.Errorf("%s %s.%s chooses its provider", m.name, t.name, n.name)
			}
		}
	}
	return nil
}

func (m member) settings() (backends int, err error) {
	all, err := members(m.value)
	if err != nil {
		return 0, err
	}
	for _, s := range all {
		switch s.name {
		case "//", "required_version":
		case "backend":
			kinds, err := members(s.value)
			if err != nil {
				return 0, err
			}
			for _, k := range kinds {
				body, err := members(k.value)
				if err != nil || k.name != "http" || len(body) > 0 {
					return 0, fmt.Errorf("the backend %s is not http without settings", k.name)
				}
				backends++
			}
		default:
			return 0, fmt.Errorf("terraform has %s", s.name)
		}
	}
	return backends, nil
}
