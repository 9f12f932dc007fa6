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
// them sets. A file that cannot be read here is left out: the engine says what
// is wrong with it.
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
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || info.Size() > maxVariables {
			continue
		}
		src, err := fs.ReadFile(root, name)
		if err != nil {
			continue
		}
		set := variablesIn(src)
		if isJSON {
			set = VariablesInJSON(src)
		}
		if len(set) > 0 {
			found[name] = set
		}
	}
	return found, nil
}

// variablesIn are the names that a file of variables sets.
func variablesIn(src []byte) []string {
	items, err := parseSyntax(src)
	if err != nil {
		return nil
	}
	var names []string
	for _, i := range items {
		if !i.block {
			names = append(names, i.name)
		}
	}
	return names
}

// VariablesInJSON are the names that a file of variables in JSON sets.
func VariablesInJSON(src []byte) []string {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(src, &values); err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(values))
}
