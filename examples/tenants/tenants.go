// Package tenants holds the example that `terrier up --quickstart` applies beside
// the two stacks: a table of three customers in a file of SQLite, the registry
// that reads it, and the template of its tenants. docs/tenants-quickstart.md
// applies the same files step by step.
package tenants

import "embed"

// Files are the table and the manifests.
//
//go:embed *.sql *.yaml
var Files embed.FS
