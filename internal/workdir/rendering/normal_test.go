package rendering

import "github.com/zclconf/go-cty/cty"

// normal is a text as the language has it: characters that can be written in
// several ways are written in one.
func normal(s string) string { return cty.StringVal(s).AsString() }
