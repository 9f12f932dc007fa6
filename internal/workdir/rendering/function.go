package rendering

import (
	"strings"
	"text/template"

	"github.com/terrier-iac/terrier/internal/meter"
	"github.com/terrier-iac/terrier/internal/meter/library"
)

// functions are all that a template can call.
func (r *render) functions() template.FuncMap {
	fns := template.FuncMap{printed: r.print, meter.SpendName: r.Spend}
	for _, name := range library.Names() {
		fns[name] = r.wrap(name)
	}
	return fns
}

// wrap makes a function count what it is given, and keep foreign what is made
// of foreign text.
func (r *render) wrap(name string) func(...any) (any, error) {
	return func(args ...any) (any, error) {
		plain := make([]any, len(args))
		isForeign := false
		for i, a := range args {
			p, f, err := r.strip(a)
			if err != nil {
				return nil, err
			}
			plain[i], isForeign = p, isForeign || f
		}
		out, err := library.Call(&r.Budget, name, plain)
		switch {
		case err != nil:
			return nil, err
		case !isForeign:
			return out, nil
		case strings.HasSuffix(name, "uote"), strings.HasSuffix(name, "Json") && !strings.HasSuffix(strings.ToLower(name), "fromjson"):
			return r.expression(name, plain, out)
		default:
			return r.taint(out), nil
		}
	}
}
