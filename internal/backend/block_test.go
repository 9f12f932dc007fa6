package backend_test

import (
	"encoding/json"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/terrier-iac/terrier/internal/backend"
)

// Whatever a plug-in says is a literal value of one argument.
func FuzzBlock(f *testing.F) {
	for _, text := range []string{"", "${path.module}", "%{ if true }", "$${a}", `"`, `\`, "a\nb", "\ufeff", "é", "a\u2028b", "$", "%", "\\u0024{x}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var clean string // as JSON has it: no text of a reply is anything else
		data, err := json.Marshal(text)
		if err == nil {
			err = json.Unmarshal(data, &clean)
		}
		if err != nil {
			t.Fatal(err)
		}
		file, err := backend.Block{Type: "s3", Configuration: map[string]any{
			"text": clean, "object": map[string]any{clean: []any{clean, true, 1.5}},
		}}.File()
		if err != nil {
			t.Fatal(err)
		}
		parsed, diags := hclsyntax.ParseConfig(file.Content, file.Path, hcl.InitialPos)
		if diags.HasErrors() {
			t.Fatalf("%q became %s: %v", clean, file.Content, diags)
		}
		outer := parsed.Body.(*hclsyntax.Body)
		block := outer.Blocks[0].Body.Blocks[0]
		if len(outer.Blocks) != 1 || len(outer.Attributes) != 0 || len(block.Body.Attributes) != 2 || len(block.Body.Blocks) != 0 {
			t.Fatalf("%q became another structure: %s", clean, file.Content)
		}
		got, diags := block.Body.Attributes["text"].Expr.Value(nil)
		if diags.HasErrors() || got.AsString() != cty.StringVal(clean).AsString() {
			t.Errorf("text = %#v, want %q: %v", got, clean, diags)
		}
		object, diags := block.Body.Attributes["object"].Expr.Value(nil)
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		is, err := ctyjson.Marshal(object, object.Type())
		if err != nil {
			t.Fatal(err)
		}
		var list map[string][]any
		if err := json.Unmarshal(is, &list); err != nil || len(list) != 1 {
			t.Errorf("object = %s: %v", is, err)
		}
	})
}

func TestBlockRefuses(t *testing.T) {
	for name, b := range map[string]backend.Block{
		"a type that ends the block":  {Type: "s3\" {}\n}"},
		"no type":                     {},
		"an argument that is no name": {Type: "s3", Configuration: map[string]any{"a = 1\nb": "x"}},
		"no value":                    {Type: "s3", Configuration: map[string]any{"a": nil}},
	} {
		if file, err := b.File(); err == nil {
			t.Errorf("%s: File() = %s, want an error", name, file.Content)
		}
	}
}
