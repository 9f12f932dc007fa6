// Package policies holds the policies that come with Terrier, in Rego. Each directory is
// one policy with its tests and a page. docs/policy-library.md lists them.
//
// Start reading at Named.
package policies

import (
	"embed"
	"io/fs"
)

//go:embed */*.rego
var files embed.FS

// Named is the directory of a policy, false if there is none of that name.
func Named(name string) (fs.FS, bool) {
	if name == "." || !fs.ValidPath(name) {
		return nil, false
	}
	if info, err := fs.Stat(files, name); err != nil || !info.IsDir() {
		return nil, false
	}
	dir, err := fs.Sub(files, name)
	return dir, err == nil
}

// Names are the names of all policies.
func Names() []string {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic("policies: " + err.Error()) // they are part of the program
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
