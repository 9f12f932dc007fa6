package patch

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/terrier-iac/terrier/internal/drift"
)

// depth bounds how far a value is followed.
const depth = 20

// at is where a value is looked for.
type at struct {
	scope *scope
	file  *text
	steps []step // that lead from here to the value
	depth int
}

// value has the configuration say one value. Why says why it cannot, and where the value is.
func (p *proposer) value(r drift.Resource, s *scope, b *block, c change) (where, why string, err error) {
	return p.inBlock(r, b, c, at{scope: s, file: b.file, steps: c.steps})
}

// inBlock looks for a value among the attributes and blocks of a block.
func (p *proposer) inBlock(r drift.Resource, b *block, c change, a at) (where, why string, err error) {
	name, rest := a.steps[0].name, a.steps[1:]
	a.steps = rest
	if attr := b.syntax.Body.Attributes[name]; attr != nil {
		if c.real == nil && len(rest) == 0 {
			if v, ok := literal(attr.Expr); !ok || !means(v, c.configured) {
				return placeOf(attr.Range()), "It is there no more, and the configuration sets it by an expression: remove it manually.", nil
			}
			return p.done(r, c, b.file, attr.Range(), "it is removed, since it is not set there", b.file.removeLines(attr.Range()))
		}
		return p.inExpression(r, attr.Expr, c, a)
	}
	for _, d := range b.nested("dynamic") {
		if slices.Equal(d.syntax.Labels, []string{name}) {
			return d.place(), "A dynamic block makes it. Edit the values of its for_each, or use --ignore-changes.", nil
		}
	}
	blocks := b.nested(name)
	switch {
	case len(rest) > 0 && rest[0].number >= 0 && rest[0].number < len(blocks):
		one := blocks[rest[0].number]
		if len(rest) == 1 {
			if c.real != nil || len(blocks) > 1 && !says(one, c.configured) {
				return one.place(), "Which block this is cannot be told: edit it manually.", nil
			}
			return p.done(r, c, one.file, one.syntax.Range(), "the block is removed, since it is not there", one.file.removeLines(one.syntax.Range()))
		}
		a.steps = rest[1:]
		return p.inBlock(r, one, c, a)
	case len(rest) == 1 && rest[0].number >= 0 && len(blocks) > 0 && c.configured == nil:
		lines, ok := blockLines(name, c.real)
		if !ok {
			return b.place(), "It holds more than single values: write its block manually.", nil
		}
		return p.done(r, c, b.file, b.syntax.DefRange(), "a block "+name+" is added", b.add(lines...))
	case len(rest) == 0 && c.configured == nil || len(rest) == 0 && len(blocks) == 0:
		text, err := written(c.real)
		if err != nil {
			return "", "", err
		}
		return p.done(r, c, b.file, b.syntax.DefRange(), fmt.Sprintf("%s = %s is added", name, short(text)), b.add(strings.Split(name+" = "+text, "\n")...))
	default:
		return b.place(), "The configuration does not set it, and whether it is a block or an attribute cannot be told: write it manually, or use --ignore-changes.", nil
	}
}

// says reports whether the attributes of a block are literals with these values.
func says(b *block, values any) bool {
	want, ok := values.(map[string]any)
	if !ok {
		return false
	}
	for name, value := range want {
		attr := b.syntax.Body.Attributes[name]
		if attr == nil {
			continue // a default of the provider
		}
		if v, ok := literal(attr.Expr); !ok || !means(v, value) {
			return false
		}
	}
	return true
}

// blockLines are a block of single values, as lines.
func blockLines(name string, values any) ([]string, bool) {
	in, ok := values.(map[string]any)
	if !ok {
		return nil, false
	}
	lines := []string{name + " {"}
	for _, key := range slices.Sorted(maps.Keys(in)) {
		switch in[key].(type) {
		case map[string]any, []any:
			return nil, false
		}
		if !identifier.MatchString(key) {
			return nil, false
		}
		text, err := written(in[key])
		if err != nil {
			return nil, false
		}
		lines = append(lines, "  "+key+" = "+text)
	}
	return append(lines, "}"), true
}

// inExpression looks for a value in an expression.
func (p *proposer) inExpression(r drift.Resource, e hclsyntax.Expression, c change, a at) (where, why string, err error) {
	if a.depth++; a.depth > depth {
		return placeOf(e.Range()), "Its value comes through too many variables.", nil
	}
	switch e := e.(type) {
	case *hclsyntax.ParenthesesExpr:
		return p.inExpression(r, e.Expression, c, a)
	case *hclsyntax.TemplateWrapExpr:
		return p.inExpression(r, e.Wrapped, c, a)
	case *hclsyntax.ObjectConsExpr:
		if len(a.steps) > 0 && a.steps[0].name != "" {
			return p.inMap(r, e, c, a)
		}
	case *hclsyntax.TupleConsExpr:
		if len(a.steps) > 0 && a.steps[0].number >= 0 {
			return p.inList(r, e, c, a)
		}
	case *hclsyntax.FunctionCallExpr:
		if e.Name == "jsonencode" && len(e.Args) == 1 && len(a.steps) > 0 && a.steps[0].json {
			a.steps = a.steps[1:]
			return p.inExpression(r, e.Args[0], c, a)
		}
	case *hclsyntax.ScopeTraversalExpr:
		return p.inName(r, e, c, a)
	}
	v, ok := literal(e)
	switch {
	case !ok || len(a.steps) > 0:
		return placeOf(e.Range()), "It is the expression " + short(a.file.quote(e.Range())) + ", and no literal: edit it manually, or use --ignore-changes.", nil
	case !means(v, c.configured):
		return placeOf(e.Range()), "The configuration says " + short(a.file.quote(e.Range())) + " here, which is not the value of the plan: edit it manually.", nil
	case c.real == nil:
		return placeOf(e.Range()), "It is there no more: remove it manually.", nil
	}
	text, err := written(c.real)
	if err != nil {
		return "", "", err
	}
	return p.done(r, c, a.file, e.Range(), fmt.Sprintf("%s becomes %s", short(a.file.quote(e.Range())), short(text)), a.file.replace(e.Range(), text))
}

// inMap looks for an entry of a map.
func (p *proposer) inMap(r drift.Resource, e *hclsyntax.ObjectConsExpr, c change, a at) (where, why string, err error) {
	name := a.steps[0].name
	a.steps = a.steps[1:]
	for _, item := range e.Items {
		key, diags := item.KeyExpr.Value(nil)
		if diags.HasErrors() || key.IsNull() || !key.IsKnown() || key.Type() != cty.String {
			return placeOf(item.KeyExpr.Range()), "A key of this map is an expression: edit it manually, or use --ignore-changes.", nil
		}
		if key.AsString() != name {
			continue
		}
		whole := hcl.RangeBetween(item.KeyExpr.Range(), item.ValueExpr.Range())
		if c.real == nil && len(a.steps) == 0 {
			if whole.Start.Line == e.OpenRange.Start.Line || whole.Start.Line == e.SrcRange.End.Line {
				return placeOf(whole), "It is there no more: remove this entry manually.", nil
			}
			return p.done(r, c, a.file, whole, "the entry is removed, since it is not there", a.file.removeLines(whole))
		}
		return p.inExpression(r, item.ValueExpr, c, a)
	}
	if c.configured != nil || len(a.steps) > 0 {
		return placeOf(e.Range()), "This map does not have the entry: edit it manually.", nil
	}
	text, err := written(c.real)
	if err != nil {
		return "", "", err
	}
	entry := name + " = " + text
	if !identifier.MatchString(name) {
		entry = fmt.Sprintf("%q = %s", name, text)
	}
	return p.done(r, c, a.file, e.Range(), entry+" is added", addEntry(a.file, e, entry))
}

// addEntry puts an entry at the end of a map, in the way in which the map is written.
func addEntry(t *text, e *hclsyntax.ObjectConsExpr, entry string) bool {
	end := e.SrcRange.End.Byte - 1 // the closing brace
	if e.SrcRange.Start.Line == e.SrcRange.End.Line {
		if len(e.Items) == 0 {
			return t.splice(splice{e.SrcRange.Start.Byte, e.SrcRange.End.Byte, "{ " + entry + " }"})
		}
		last := e.Items[len(e.Items)-1].ValueExpr.Range().End.Byte
		return t.splice(splice{last, last, ", " + entry})
	}
	line := end
	for line > 0 && t.src[line-1] != '\n' {
		line--
	}
	if strings.TrimSpace(string(t.src[line:end])) != "" { // the brace is behind the last entry
		last := e.Items[len(e.Items)-1].ValueExpr.Range().End.Byte
		return t.splice(splice{last, last, "\n" + strings.Repeat(" ", e.Items[0].KeyExpr.Range().Start.Column-1) + entry})
	}
	indent := string(t.src[line:end]) + "  "
	if len(e.Items) > 0 {
		indent = strings.Repeat(" ", e.Items[0].KeyExpr.Range().Start.Column-1)
	}
	return t.splice(splice{line, line, indent + entry + "\n"})
}

// inList looks for an element of a list.
func (p *proposer) inList(r drift.Resource, e *hclsyntax.TupleConsExpr, c change, a at) (where, why string, err error) {
	n := a.steps[0].number
	a.steps = a.steps[1:]
	switch {
	case n < len(e.Exprs) && (c.real != nil || len(a.steps) > 0):
		return p.inExpression(r, e.Exprs[n], c, a)
	case n == len(e.Exprs) && c.configured == nil && len(a.steps) == 0:
		text, err := written(c.real)
		if err != nil {
			return "", "", err
		}
		where, with := e.SrcRange.End.Byte-1, text
		if len(e.Exprs) > 0 {
			where, with = e.Exprs[n-1].Range().End.Byte, ", "+text
		}
		return p.done(r, c, a.file, e.Range(), short(text)+" is added", a.file.splice(splice{where, where, with}))
	default:
		return placeOf(e.Range()), "The list has other elements than the plan says: edit it manually.", nil
	}
}

// inName follows a variable or a local to where it gets its value.
func (p *proposer) inName(r drift.Resource, e *hclsyntax.ScopeTraversalExpr, c change, a at) (where, why string, err error) {
	root := e.Traversal.RootName()
	text := a.file.quote(e.Range())
	if root != "var" && root != "local" || len(e.Traversal) < 2 {
		return placeOf(e.Range()), "It is " + short(text) + ", which another resource or module gives: edit it manually, or use --ignore-changes.", nil
	}
	name, ok := e.Traversal[1].(hcl.TraverseAttr)
	if !ok {
		return placeOf(e.Range()), "It is " + short(text) + ", which cannot be followed: edit it manually.", nil
	}
	var more []step
	for _, t := range e.Traversal[2:] {
		switch t := t.(type) {
		case hcl.TraverseAttr:
			more = append(more, step{name: t.Name, number: -1})
		case hcl.TraverseIndex:
			switch {
			case t.Key.Type() == cty.String:
				more = append(more, step{name: t.Key.AsString(), number: -1})
			case t.Key.Type() == cty.Number:
				n, _ := t.Key.AsBigFloat().Int64()
				more = append(more, step{number: int(n)})
			}
		}
	}
	a.steps = append(more, a.steps...)
	// A validation of the variable checks its value, and sets no other.
	declared, err := a.scope.variable(name.Name)
	if err != nil {
		return "", "", err
	}
	if root == "local" {
		declared = nil
	}
	users, err := a.scope.referrers(root, name.Name, declared)
	if err != nil {
		return "", "", err
	}
	if len(users) > 1 {
		return placeOf(e.Range()), fmt.Sprintf("It is %s, which is used in %d places (%s): a change of it would change the others, too. Edit it manually.", short(text), len(users), strings.Join(users, ", ")), nil
	}
	if root == "local" {
		return p.inLocal(r, name.Name, c, a)
	}
	return p.inVariable(r, name.Name, c, a)
}

func (p *proposer) inLocal(r drift.Resource, name string, c change, a at) (where, why string, err error) {
	b, err := a.scope.find(func(b *hclsyntax.Block) bool { return b.Type == "locals" && b.Body.Attributes[name] != nil })
	if err != nil {
		return "", "", err
	}
	if b == nil {
		return a.scope.dir, "No file of the module defines local." + name + ".", nil
	}
	a.file = b.file
	return p.inExpression(r, b.syntax.Body.Attributes[name].Expr, c, a)
}

// inVariable follows a variable to the call of its module, to what the stack is given, or to its
// default.
func (p *proposer) inVariable(r drift.Resource, name string, c change, a at) (where, why string, err error) {
	if s := a.scope; s.caller != nil {
		if attr := s.call.syntax.Body.Attributes[name]; attr != nil {
			if s.repeated {
				return placeOf(attr.Range()), "The module is called with count or for_each: a literal here is of all of them. Edit it manually.", nil
			}
			a.scope, a.file = s.caller, s.call.file
			return p.inExpression(r, attr.Expr, c, a)
		}
	} else if found, err := p.given(name); err != nil || found.where != "" {
		if err != nil || found.file == nil {
			text, werr := written(c.real)
			return found.where, fmt.Sprintf("The variable %s gets its value there. Set it to %s, or use --ignore-changes.", name, short(text)), cmp.Or(err, werr)
		}
		a.file = found.file
		return p.inExpression(r, found.file.body.Attributes[name].Expr, c, a)
	}
	b, err := a.scope.variable(name)
	if err != nil {
		return "", "", err
	}
	if b == nil || b.syntax.Body.Attributes["default"] == nil {
		return a.scope.dir, "Where the variable " + name + " gets its value is not known: set it where the stack is defined, or use --ignore-changes.", nil
	}
	a.file = b.file
	return p.inExpression(r, b.syntax.Body.Attributes["default"].Expr, c, a)
}

// variable finds the declaration of a variable; nil if there is none.
func (s *scope) variable(name string) (*block, error) {
	return s.find(func(b *hclsyntax.Block) bool {
		return b.Type == "variable" && slices.Equal(b.Labels, []string{name})
	})
}

// given is what gives a variable of the root module its value.
type given struct {
	where string // empty if nothing does
	file  *text  // nil if it is not edited
}

// given finds what gives a variable of the root module its value: a file that the stack names,
// the object, or a file that the engine reads by itself.
func (p *proposer) given(name string) (given, error) {
	var auto []string
	for f := range p.Files {
		if base := path.Base(f); inDir(f, p.Root) && (strings.HasSuffix(base, ".auto.tfvars") || strings.HasSuffix(base, ".auto.tfvars.json")) {
			auto = append(auto, f)
		}
	}
	slices.Sort(auto)
	slices.Reverse(auto)
	auto = append(auto, path.Join(p.Root, "terraform.tfvars.json"), path.Join(p.Root, "terraform.tfvars"))
	if found, err := p.varFile(name, p.VarFiles); err != nil || found.where != "" {
		return found, err
	}
	if field := p.Fields[name]; field != "" {
		return given{where: field}, nil
	}
	return p.varFile(name, auto)
}

// varFile finds the first of these files that sets a variable.
func (p *proposer) varFile(name string, list []string) (given, error) {
	for _, f := range list {
		src, there := p.Files[f]
		switch {
		case !there:
		case strings.HasSuffix(f, ".json"):
			if strings.Contains(string(src), `"`+name+`"`) {
				return given{where: f}, nil
			}
		default:
			t, err := p.file(f)
			if err != nil {
				return given{}, err
			}
			if t.body.Attributes[name] != nil {
				return given{f, t}, nil
			}
		}
	}
	return given{}, nil
}

// done notes an edit, or that another edit of the same place says another thing.
func (p *proposer) done(r drift.Resource, c change, file *text, at hcl.Range, what string, edited bool) (where, why string, err error) {
	if !edited {
		return placeOf(at), "Another edit is of the same place: accept it by itself, or edit it manually.", nil
	}
	p.out.Edits = append(p.out.Edits, Edit{Address: r.Address, Attribute: c.path, File: file.name, Line: at.Start.Line, What: what})
	return "", "", nil
}

// literal is the value of an expression without names and functions.
func literal(e hclsyntax.Expression) (cty.Value, bool) {
	switch e := e.(type) {
	case *hclsyntax.LiteralValueExpr, *hclsyntax.TemplateExpr, *hclsyntax.ObjectConsExpr, *hclsyntax.TupleConsExpr, *hclsyntax.UnaryOpExpr:
	case *hclsyntax.ParenthesesExpr:
		return literal(e.Expression)
	default:
		return cty.NilVal, false
	}
	if len(e.Variables()) > 0 {
		return cty.NilVal, false
	}
	v, diags := e.Value(nil)
	return v, !diags.HasErrors()
}

// short is a text on one line, cut.
func short(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > 80 {
		return string(r[:79]) + "…"
	}
	return text
}
