// Package crd holds the CustomResourceDefinitions of the kinds that Terrier
// reconciles, as files that users can also apply, so that one binary can install
// them. It does not parse the files.
//
// The files are generated: start reading at tools/gen.
package crd

import (
	"embed"
	"io/fs"
	"slices"
	"strings"
)

// Files holds one YAML document in each file.
//
//go:embed *.yaml
var Files embed.FS

// Without returns Files without the definitions of some API groups.
func Without(groups []string) fs.FS { return without{Files, groups} }

type without struct {
	fs.FS
	groups []string
}

// Glob implements fs.GlobFS. The name of a file begins with the group of its definition.
func (w without) Glob(pattern string) ([]string, error) {
	names, err := fs.Glob(w.FS, pattern)
	return slices.DeleteFunc(names, func(name string) bool {
		group, _, _ := strings.Cut(name, "_")
		return slices.Contains(w.groups, group)
	}), err
}
