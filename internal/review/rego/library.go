package rego

import (
	"io/fs"
	"path"
	"regexp"
	"strings"
)

// Library names the directories of a directory that are policies of their own, if it is a
// library of policies; it is empty if the directory is one policy itself.
//
// A directory with a file of Rego beside its directories is one policy. Else it is a
// library if several of its directories have rules of package terrier: rules of one name in
// two policies would otherwise be one rule. With conftest, whose policies have any package,
// each directory has a conftest.toml of its own.
func Library(dir fs.FS, f Format) ([]string, error) {
	if f == Weave {
		return nil, nil // each object is a policy
	}
	return library(dir, f, ".", 0)
}

// deepest bounds how deep a library is looked into.
const deepest = 20

func library(dir fs.FS, f Format, below string, depth int) ([]string, error) {
	entries, err := fs.ReadDir(dir, below)
	if err != nil || depth > deepest {
		return nil, err
	}
	var found []string
	policies := 0
	for _, e := range entries {
		name := path.Join(below, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."):
		case e.IsDir():
			is, err := isPolicy(dir, name, f)
			if err != nil {
				return nil, err
			}
			if !is {
				continue
			}
			policies++
			more, err := library(dir, f, name, depth+1)
			if err != nil {
				return nil, err
			}
			if len(more) == 0 {
				more = []string{name}
			}
			found = append(found, more...)
		case path.Ext(e.Name()) == ".rego" || f == Conftest && e.Name() == "conftest.toml":
			return nil, nil
		}
	}
	if policies < 2 && (f != Conftest || policies == 0) && len(found) < 2 {
		return nil, nil
	}
	return found, nil
}

// terrierPackage finds modules that say something of plans.
var terrierPackage = regexp.MustCompile(`(?m)^package\s+terrier\s*(#.*)?$`)

// isPolicy reports whether a directory has a policy in it.
func isPolicy(dir fs.FS, name string, f Format) (bool, error) {
	if f == Conftest {
		return present(dir, path.Join(name, "conftest.toml"), false), nil
	}
	found := false
	err := walk(dir, name, func(file string, b []byte) error {
		found = found || path.Ext(file) == ".rego" && !strings.HasSuffix(file, "_test.rego") && terrierPackage.Match(b)
		return nil
	})
	return found, err
}
