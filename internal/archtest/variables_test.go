package archtest

import (
	"errors"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
)

// noVariablesThatChange finds package variables that are assigned to, in whole
// or in part, or that are of a type made for changing. What a method changes
// behind a pointer it does not see.
func noVariablesThatChange(t tree) []problem {
	packages := map[string][]file{}
	for _, f := range t.code(product) {
		packages[f.dir()] = append(packages[f.dir()], f)
	}
	var found []problem
	for _, files := range packages {
		found = append(found, changedVariables(t, files)...)
	}
	return found
}

func changedVariables(t tree, files []file) []problem {
	var found []problem
	report := func(f file, n ast.Node, name, how string) {
		if !mutableVariables.has(t, f.dir()+"."+name) {
			found = append(found, t.at(f, n, "package variable %s %s", name, how))
		}
	}
	pkg, info := resolve(t.fset, files)
	for _, f := range files {
		for _, spec := range variables(f) {
			if changes := changingType(spec); changes != "" {
				report(f, spec, spec.Names[0].Name, "is a "+changes)
			}
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			for _, target := range targets(n) {
				id := root(target)
				if id == nil {
					continue
				}
				if v, ok := info.Uses[id].(*types.Var); ok && v.Parent() == pkg.Scope() {
					report(f, n, id.Name, "is assigned to")
				}
			}
			return true
		})
	}
	return found
}

// resolve finds what each identifier means inside one package. Imports are not
// followed: nothing here depends on them, and the errors do not matter.
func resolve(fset *token.FileSet, files []file) (*types.Package, *types.Info) {
	var syntax []*ast.File
	for _, f := range files {
		syntax = append(syntax, f.syntax)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: noImports{}, Error: func(error) {}}
	pkg, _ := conf.Check(files[0].dir(), fset, syntax, info)
	return pkg, info
}

type noImports struct{}

func (noImports) Import(string) (*types.Package, error) {
	return nil, errors.New("imports are not followed")
}

// variables lists the package-level variable declarations of a file.
func variables(f file) []*ast.ValueSpec {
	var all []*ast.ValueSpec
	for _, d := range f.syntax.Decls {
		if d, ok := d.(*ast.GenDecl); ok && d.Tok == token.VAR {
			for _, s := range d.Specs {
				all = append(all, s.(*ast.ValueSpec))
			}
		}
	}
	return all
}

// changingType names the type of a variable if it is one of package sync or
// sync/atomic.
func changingType(spec *ast.ValueSpec) string {
	t := spec.Type
	if t == nil && len(spec.Values) == 1 {
		if lit, ok := spec.Values[0].(*ast.CompositeLit); ok {
			t = lit.Type
		}
	}
	if index, ok := t.(*ast.IndexExpr); ok { // atomic.Pointer[T]
		t = index.X
	}
	if sel, ok := t.(*ast.SelectorExpr); ok && (isIdent(sel.X, "sync") || isIdent(sel.X, "atomic")) {
		return sel.X.(*ast.Ident).Name + "." + sel.Sel.Name
	}
	return ""
}

// targets lists what a statement writes to.
func targets(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			return n.Lhs
		}
	case *ast.IncDecStmt:
		return []ast.Expr{n.X}
	case *ast.RangeStmt:
		if n.Tok == token.ASSIGN {
			return slices.DeleteFunc([]ast.Expr{n.Key, n.Value}, func(e ast.Expr) bool { return e == nil })
		}
	case *ast.CallExpr:
		if id, ok := n.Fun.(*ast.Ident); ok && slices.Contains([]string{"clear", "copy", "delete"}, id.Name) && len(n.Args) > 0 {
			return n.Args[:1]
		}
	}
	return nil
}

// root is the variable that an expression writes into: x of x.f[i].
func root(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.IndexExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		case *ast.SelectorExpr:
			e = x.X
		case *ast.SliceExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		default:
			return nil
		}
	}
}
