// Package crd holds the CustomResourceDefinitions of the kinds that Terrier
// reconciles, as the files that are also applied by hand, so that one binary
// can install them. It knows nothing of what is in them.
//
// The files are generated: start reading at tools/gen.
package crd

import "embed"

// Files holds one YAML document in each file.
//
//go:embed *.yaml
var Files embed.FS
