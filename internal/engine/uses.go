package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/plan/usage"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// What a prepared directory uses stands in three places:
//
//	.terraform/modules/modules.json   each call, its source and version as init resolved them
//	.terraform.lock.hcl               providers, their versions and hashes
//	the files of each module          what the calls and required_providers declare
//
// A module may come from anywhere, so that a file may hold anything. What cannot be read is
// a problem of the list, and no error.

// ModulesFile is where init writes down the modules that it has installed, relative to the
// root module.
const ModulesFile = ".terraform/modules/modules.json"

// maxModulesFile bounds it, and maxCalls how many calls of it are read.
const (
	maxModulesFile = 16 << 20
	maxCalls       = 10_000
)

// installedModule is an entry of ModulesFile.
type installedModule struct {
	Key     string // network.subnets; empty for the root module
	Source  string
	Version string
	Dir     string // relative to the root module
}

// Uses lists what the prepared root module in a directory of a tree uses, as an engine (tofu
// or terraform) resolved it. lock is the dependency lock file; nil if there is none.
func Uses(tree fs.FS, root, engine string, lock []byte) usage.Usage {
	r := &usesReader{tree: tree, root: root, engine: engine, reader: configReader{left: maxConfiguration},
		declared: map[string]*declarations{}, commits: map[string]string{}, providers: map[string]*usage.Provider{}}
	r.locked(lock)
	installed := r.installed()
	keys := slices.Sorted(maps.Keys(installed))
	for _, key := range keys {
		r.commit(installed[key])
	}
	r.module("", r.root)
	for _, key := range keys {
		r.call(installed[key], installed)
	}
	for _, p := range r.providers {
		r.found.Providers = append(r.found.Providers, *p)
	}
	return r.found.Tidy()
}

// usesReader reads what one directory uses.
type usesReader struct {
	tree         fs.FS
	root, engine string
	reader       configReader

	found     usage.Usage
	declared  map[string]*declarations // by directory
	commits   map[string]string        // by address and ref
	providers map[string]*usage.Provider
}

func (r *usesReader) problem(format string, args ...any) {
	r.found.Problems = append(r.found.Problems, fmt.Sprintf(format, args...))
}

// locked takes over the lock file.
func (r *usesReader) locked(lock []byte) {
	if lock == nil {
		return
	}
	all, err := ParseLockFile(lock)
	if err != nil {
		r.problem("The versions of providers are not known: %v.", err)
	}
	for _, l := range all {
		r.providers[l.Address] = &usage.Provider{Source: l.Address, Version: l.Version, Constraint: l.Constraint, Hashes: l.Hashes}
	}
}

// installed reads the modules that init has installed, by key.
func (r *usesReader) installed() map[string]installedModule {
	found := map[string]installedModule{}
	data, err := r.read(path.Join(r.root, ModulesFile), maxModulesFile)
	if errors.Is(err, fs.ErrNotExist) {
		return found // it calls none
	}
	var list struct{ Modules []installedModule }
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		r.problem("The modules are not known: the list that init has made cannot be read: %v.", err)
		return found
	}
	if more := len(list.Modules) - maxCalls; more > 0 {
		r.problem("Of the calls of modules, %d are left out: at most %d are listed.", more, maxCalls)
		list.Modules = list.Modules[:maxCalls]
	}
	for _, m := range list.Modules {
		if m.Key != "" {
			found[m.Key] = m
		}
	}
	return found
}

// read reads a regular file of bounded size.
func (r *usesReader) read(name string, most int64) ([]byte, error) {
	info, err := fs.Stat(r.tree, name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > most {
		return nil, fmt.Errorf("%s has %d bytes and is no regular file of at most %d", name, info.Size(), most)
	}
	return fs.ReadFile(r.tree, name)
}

// call adds a call of a module, and what the module requires.
func (r *usesReader) call(m installedModule, all map[string]installedModule) {
	parent, name := r.root, m.Key
	if at := strings.LastIndexByte(m.Key, '.'); at >= 0 {
		name = m.Key[at+1:]
		parent = r.dir(all[m.Key[:at]].Dir)
	}
	use := usage.Module{Path: modulePath(m.Key), Source: usage.Masked(m.Source), Version: m.Version}
	origin := usage.ParseSource(m.Source, m.Version)
	use.Location, use.Version, use.Commit = origin.Location, origin.Version, origin.Commit
	if origin.Kind == usage.Git {
		use.Commit = r.commits[origin.Address+"?"+origin.Version]
	}
	if d := r.declarations(parent); d != nil {
		if c, ok := d.calls[name]; ok {
			use.File, use.Line, use.Declared, use.Constraint = c.file, c.line, usage.Masked(c.source), c.version
		}
	}
	r.found.Modules = append(r.found.Modules, use)
	r.module(use.Path, r.dir(m.Dir))
}

// dir is a directory of the list of modules, in the tree.
func (r *usesReader) dir(name string) string {
	return path.Join(r.root, strings.ReplaceAll(name, `\`, "/"))
}

// modulePath is the path of the module with a key: module.network.module.subnets.
func modulePath(key string) string { return "module." + strings.ReplaceAll(key, ".", ".module.") }

// module adds the providers that a module requires.
func (r *usesReader) module(at, dir string) {
	d := r.declarations(dir)
	if d == nil {
		return
	}
	for name, p := range d.required {
		source := r.providerSource(name, p.source)
		known := r.providers[source]
		if known == nil {
			known = &usage.Provider{Source: source}
			r.providers[source] = known
		}
		known.Required = append(known.Required, usage.Requirement{Module: at, Name: name, Declared: p.source, Constraint: p.version})
	}
}

// providerSource is the source of a provider with its host.
func (r *usesReader) providerSource(name, declared string) string {
	host := "registry.opentofu.org"
	if r.engine == "terraform" {
		host = "registry.terraform.io"
	}
	switch source := strings.ToLower(declared); strings.Count(source, "/") {
	case 0:
		if source == "" {
			source = strings.ToLower(name)
		}
		return host + "/hashicorp/" + source
	case 1:
		return host + "/" + source
	default:
		return source
	}
}

// commit notes the commit of a git repository that init has cloned. Init clones a repository
// once, and copies it without its .git for further calls.
func (r *usesReader) commit(m installedModule) {
	o := usage.ParseSource(m.Source, m.Version)
	if o.Kind != usage.Git {
		return
	}
	git := path.Join(r.root, ".terraform/modules", m.Key, ".git")
	text := r.ref(path.Join(git, "HEAD"))
	if branch, ok := strings.CutPrefix(text, "ref: "); ok && fs.ValidPath(branch) {
		text = r.ref(path.Join(git, branch))
	}
	if isCommit(text) {
		r.commits[o.Address+"?"+o.Version] = text
	}
}

// ref is what a file of a repository says; empty if there is no such file.
func (r *usesReader) ref(name string) string {
	data, err := r.read(name, maxRef)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// maxRef bounds the file of a git ref.
const maxRef = 4 << 10

func isCommit(text string) bool {
	return (len(text) == 40 || len(text) == 64) && !strings.ContainsFunc(text, func(c rune) bool { return !strings.ContainsRune(digits+"abcdef", c) })
}

// declarations are what the files of one module declare.
type declarations struct {
	calls    map[string]declaredCall
	required map[string]declaredProvider
}

type declaredCall struct {
	file            string
	line            int
	source, version string
}

type declaredProvider struct{ source, version string }

// declarations reads those of a directory; nil if it cannot be read.
func (r *usesReader) declarations(dir string) *declarations {
	if d, known := r.declared[dir]; known {
		return d
	}
	d, err := r.declare(dir)
	if err != nil {
		r.problem("What the module in %s declares is not known: %v.", dir, err)
		d = nil
	}
	r.declared[dir] = d
	return d
}

func (r *usesReader) declare(dir string) (*declarations, error) {
	if !fs.ValidPath(dir) {
		return nil, errors.New("the directory is not in the source")
	}
	module, err := fs.Sub(r.tree, dir)
	if err != nil {
		return nil, err
	}
	files, err := r.reader.files(module)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	primary, override := workdir.ConfigFiles(names, r.engine)
	d := &declarations{calls: map[string]declaredCall{}, required: map[string]declaredProvider{}}
	for _, name := range slices.Concat(primary, override) {
		if src := files[name]; bytes.Contains(src, []byte("module")) || bytes.Contains(src, []byte("required_providers")) {
			read := d.file
			if strings.HasSuffix(name, ".json") {
				read = d.json
			}
			if err := read(name, src); err != nil {
				r.problem("What %s declares is not known: %v.", path.Join(dir, name), err)
			}
		}
	}
	return d, nil
}

// file adds what a file declares. An override changes what it names.
func (d *declarations) file(name string, src []byte) error {
	items, err := parseSyntax(src)
	if err != nil {
		return err
	}
	for _, i := range items {
		switch {
		case !i.block:
		case i.name == "module" && len(i.labels) == 1:
			c, known := d.calls[i.labels[0]]
			if !known {
				c.file, c.line = name, i.line
			}
			for _, a := range i.body {
				switch {
				case a.block:
				case a.name == "source":
					c.source = a.written()
				case a.name == "version":
					c.version = a.written()
				}
			}
			d.calls[i.labels[0]] = c
		case i.name == "terraform":
			for _, b := range i.body {
				if b.block && b.name == "required_providers" {
					d.requires(b.body)
				}
			}
		}
	}
	return nil
}

func (d *declarations) requires(entries []item) {
	for _, e := range entries {
		var p declaredProvider
		fields, err := e.object()
		if err != nil {
			p.version = e.written() // the old form: only a version
		}
		for _, f := range fields {
			switch f.name {
			case "source":
				p.source = f.written()
			case "version":
				p.version = f.written()
			}
		}
		d.required[e.name] = p
	}
}

// json is file for JSON.
func (d *declarations) json(name string, src []byte) error {
	file, err := members(src)
	if err != nil {
		return err
	}
	modules, err := below(file, "module")
	if err != nil {
		return err
	}
	for _, m := range modules {
		if m.name == "//" {
			continue
		}
		fields, err := members(m.value)
		if err != nil {
			return err
		}
		c, known := d.calls[m.name]
		if !known {
			c.file = name
		}
		for _, f := range fields {
			switch f.name {
			case "source":
				c.source = f.text()
			case "version":
				c.version = f.text()
			}
		}
		d.calls[m.name] = c
	}
	settings, err := below(file, "terraform")
	if err != nil {
		return err
	}
	required, err := below(settings, "required_providers")
	if err != nil {
		return err
	}
	for _, e := range required {
		p := declaredProvider{version: e.text()}
		if p.version == "" {
			fields, err := members(e.value)
			if err != nil {
				return err
			}
			for _, f := range fields {
				switch f.name {
				case "source":
					p.source = f.text()
				case "version":
					p.version = f.text()
				}
			}
		}
		d.required[e.name] = p
	}
	return nil
}

// text is the value of a member that is a string, else "".
func (m member) text() string {
	var s string
	if json.Unmarshal(m.value, &s) != nil {
		return ""
	}
	return s
}
