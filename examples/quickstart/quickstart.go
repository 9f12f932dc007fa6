// Package quickstart holds the example that `terrier up --quickstart` applies:
// two stacks, one written in place, one from an artifact. The second reads the
// outputs of the first. Its README applies the same files step by step.
package quickstart

import "embed"

// Files are the manifests and the module in app/.
//
//go:embed *.yaml app
var Files embed.FS
