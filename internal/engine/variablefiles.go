package engine

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
)

// maxVariables bounds a file of variables that is read for its names.
const maxVariables = 1 << 20

// AutoVariables returns the files that an engine loads by itself because of
// their names, *.auto.tfvars and *.auto.tfvars.json, and which variables each of
// them sets. The names are nil for a file that cannot be understood here: it may
// set any variable, or the engine says what is wrong with it. A file that sets
// none is left out.
func AutoVariables(root fs.FS) (map[string][]string, error) {
	entries, err := fs.ReadDir(root, ".")
	if err != nil {
		return nil, fmt.Errorf("listing files of variables: %w", err)
	}
	found := map[string][]string{}
	for _, e := range entries {
		name := e.Name()
		isJSON := strings.HasSuffix(name, ".auto.tfvars.json")
		if !isJSON && !strings.HasSuffix(name, ".auto.tfvars") {
			continue
		}
		set, err := variablesOf(root, e, isJSON)
		switch {
		case err != nil:
			found[name] = nil
		case len(set) > 0:
			found[name] = set
		}
	}
	return found, nil
}

// variablesOf are the names that a file of variables sets.
func variablesOf(root fs.FS, e fs.DirEntry, isJSON bool) ([]string, error) {
	info, err := e.Info()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxVariables {
		return nil, fmt.Errorf("%s is not read: %v with %d bytes", e.Name(), info.Mode(), info.Size())
	}
	src, err := fs.ReadFile(root, e.Name())
	if err != nil {
		return nil, err
	}
	if isJSON {
		return variablesInJSON(src)
	}
	return variablesIn(src)
}

// variablesIn are the names that a file of variables sets.
func variablesIn(src []byte) ([]string, error) {
	items, err := parseSyntax(src)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, i := range items {
		if !i.block {
			names = append(names, i.name)
		}
	}
	return names, nil
}

// VariablesInJSON are the names that a file of variables in JSON sets, if it is
// one object.
func VariablesInJSON(src []byte) []string {
	names, err := variablesInJSON(src)
	if err != nil {
		return nil
	}
	return names
}

func variablesInJSON(src []byte) ([]string, error) {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(src, &values); err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(values)), nil
}
