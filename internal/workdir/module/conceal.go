package module

import (
	"bytes"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// Unparsed stands in place of HCL that cannot be parsed: secrets in it cannot be told
// from other values.
const Unparsed = "# This HCL cannot be parsed. Secrets in it cannot be told from other values, so all of it is masked.\n"

// Conceal replaces literals of HCL that hold a secret by mask, and says how many:
// those below an argument, a block or a key whose name telling matches, those that are
// given to sensitive(), those beside such a name (name = "DB_PASSWORD" and value = …),
// and the values of variables and outputs that are declared sensitive or have such a
// name. Expressions stay. HCL that cannot be parsed becomes
// Unparsed.
func Conceal(source, mask string, telling func(name string) bool) (string, int) {
	if strings.TrimSpace(source) == "" {
		return source, 0
	}
	src := []byte(source)
	if checkDepth("", src) != nil {
		return Unparsed, 1
	}
	f, diags := hclsyntax.ParseConfig(src, "", hcl.InitialPos)
	if diags.HasErrors() {
		return Unparsed, 1
	}
	c := concealer{tells: func(name string) bool {
		return telling(name) || name != "sensitive" && strings.Contains(name, "sensitive")
	}, inside: []bool{false}, hidden: map[hclsyntax.Expression]bool{}}
	hclsyntax.Walk(f.Body.(*hclsyntax.Body), &c)
	c.comments(src)
	return c.replaced(src, mask)
}

// concealer walks HCL and notes what to replace.
type concealer struct {
	tells  func(name string) bool
	inside []bool                        // whether the nodes on the way to the current one hold secrets
	hidden map[hclsyntax.Expression]bool // expressions that hold secrets, by what is above them
	cuts   []cut
}

// cut is a part of the text that is replaced.
type cut struct {
	hcl.Range
	comment bool
}

// Enter implements hclsyntax.Walker.
func (c *concealer) Enter(n hclsyntax.Node) hcl.Diagnostics {
	secret := c.inside[len(c.inside)-1]
	if e, ok := n.(hclsyntax.Expression); ok {
		secret = secret || c.hidden[e]
	}
	switch n := n.(type) {
	case *hclsyntax.Block:
		c.declaration(n)
		c.block(n)
		secret = secret || c.tells(n.Type)
	case *hclsyntax.Attribute:
		secret = secret || c.tells(n.Name)
	case *hclsyntax.FunctionCallExpr:
		secret = secret || n.Name == "sensitive"
	case *hclsyntax.ObjectConsExpr:
		beside := slices.ContainsFunc(n.Items, func(item hclsyntax.ObjectConsItem) bool {
			return isNameBeside(literal(item.KeyExpr)) && c.tells(literal(item.ValueExpr))
		})
		for _, item := range n.Items {
			if key := literal(item.KeyExpr); c.tells(key) || beside && key == "value" {
				c.hidden[item.ValueExpr] = true
			}
		}
	case *hclsyntax.ObjectConsKeyExpr:
		secret = false // a name
	case *hclsyntax.TemplateExpr:
		if secret && slices.ContainsFunc(n.Parts, isText) {
			c.cuts = append(c.cuts, cut{Range: n.SrcRange})
		}
	case *hclsyntax.LiteralValueExpr:
		if secret && !n.Val.IsNull() && n.Val.Type() != cty.Bool && !isBlank(n.Val) {
			c.cuts = append(c.cuts, cut{Range: n.SrcRange})
		}
	}
	c.inside = append(c.inside, secret)
	return nil
}

// Exit implements hclsyntax.Walker.
func (c *concealer) Exit(hclsyntax.Node) hcl.Diagnostics {
	c.inside = c.inside[:len(c.inside)-1]
	return nil
}

// declaration notes the value of a variable or an output that is secret.
func (c *concealer) declaration(b *hclsyntax.Block) {
	value := map[string]string{"variable": "default", "output": "value"}[b.Type]
	a := b.Body.Attributes[value]
	if a == nil {
		return
	}
	secret := len(b.Labels) > 0 && c.tells(b.Labels[0])
	if s := b.Body.Attributes["sensitive"]; s != nil {
		v, diags := s.Expr.Value(nil)
		secret = secret || diags.HasErrors() || !v.RawEquals(cty.False)
	}
	if secret {
		c.hidden[a.Expr] = true
	}
}

// block notes the value of a block that has a telling name beside it, such as set of a
// Helm release.
func (c *concealer) block(b *hclsyntax.Block) {
	value := b.Body.Attributes["value"]
	for name, a := range b.Body.Attributes {
		if value != nil && isNameBeside(name) && c.tells(literal(a.Expr)) {
			c.hidden[value.Expr] = true
		}
	}
}

// isNameBeside reports whether an argument or a key holds the name of the value beside
// it.
func isNameBeside(key string) bool { return key == "name" || key == "key" }

// comments notes comments that seem to hold a secret, such as an argument that was
// taken out.
func (c *concealer) comments(src []byte) {
	tokens, diags := hclsyntax.LexConfig(src, "", hcl.InitialPos)
	if diags.HasErrors() {
		return // it was parsed
	}
	for _, t := range tokens {
		if t.Type == hclsyntax.TokenComment && bytes.ContainsAny(t.Bytes, `"=:`) && c.tells(string(t.Bytes)) {
			c.cuts = append(c.cuts, cut{t.Range, true})
		}
	}
}

// replaced is the text with a mask in place of each cut. A cut inside another one is
// a part of it.
func (c *concealer) replaced(src []byte, mask string) (string, int) {
	slices.SortFunc(c.cuts, func(a, b cut) int { return a.Start.Byte - b.Start.Byte })
	var out strings.Builder
	at, n := 0, 0
	for _, x := range c.cuts {
		if x.Start.Byte < at {
			continue
		}
		out.Write(src[at:x.Start.Byte])
		text := src[x.Start.Byte:x.End.Byte]
		switch {
		case x.comment && bytes.HasSuffix(text, []byte("\n")):
			out.WriteString("# " + mask + "\n")
		case x.comment:
			out.WriteString("/* " + mask + " */")
		default:
			out.WriteString(`"` + mask + `"`)
		}
		at = x.End.Byte
		n++
	}
	out.Write(src[at:])
	return out.String(), n
}

// isText reports whether a part of a template is text, and not only white space.
func isText(e hclsyntax.Expression) bool {
	l, ok := e.(*hclsyntax.LiteralValueExpr)
	return ok && !isBlank(l.Val)
}

func isBlank(v cty.Value) bool {
	return v.Type() == cty.String && !v.IsNull() && strings.TrimSpace(v.AsString()) == ""
}
