package module

import (
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/zclconf/go-cty/cty"

	"github.com/terrier-iac/terrier/internal/workdir"
)

// The parts of a configuration that Terrier reads; engines know more.
var (
	fileSchema = &hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
		{Type: "terraform"},
		{Type: "variable", LabelNames: []string{"name"}},
	}}
	terraformSchema = &hcl.BodySchema{
		Attributes: []hcl.AttributeSchema{{Name: "required_version"}},
		Blocks: []hcl.BlockHeaderSchema{
			{Type: "backend", LabelNames: []string{"type"}},
			{Type: "cloud"},
			{Type: "required_providers"},
			{Type: "encryption"},
		},
	}
	variableSchema = &hcl.BodySchema{Attributes: []hcl.AttributeSchema{
		{Name: "type"}, {Name: "default"}, {Name: "sensitive"},
	}}
)

// read adds what one file says.
func (r *Root) read(name string, src []byte, override bool) error {
	body, err := parse(name, src)
	if err != nil {
		return err
	}
	content, rest, diags := body.PartialContent(fileSchema)
	if diags.HasErrors() {
		return diagnosed(diags)
	}
	file := overrideFile{name: name, only: isEmpty(rest)}
	for _, b := range content.Blocks {
		if b.Type == "variable" {
			file.only = false
			r.variable(b, src)
			continue
		}
		only, err := r.terraform(b, override, &file)
		if err != nil {
			return err
		}
		file.only = file.only && only
	}
	if override {
		r.overrides = append(r.overrides, file)
	}
	return nil
}

// terraform reads one terraform block and reports whether it holds nothing but
// a backend or cloud block.
func (r *Root) terraform(b *hcl.Block, override bool, file *overrideFile) (only bool, err error) {
	content, rest, diags := b.Body.PartialContent(terraformSchema)
	if diags.HasErrors() {
		return false, diagnosed(diags)
	}
	only = isEmpty(rest)
	if a, ok := content.Attributes["required_version"]; ok {
		only = false
		r.RequiredVersion = append(r.RequiredVersion, literal(a.Expr))
	}
	for _, inner := range content.Blocks {
		switch inner.Type {
		case "backend", "cloud":
			block := Block{Kind: inner.Type, File: inner.DefRange.Filename, Line: inner.DefRange.Start.Line, Override: override}
			if len(inner.Labels) > 0 {
				block.Type = inner.Labels[0]
			}
			r.Backends = append(r.Backends, block)
			file.backend = &block
		case "required_providers":
			only = false
			r.providers(inner.Body)
		case "encryption":
			only = false
			r.Encryption = true
		}
	}
	return only, nil
}

// isEmpty reports whether nothing is left in a body that was partly read.
func isEmpty(rest hcl.Body) bool {
	_, diags := rest.Content(&hcl.BodySchema{})
	return !diags.HasErrors()
}

func (r *Root) providers(body hcl.Body) {
	attributes, _ := body.JustAttributes() // odd entries are the engine's to refuse
	for name, a := range attributes {
		var p Provider
		if pairs, diags := hcl.ExprMap(a.Expr); !diags.HasErrors() {
			for _, pair := range pairs {
				switch literal(pair.Key) { // a bare word counts as a string here
				case "source":
					p.Source = literal(pair.Value)
				case "version":
					p.Version = literal(pair.Value)
				}
			}
		} else {
			p.Version = literal(a.Expr) // the old form: random = "~> 3.0"
		}
		r.Providers[name] = p
	}
}

// variable adds a declaration; one in an override file changes the attributes
// that it has.
func (r *Root) variable(b *hcl.Block, src []byte) {
	name := b.Labels[0]
	v, known := r.Variables[name]
	if !known {
		v = workdir.Variable{Name: name, File: b.DefRange.Filename, Line: b.DefRange.Start.Line}
	}
	content, _, _ := b.Body.PartialContent(variableSchema)
	if a, ok := content.Attributes["type"]; ok {
		v.Type, v.Complex = variableType(a.Expr, src)
	}
	if _, ok := content.Attributes["default"]; ok {
		v.Default = true
	}
	if a, ok := content.Attributes["sensitive"]; ok {
		var sensitive bool
		// An unknown value counts as sensitive.
		v.Sensitive = gohcl.DecodeExpression(a.Expr, nil, &sensitive).HasErrors() || sensitive
	}
	r.Variables[name] = v
}

// variableType returns a type as it is written, on one line, and whether it is
// a collection or a structure. A type that cannot be read is the engine's to
// refuse.
func variableType(expr hcl.Expression, src []byte) (text string, complex bool) {
	text = literal(expr) // in JSON, and in the old form: type = "list"
	if text == "" {
		text = strings.Join(strings.Fields(string(expr.Range().SliceBytes(src))), " ")
	}
	if text == "list" || text == "map" {
		return text, true
	}
	ty, _, diags := typeexpr.TypeConstraintWithDefaults(expr)
	return text, !diags.HasErrors() && (ty.IsCollectionType() || ty.IsObjectType() || ty.IsTupleType())
}

// literal returns the value of an expression that is a plain string, else "".
func literal(expr hcl.Expression) string {
	v, diags := expr.Value(nil)
	if diags.HasErrors() || v.IsNull() || !v.IsKnown() || v.Type() != cty.String {
		return ""
	}
	return v.AsString()
}
