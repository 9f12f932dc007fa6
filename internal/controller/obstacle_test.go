package controller

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/stack"
)

// Every reason that an action may fail with is known. An unknown one would be shown as
// StartFailed, and a user would be told to call the operator of the platform.
func TestEveryReasonOfAnObstacleIsKnown(t *testing.T) {
	core := reasonsOfCore(t)
	var found []stack.Reason
	for _, dir := range []string{".", "states", "records", "modules", "../kube", "../runner", "../stack"} {
		for _, file := range sourceFiles(t, dir) {
			ast.Inspect(file, func(n ast.Node) bool {
				var says []ast.Expr
				switch n := n.(type) {
				case *ast.CallExpr: // fault.New(kind, reason, err) and fault.Reason(err, reason)
					if f, ok := n.Fun.(*ast.SelectorExpr); ok && named(f, "fault", "New", "Reason") && len(n.Args) > 1 {
						says = []ast.Expr{n.Args[1]}
					}
				case *ast.FuncDecl: // what is wrong with a state, which package states makes a fault of
					if n.Name.Name == "Judge" {
						says = returned(n)
					}
				}
				for _, e := range says {
					if r, ok := core[reasonIn(e)]; ok {
						found = append(found, r)
					}
				}
				return true
			})
		}
	}
	for _, r := range []stack.Reason{stack.StartFailed, stack.LockedByOther, stack.StateRegressed} {
		if !slices.Contains(found, r) {
			t.Errorf("the code has no obstacle %s: this test does not find the reasons any more", r)
		}
	}
	for _, r := range found {
		if !known(r) {
			t.Errorf("known(%s) = false: add it to known in act.go, and to the lists that tests name then", r)
		}
	}
}

// reasonsOfCore are the reasons of package stack by the names of their constants, and
// by their text.
func reasonsOfCore(t *testing.T) map[string]stack.Reason {
	t.Helper()
	all := map[string]stack.Reason{}
	for _, file := range sourceFiles(t, "../stack") {
		ast.Inspect(file, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 {
				if of, ok := v.Type.(*ast.Ident); ok && of.Name == "Reason" {
					text := literal(v.Values[0])
					all[v.Names[0].Name], all[strconv.Quote(text)] = stack.Reason(text), stack.Reason(text)
				}
			}
			return true
		})
	}
	return all
}

// reasonIn is the constant of package stack, or the quoted text, that e is.
func reasonIn(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.CallExpr: // string(stack.X)
		if len(e.Args) == 1 {
			return reasonIn(e.Args[0])
		}
	case *ast.SelectorExpr:
		if of, ok := e.X.(*ast.Ident); ok && of.Name == "stack" {
			return e.Sel.Name
		}
	case *ast.Ident: // in package stack itself
		return e.Name
	case *ast.BasicLit:
		return e.Value
	}
	return ""
}

// returned are the first results of a function.
func returned(f *ast.FuncDecl) []ast.Expr {
	var all []ast.Expr
	ast.Inspect(f, func(n ast.Node) bool {
		if r, ok := n.(*ast.ReturnStmt); ok && len(r.Results) > 0 {
			all = append(all, r.Results[0])
		}
		return true
	})
	return all
}

func named(f *ast.SelectorExpr, of string, names ...string) bool {
	x, ok := f.X.(*ast.Ident)
	return ok && x.Name == of && slices.Contains(names, f.Sel.Name)
}

func literal(e ast.Expr) string {
	if lit, ok := e.(*ast.BasicLit); ok {
		if text, err := strconv.Unquote(lit.Value); err == nil {
			return text
		}
	}
	return ""
}

func sourceFiles(t *testing.T, dir string) []*ast.File {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []*ast.File
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, e.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, file)
	}
	return all
}
