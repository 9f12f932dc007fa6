// Package alustan holds the manifests of stacks that are applied by scripts, as the
// documents of the Alustan controller have them. It is data only.
//
// Start reading at the README of the directory.
package alustan

import "embed"

// Files are the manifests.
//
//go:embed *.yaml
var Files embed.FS
