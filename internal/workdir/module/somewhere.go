package module

import (
	"path/filepath"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// Somewhere reports whether a custom configuration names one place, so that two
// stacks with the same configuration have the same state. A backend without
// arguments is configured elsewhere, and a local one with a relative path is in the
// workdir of each stack.
func Somewhere(custom string) bool {
	f, diags := hclsyntax.ParseConfig([]byte(custom), customField, hcl.InitialPos)
	if diags.HasErrors() {
		return false
	}
	body, ok := f.Body.(*hclsyntax.Body)
	if !ok {
		return false
	}
	for _, b := range body.Blocks {
		if b.Type != "backend" || len(b.Labels) != 1 || len(b.Body.Attributes) == 0 {
			continue
		}
		if b.Labels[0] != "local" {
			return true
		}
		path, ok := b.Body.Attributes["path"]
		if !ok {
			return false
		}
		value, diags := path.Expr.Value(nil)
		return !diags.HasErrors() && value.Type() == cty.String && value.IsKnown() && !value.IsNull() && filepath.IsAbs(value.AsString())
	}
	return false
}
