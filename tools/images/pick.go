package main

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// packages is the content of some Debian packages.
type packages struct {
	all      tree
	controls map[string]string // control files by package
}

// open unpacks packages that are kept.
func (d *debian) open(ctx context.Context, pinned []pkg) (packages, error) {
	a := packages{tree{}, map[string]string{}}
	for _, p := range pinned {
		control, err := d.unpack(ctx, p, a.all)
		if err != nil {
			return packages{}, err
		}
		a.controls[p.name] = control
	}
	return a, nil
}

// pick returns the files that match some patterns, and all that these need: what links
// point to, the libraries and the loader of programs, and the copyright files of their
// packages.
//
//	pattern ──► file ──► target of a link ──► library ──► its libraries
//	                └──► copyright file of the package
func (a packages) pick(patterns []string) (tree, error) {
	picked, todo := tree{}, []string{}
	for _, pattern := range patterns {
		before := len(todo)
		for p := range a.all {
			if ok, err := path.Match(pattern, p); err != nil {
				return nil, err
			} else if ok {
				todo = append(todo, p)
			}
		}
		if len(todo) == before {
			return nil, fmt.Errorf("no package has %s: a newer version may keep it elsewhere, see recipe.go", pattern)
		}
	}
	for len(todo) > 0 {
		p := todo[0]
		todo = todo[1:]
		if _, ok := picked[p]; ok {
			continue
		}
		f, ok := a.all[p]
		if !ok {
			return nil, fmt.Errorf("no package has /%s: run `make images-lock`", p)
		}
		picked[p] = f
		needs, err := a.needs(p, f)
		if err != nil {
			return nil, err
		}
		todo = append(todo, needs...)
	}
	return picked, nil
}

// needs lists the other files that a file needs.
func (a packages) needs(p string, f file) ([]string, error) {
	needs := a.copyright(f.owner)
	if f.kind == tar.TypeSymlink {
		return append(needs, target(p, f.link)), nil
	}
	libraries, loader, err := linked(f.data)
	if err != nil {
		return nil, fmt.Errorf("reading /%s: %w", p, err)
	}
	if loader != "" {
		needs = append(needs, merged(loader))
	}
	for _, name := range libraries {
		found, err := a.library(name)
		if err != nil {
			return nil, fmt.Errorf("/%s needs %s, and %w", p, name, err)
		}
		needs = append(needs, found)
	}
	return needs, nil
}

// copyright is the copyright file of a package. Packages of one source may share it by
// a link of their directories.
func (a packages) copyright(owner string) []string {
	dir := "usr/share/doc/" + owner
	if f, ok := a.all[dir]; ok && f.kind == tar.TypeSymlink {
		return a.copyright(path.Base(f.link))
	}
	if _, ok := a.all[dir+"/copyright"]; !ok {
		return nil
	}
	return []string{dir + "/copyright"}
}

// target is the path that a link at p leads to.
func target(p, link string) string {
	if !path.IsAbs(link) {
		link = path.Join("/", path.Dir(p), link)
	}
	return merged(link)
}

// linked lists the libraries that a program or library is linked with, and its loader.
func linked(data []byte) (libraries []string, loader string, err error) {
	if !bytes.HasPrefix(data, []byte(elf.ELFMAG)) {
		return nil, "", nil
	}
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, "", err
	}
	if s := f.Section(".interp"); s != nil {
		text, err := s.Data()
		if err != nil {
			return nil, "", err
		}
		loader = strings.TrimRight(string(text), "\x00")
	}
	libraries, err = f.ImportedLibraries()
	return libraries, loader, err
}

// library finds a library where the loader would.
func (a packages) library(name string) (string, error) {
	for _, p := range slices.Sorted(maps.Keys(a.all)) {
		if ok, _ := path.Match("usr/lib/*-linux-gnu/"+name, p); ok {
			return p, nil
		}
	}
	for _, dir := range []string{"usr/lib/", "usr/lib64/"} {
		if _, ok := a.all[dir+name]; ok {
			return dir + name, nil
		}
	}
	return "", errors.New("no package has it: run `make images-lock`")
}
