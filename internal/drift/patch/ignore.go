package patch

import (
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/terrier-iac/terrier/internal/drift"
)

// ignore has the engine ignore attributes of a resource from now on.
func (p *proposer) ignore(r drift.Resource, b *block) {
	var names []string
	for _, a := range r.Attributes {
		steps, ok := parsePath(a.Path)
		if !ok {
			p.open(r, a.Path, b.place(), "Its path cannot be read.")
			continue
		}
		// The engine takes whole attributes and entries of maps; of lists and blocks it takes
		// elements only by their number, which moves.
		name := steps[0].name
		if len(steps) > 1 && steps[1].number < 0 && !steps[1].json {
			name = pathOf(steps[:2])
			if attr := b.syntax.Body.Attributes[steps[0].name]; attr == nil {
				name = steps[0].name // an attribute that is not set is no map to the engine
			}
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return
	}
	edited, where := true, b
	if blocks := b.nested("lifecycle"); len(blocks) > 0 {
		where = blocks[0]
		switch attr := where.syntax.Body.Attributes["ignore_changes"]; {
		case attr == nil:
			edited = where.add("ignore_changes = [" + strings.Join(names, ", ") + "]")
		default:
			list, ok := attr.Expr.(*hclsyntax.TupleConsExpr)
			if !ok {
				p.open(r, strings.Join(names, ", "), where.place(), "ignore_changes is no list here: edit it manually.")
				return
			}
			for _, e := range list.Exprs {
				names = slices.DeleteFunc(names, func(n string) bool { return n == where.file.quote(e.Range()) })
			}
			text, end := strings.Join(names, ", "), list.SrcRange.End.Byte-1
			if n := len(list.Exprs); n > 0 {
				text, end = ", "+text, list.Exprs[n-1].Range().End.Byte
			}
			edited = len(names) == 0 || where.file.splice(splice{end, end, text})
		}
	} else {
		edited = b.add("", "lifecycle {", "  ignore_changes = ["+strings.Join(names, ", ")+"]", "}")
	}
	for _, a := range r.Attributes {
		_, why, _ := p.done(r, change{path: a.Path}, where.file, where.syntax.DefRange(), "the engine ignores its changes from now on", edited)
		if why != "" {
			p.open(r, a.Path, where.place(), "%s", why)
		}
	}
}
