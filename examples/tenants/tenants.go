// Package tenants holds the example that `terrier up --quickstart` applies beside
// the two stacks: a table of three customers in a file of SQLite, where it is
// read, and what each of its rows becomes. It is also meant to be read and
// applied by hand.
package tenants

import "embed"

// Files are the table and the manifests.
//
//go:embed *.sql *.yaml
var Files embed.FS
