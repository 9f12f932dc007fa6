// Package alustan holds the manifests of stacks that are applied by scripts, as the
// documents of the Alustan controller have them; and in local the same ones with the
// addresses of the servers that `terrier up --example alustan` starts, and the repository
// that they name. It is data only.
//
// Start reading at the README of the directory.
package alustan

import "embed"

// Files are the manifests and the repository.
//
//go:embed *.yaml local
var Files embed.FS
