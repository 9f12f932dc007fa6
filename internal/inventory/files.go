package inventory

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

// extensions are those of files of variables, in the order in which Ansible tries them.
var extensions = []string{"", ".yml", ".yaml", ".json"}

// variables reads group_vars and host_vars.
func (r *reader) variables() error {
	ofGroups, err := r.directory(GroupVars)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(r.inventory.groups)) {
		if !ofGroups {
			break
		}
		if r.inventory.groups[name].files, err = r.scope(GroupVars, name); err != nil {
			return err
		}
	}
	ofHosts, err := r.directory(HostVars)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(r.inventory.hosts)) {
		if !ofHosts {
			break
		}
		if r.inventory.hosts[name].files, err = r.scope(HostVars, name); err != nil {
			return err
		}
	}
	return r.strays(map[string]bool{GroupVars: ofGroups, HostVars: ofHosts})
}

// directory reports whether there is a directory of variables. A file in its place is
// noted: Ansible does not read it.
func (r *reader) directory(name string) (bool, error) {
	info, err := fs.Stat(r.tree, path.Join(r.dir, name))
	switch {
	case isMissing(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading %s: %w", name, err)
	case !info.IsDir():
		r.note(name, 0, "it is no directory, so Ansible does not read it")
	}
	return info.IsDir(), nil
}

// scope are the variables of the files of one group or host; a later file wins.
func (r *reader) scope(dir, name string) (scope, error) {
	if strings.ContainsAny(name, "/\\\x00") || name == "." || name == ".." {
		return nil, nil // no file is called that
	}
	files, err := r.find(dir, name)
	if err != nil {
		return nil, err
	}
	var out scope
	for _, f := range files {
		vars, err := r.varsFile(f)
		if err != nil {
			return nil, err
		}
		for name, v := range vars {
			out = out.with(name, v)
		}
	}
	return out, nil
}

// find lists the files of variables of one name. Only the first of name, name.yml,
// name.yaml and name.json counts; the others are noted.
func (r *reader) find(dir, name string) ([]string, error) {
	var found []string
	first := ""
	for _, ext := range extensions {
		if len(name+ext) > maxFileName {
			continue // no file is called that, and to ask for it is an error
		}
		file := path.Join(dir, name+ext)
		info, err := fs.Stat(r.tree, path.Join(r.dir, file))
		if isMissing(err) || errors.Is(err, fs.ErrInvalid) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		if first != "" {
			r.note(file, 0, "Ansible does not read it, since %s is there", first)
			continue
		}
		first = file
		if !info.IsDir() {
			found = append(found, file)
			continue
		}
		more, err := r.below(file, 0)
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	return found, nil
}

// below lists the files of variables in a directory: in the order of their names, without
// hidden ones, backups and other extensions; directories without an extension are entered.
func (r *reader) below(dir string, depth int) ([]string, error) {
	if depth > maxDepth {
		return nil, problem(dir, 0, "directories are nested deeper than %d levels", maxDepth)
	}
	entries, err := fs.ReadDir(r.tree, path.Join(r.dir, dir)) // sorted by name
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", dir, err)
	}
	var found []string
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~") {
			continue
		}
		switch full := path.Join(dir, name); {
		case e.IsDir() && path.Ext(name) == "":
			more, err := r.below(full, depth+1)
			if err != nil {
				return nil, err
			}
			found = append(found, more...)
		case e.Type().IsRegular() && slices.Contains(extensions, path.Ext(name)):
			if found = append(found, full); len(found) > maxFiles {
				return nil, problem(dir, 0, "it has more than %d files", maxFiles)
			}
		}
	}
	return found, nil
}

var vaultHeader = []byte("$ANSIBLE_VAULT;")

func isVault(content []byte) bool { return bytes.HasPrefix(content, vaultHeader) }

// varsFile reads one file of variables. An encrypted one has none.
func (r *reader) varsFile(name string) (scope, error) {
	content, err := r.file(name)
	if err != nil {
		return nil, err
	}
	if isVault(content) {
		r.note(name, 0, "it is encrypted with Ansible Vault, and its variables are left out")
		return nil, nil
	}
	root, err := parse(name, content)
	if err != nil || root == nil {
		return nil, err
	}
	w := newWalk(name)
	w.bytes = &r.expanded
	entries, err := w.entries(root, 0)
	if err != nil {
		return nil, err
	}
	var out scope
	for _, e := range entries {
		v, err := w.valueOf(e.value, 1)
		if err != nil {
			return nil, err
		}
		v.Line = e.key.Line
		if err := w.short(e.name, v); err != nil {
			return nil, err
		}
		out = out.with(e.name, v)
	}
	return out, nil
}

// strays notes files of variables that belong to no group and no host: Ansible does not
// read them.
func (r *reader) strays(there map[string]bool) error {
	for _, dir := range []string{GroupVars, HostVars} {
		if !there[dir] {
			continue
		}
		entries, err := fs.ReadDir(r.tree, path.Join(r.dir, dir))
		if err != nil {
			return fmt.Errorf("reading %s: %w", dir, err)
		}
		for _, e := range entries {
			name := e.Name()
			if strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~") {
				continue
			}
			base := name
			if ext := path.Ext(name); !e.IsDir() && ext != "" && slices.Contains(extensions, ext) {
				base = strings.TrimSuffix(name, ext)
			}
			known := r.inventory.groups[base] != nil || r.inventory.groups[name] != nil
			what := "group"
			if dir == HostVars {
				known = r.inventory.hosts[base] != nil || r.inventory.hosts[name] != nil
				what = "host"
			}
			if !known {
				r.note(path.Join(dir, name), 0, "%s has no %s %s, so Ansible does not read it", HostsFile, what, quoted(base))
			}
		}
	}
	return nil
}
