// Package kinds lists the kinds of stack that Terrier reconciles, one line each. It
// knows nothing else about them. To add a kind, write a dialect in a package beside
// this one, and add it here; docs/architecture.md has the steps.
//
// Start reading at All.
package kinds

import (
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/alustan"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
)

// All returns the dialects of all kinds. The first is the kind of a stack that is
// named without one.
func All() dialect.Registry {
	return dialect.NewRegistry(
		infra.Dialect{},
		alustan.Dialect{},
	)
}
