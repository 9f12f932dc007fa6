package module

import (
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/terrier-iac/terrier/internal/fault"
)

// Whatever an identifier holds, the file has import blocks with two attributes
// and nothing else.
func TestImportsFile(t *testing.T) {
	hostile := []string{"i-1", "a\"b", "${file(\"/etc/shadow\")}", "%{ if true }x%{ endif }", "x\n}\nresource \"a\" \"b\" {\n", "\\", ""}
	for _, address := range []string{"world_thing.a", `module.m["k.\"y"].world_thing.a[0]`, `module.a.module.b[1].world_thing.c["x"]`} {
		for _, id := range hostile {
			file, err := ImportsFile([]Import{{address, id}, {"world_thing.other", "2"}})
			if err != nil {
				t.Fatalf("ImportsFile(%q, %q) = %v", address, id, err)
			}
			parsed, diags := hclsyntax.ParseConfig(file.Content, file.Path, hcl.InitialPos)
			if diags.HasErrors() {
				t.Fatalf("the file for %q cannot be parsed: %v\n%s", id, diags, file.Content)
			}
			body := parsed.Body.(*hclsyntax.Body)
			if len(body.Blocks) != 2 || len(body.Attributes) != 0 {
				t.Fatalf("%q made %d blocks and %d attributes", id, len(body.Blocks), len(body.Attributes))
			}
			v, diags := body.Blocks[0].Body.Attributes["id"].Expr.Value(nil)
			if diags.HasErrors() || v.AsString() != id {
				t.Errorf("id is %#v, want %q", v, id)
			}
		}
	}
}

func TestImportsFileRefuses(t *testing.T) {
	for _, address := range []string{"", "a", "data.x.y", "module.a", "a.b.c", "a.*.b", "a.b[c]", "a b", "a.b\nc", strings.Repeat("a.", 40), "a[0].b"} {
		if _, err := ImportsFile([]Import{{address, "1"}}); fault.Of(err) != fault.Invalid {
			t.Errorf("ImportsFile(%q) = %v, want it refused", address, err)
		}
	}
}
