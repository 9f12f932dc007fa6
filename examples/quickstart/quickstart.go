// Package quickstart holds the example that `terrier up --quickstart` applies:
// two stacks, one written in place, one from an artifact, the second made from
// what the first outputs. It is also meant to be read and applied by hand.
package quickstart

import "embed"

// Files are the manifests and the module in app/.
//
//go:embed *.yaml app
var Files embed.FS
