package scan

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/terrier-iac/terrier/internal/workdir/module"
)

// hcl scans a file of configuration, or of variables.
func (s *scanner) hcl(content []byte, vars bool) error {
	name := path.Base(s.file)
	if strings.HasSuffix(name, ".json") || name == "." { // the name would choose another syntax
		name = "main.tf"
	}
	if err := module.Check(name, content); err != nil { // also what is nested too deeply to be parsed
		return errors.New("it is no configuration that an engine can read")
	}
	f, diags := hclsyntax.ParseConfig(content, name, hcl.InitialPos)
	body, ok := f.Body.(*hclsyntax.Body)
	if diags.HasErrors() || !ok {
		return errors.New("it is no configuration that an engine can read")
	}
	s.maps += len(body.Blocks) + len(body.Attributes)
	p := place{kind: Module}
	if vars {
		p.kind = VarFile
	}
	moduleScanner{s}.body(p, body)
	return nil
}

// moduleScanner scans what is declared in a file of configuration.
type moduleScanner struct{ *scanner }

// body scans the attributes and blocks of a block.
func (s moduleScanner) body(p place, b *hclsyntax.Body) {
	name, value := b.Attributes["name"], b.Attributes["value"]
	for _, a := range b.Attributes {
		if a == value && name != nil { // set { name = "password", value = … }
			if n, ok := literal(name.Expr); ok {
				s.expression(p.below("["+n+"]"), n, a.Expr)
				continue
			}
		}
		s.expression(p.below(a.Name), a.Name, a.Expr)
	}
	for _, block := range b.Blocks {
		s.hclBlock(p, block)
	}
}

func (s moduleScanner) hclBlock(p place, b *hclsyntax.Block) {
	for _, part := range append([]string{b.Type}, b.Labels...) {
		p = p.below(part)
	}
	label := ""
	if len(b.Labels) > 0 {
		label = b.Labels[len(b.Labels)-1]
	}
	switch {
	case p.kind != Module: // inside of one of these
	case b.Type == "variable":
		p.kind = Default
		if marked(b.Body.Attributes["sensitive"]) {
			p.all = RuleSensitive
		}
		if a := b.Body.Attributes["default"]; a != nil {
			s.expression(p, label, a.Expr)
		}
		return
	case b.Type == "output":
		if marked(b.Body.Attributes["sensitive"]) {
			p.all = RuleSensitive
		}
		if a := b.Body.Attributes["value"]; a != nil {
			s.expression(p, label, a.Expr)
		}
		return
	case b.Type == "provider", b.Type == "backend", b.Type == "credentials":
		p.kind, p.strict = Provider, true
	case b.Type == "resource", b.Type == "data", b.Type == "module", b.Type == "ephemeral":
		p.kind = Resource
	}
	s.body(p, b.Body)
}

// marked reports whether an attribute is literally true.
func marked(a *hclsyntax.Attribute) bool {
	if a == nil {
		return false
	}
	l, ok := a.Expr.(*hclsyntax.LiteralValueExpr)
	return ok && l.Val.Type() == cty.Bool && l.Val.True()
}

// literal is the text of an expression that is nothing else.
func literal(x hclsyntax.Expression) (string, bool) {
	switch x := x.(type) {
	case *hclsyntax.TemplateExpr:
		var all strings.Builder
		for _, part := range x.Parts {
			text, ok := literal(part)
			if !ok {
				return "", false
			}
			all.WriteString(text)
		}
		return all.String(), true
	case *hclsyntax.TemplateWrapExpr:
		return "", false
	case *hclsyntax.LiteralValueExpr:
		switch x.Val.Type() {
		case cty.String:
			return x.Val.AsString(), true
		case cty.Number:
			return x.Val.AsBigFloat().Text('f', -1), true
		}
	case *hclsyntax.ParenthesesExpr:
		return literal(x.Expression)
	case *hclsyntax.ObjectConsKeyExpr:
		if word := hcl.ExprAsKeyword(x.Wrapped); word != "" && !x.ForceNonLiteral {
			return word, true
		}
		return literal(x.Wrapped)
	}
	return "", false
}

// passing are functions whose value is as secret as their argument.
var passing = []string{"sensitive", "nonsensitive", "ephemeralasnull", "base64encode", "trimspace", "tostring", "coalesce", "try", "jsonencode", "yamlencode", "merge", "concat", "tolist", "toset", "tomap", "flatten"}

// expression scans what an attribute or a key of an object is set to.
func (s moduleScanner) expression(p place, name string, x hclsyntax.Expression) {
	if value, ok := literal(x); ok {
		_, isNumber := x.(*hclsyntax.LiteralValueExpr)
		if isNumber && (strengthOf(name) != strong || len(value) < 4) {
			return
		}
		at := x.Range()
		s.check(p, name, value, position{line: at.Start.Line, block: isHeredoc(s.line(at.Start.Line), at)})
		return
	}
	switch x := x.(type) {
	case *hclsyntax.TemplateExpr: // its literal parts hold no whole value
		for _, part := range x.Parts {
			if text, ok := literal(part); ok {
				s.part(p, text, part.Range())
			}
		}
	case *hclsyntax.ObjectConsExpr:
		s.hclObject(p, x)
	case *hclsyntax.TupleConsExpr:
		for i, item := range x.Exprs {
			s.expression(p.below(fmt.Sprintf("[%d]", i)), name, item)
		}
	case *hclsyntax.FunctionCallExpr:
		if !slices.Contains(passing, x.Name) {
			name = "" // what a function makes of it is not known
		}
		for _, arg := range x.Args {
			s.expression(p, name, arg)
		}
	case *hclsyntax.ConditionalExpr:
		s.expression(p, name, x.TrueResult)
		s.expression(p, name, x.FalseResult)
	case *hclsyntax.ParenthesesExpr:
		s.expression(p, name, x.Expression)
	}
}

// hclObject scans the items of an object. Those of { name = "PASSWORD", value = … } are a pair.
func (s moduleScanner) hclObject(p place, x *hclsyntax.ObjectConsExpr) {
	pair := ""
	for _, item := range x.Items {
		if key, ok := literal(item.KeyExpr); ok && (key == "name" || key == "key") {
			pair, _ = literal(item.ValueExpr)
		}
	}
	for _, item := range x.Items {
		key, ok := literal(item.KeyExpr)
		switch {
		case !ok:
			s.expression(p, "", item.ValueExpr)
		case key == "value" && pair != "":
			s.expression(p.below("["+pair+"]"), pair, item.ValueExpr)
		default:
			s.expression(p.below(key), key, item.ValueExpr)
		}
	}
}

// part scans the literal part of a template, whose other parts are references.
func (s moduleScanner) part(p place, text string, at hcl.Range) {
	for i, line := range strings.Split(text, "\n") {
		for _, m := range tokensIn(line) {
			s.add(p, m.rule, m.mask, at.Start.Line+i, at.Start.Line)
		}
		if i < strings.Count(text, "\n") { // else a reference follows
			s.textLine(p, line, at.Start.Line+i, at.Start.Line)
		}
	}
}

// isHeredoc reports whether an expression that begins on a line is a text of several lines.
func isHeredoc(line string, at hcl.Range) bool {
	return at.Start.Column <= len(line) && strings.HasPrefix(line[at.Start.Column-1:], "<<") || at.End.Line > at.Start.Line+1 && strings.Contains(line, "<<")
}

// moduleJSON scans configuration or variables in JSON.
func (s *scanner) moduleJSON(content []byte, vars bool) error {
	return eachJSON(content, func(n *node) {
		for _, e := range n.entries {
			p := place{kind: kindOfBlock(e.key, vars), path: e.key, fixed: true}
			p.strict = p.kind == Provider
			if e.key == "terraform" {
				if backend := e.value.get("backend"); backend != nil {
					manifestScanner{s}.walk(place{kind: Provider, path: "terraform.backend", fixed: true, strict: true}, backend)
				}
				continue
			}
			if e.value.kind == text || e.value.kind == number {
				s.check(p, e.key, e.value.text, e.value.at)
				continue
			}
			manifestScanner{s}.walk(p, e.value)
		}
	})
}

// kindOfBlock says what a block of a module in JSON is about.
func kindOfBlock(name string, vars bool) Kind {
	switch {
	case vars:
		return VarFile
	case name == "provider":
		return Provider
	case name == "variable":
		return Default
	case name == "resource" || name == "data" || name == "module" || name == "ephemeral":
		return Resource
	default:
		return Module
	}
}
