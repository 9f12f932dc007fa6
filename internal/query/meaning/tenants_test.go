package meaning_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/query/meaning"
)

// Whatever reason a registry, a row, a template, a tenant or an object of one
// can have is explained.
func TestEveryReasonOfTenantsIsExplained(t *testing.T) {
	reason := regexp.MustCompile(`^[A-Z][a-z]+([A-Z][A-Za-z]+)*$`)
	count := 0
	for file, chosen := range map[string]func(name string) bool{
		"../../tenant/life.go":                        func(name string) bool { return true },
		"../../tenant/guard.go":                       func(string) bool { return true },
		"../../tenant/rows.go":                        func(name string) bool { return strings.HasPrefix(name, "Row") },
		"../../controller/tenants/registry_report.go": func(name string) bool { return strings.HasPrefix(name, "reason") },
		"../../controller/tenants/template_report.go": func(name string) bool { return strings.HasPrefix(name, "reason") },
	} {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, spec := range g.Specs {
				v, ok := spec.(*ast.ValueSpec)
				if !ok || v.Type != nil || len(v.Values) != 1 || !chosen(v.Names[0].Name) {
					continue // typed constants are states
				}
				l, ok := v.Values[0].(*ast.BasicLit)
				if !ok || l.Kind != token.STRING {
					continue
				}
				text, err := strconv.Unquote(l.Value)
				if err != nil || !reason.MatchString(text) {
					continue
				}
				count++
				if meaning.OfTenant(text).Means == "" {
					t.Errorf("%s (%s) is not explained", text, file)
				}
			}
		}
	}
	if count < 40 {
		t.Errorf("only %d reasons were found", count)
	}
	for _, words := range meaning.TenantReasons() {
		for name, s := range words.Of {
			if s.Means == "" || !strings.HasSuffix(s.Means, ".") {
				t.Errorf("%s means %q, want a sentence", name, s.Means)
			}
		}
	}
}
