// Package crd holds the CustomResourceDefinitions of the kinds that Terrier
// reconciles, as files that users can also apply, so that one binary can install
// them. It does not parse the files.
//
// The files are generated: start reading at tools/gen.
package crd

import "embed"

// Files holds one YAML document in each file.
//
//go:embed *.yaml
var Files embed.FS
