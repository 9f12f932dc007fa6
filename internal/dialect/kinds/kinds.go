// Package kinds lists the kinds of stack that Terrier can reconcile, one line each. It
// knows nothing else about them. To add a kind, write a dialect in a package beside
// this one, and add it here; docs/architecture.md has the steps.
//
// Start reading at All.
package kinds

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/alustan"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
)

// All returns the dialects of all kinds, for programs that reconcile no stack. The first is
// the kind of a stack that is named without one.
func All() dialect.Registry { return Defaults{ScriptInterval: alustan.DefaultInterval}.All() }

// Defaults are what the operator sets for objects that say nothing about it.
type Defaults struct {
	ScriptInterval time.Duration // between two drift checks of a stack of scripts; zero or less never checks
}

// All returns the dialects of all kinds with these defaults.
func (d Defaults) All() dialect.Registry {
	every := d.ScriptInterval
	if every <= 0 {
		every = dialect.Never
	}
	return dialect.NewRegistry(
		infra.Dialect{},
		alustan.Dialect{Interval: every},
	)
}

// Of returns the dialects of some API groups, in the order of All, and those left out.
// The group of the first kind must be among them: records without a kind belong to it.
func (d Defaults) Of(groups []string) (chosen, leftOut dialect.Registry, err error) {
	var in, out []dialect.Dialect
	var known []string
	for _, one := range d.All().All() {
		group := one.Kind().Group
		known = append(known, group)
		if slices.Contains(groups, group) {
			in = append(in, one)
		} else {
			out = append(out, one)
		}
	}
	for _, group := range groups {
		if !slices.Contains(known, group) {
			return chosen, leftOut, fmt.Errorf("%q has no kind of stack: the groups are %s", group, strings.Join(known, " and "))
		}
	}
	if !slices.Contains(groups, known[0]) {
		return chosen, leftOut, fmt.Errorf("%s is missing: name it, too", known[0])
	}
	return dialect.NewRegistry(in...), dialect.NewRegistry(out...), nil
}
