// Package admission holds the policies by which the API server itself writes
// down who changed an object, as the files that are also applied by hand, so
// that one binary can install them. It knows nothing of what is in them.
//
// Start reading at changed-by.yaml.
package admission

import "embed"

// Files holds one YAML document in each file.
//
//go:embed *.yaml
var Files embed.FS
