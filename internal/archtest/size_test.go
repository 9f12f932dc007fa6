package archtest

import (
	"go/ast"
	"go/types"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// What a reader can hold in mind.
const (
	mostMethods = 25
	mostFiles   = 40
)

// byPackage groups files by their directory.
func byPackage(files []file) map[string][]file {
	all := map[string][]file{}
	for _, f := range files {
		all[f.dir()] = append(all[f.dir()], f)
	}
	return all
}

func notTest(f file) bool { return !f.isTest() }

func typesStaySmall(t tree) []problem {
	var found []problem
	for dir, files := range byPackage(t.code(notTest)) {
		methods := map[string][]problem{}
		for _, f := range files {
			for _, d := range f.syntax.Decls {
				if d, ok := d.(*ast.FuncDecl); ok && d.Recv != nil {
					name := receiver(d)
					methods[name] = append(methods[name], t.at(f, d, "type %s has more than %d methods", name, mostMethods))
				}
			}
		}
		for name, of := range methods {
			if len(of) > mostMethods && !largeTypes.has(t, dir+"."+name) {
				found = append(found, of[mostMethods])
			}
		}
	}
	return found
}

// receiver is the name of the type that a method belongs to.
func receiver(d *ast.FuncDecl) string {
	e := d.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

func packagesStaySmall(t tree) []problem {
	var found []problem
	for dir, files := range byPackage(t.code(notTest)) {
		if len(files) > mostFiles && !largePackages.has(t, dir) {
			f := files[mostFiles]
			found = append(found, t.at(f, f.syntax, "package %s has %d files that are not tests", dir, len(files)))
		}
	}
	return found
}

// decidesOnce wants one place in the controller that asks stack.Decide.
func decidesOnce(t tree) []problem {
	var calls []problem
	for _, f := range t.code(product, func(f file) bool { return f.dir() == "internal/controller" }) {
		uses(f, module+"/internal/stack", func(sel *ast.SelectorExpr) {
			if sel.Sel.Name == "Decide" && !laterDecisions.has(t, path.Base(f.path)) {
				calls = append(calls, t.at(f, sel, "decides"))
			}
		})
	}
	if len(calls) < 2 {
		return nil
	}
	return calls
}

// recordKey is the beginning of a key of internal/record.
var recordKey = regexp.MustCompile(`^(stacks|retained|trees|overflow|notices|sessions)/`)

// recordKeysAreMadeInRecord finds texts that begin as keys do and go on with
// something else.
func recordKeysAreMadeInRecord(t tree) []problem {
	var found []problem
	for _, f := range t.code(product, func(f file) bool { return !under(f.path, "internal/record") }) {
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			var parts []ast.Expr
			switch n := n.(type) {
			case *ast.BinaryExpr:
				parts = []ast.Expr{n.X}
			case *ast.CallExpr:
				parts = n.Args
			case *ast.ValueSpec:
				parts = n.Values
			}
			for _, p := range parts {
				lit, ok := p.(*ast.BasicLit)
				if !ok {
					continue
				}
				text, err := strconv.Unquote(lit.Value)
				if _, sum := n.(*ast.BinaryExpr); err == nil && recordKey.MatchString(text) && (sum || strings.HasSuffix(text, "/") || strings.Contains(text, "%")) {
					found = append(found, t.at(f, lit, "makes a key of a record: %s", lit.Value))
				}
			}
			return true
		})
	}
	return found
}

// writers are the methods by which the controller changes anything outside of
// itself, by the interface or the package that has them, in lower case.
var writers = []string{
	"records.Put", "records.Keep", "records.KeepTree", "records.RestoreTree", "records.Drop", "records.DropOthers", "records.Sweep",
	"states.Start", "states.Settle", "states.Flush", "locks.Take",
	"blobs.Put", "blobs.Delete", "record.Write",
	"cache.Create", "cache.Update", "cache.Patch", "cache.Delete", "live.Create", "live.Update", "live.Patch", "live.Delete", "live.Status", "cache.Status",
	"store.Save", "store.Lock", "store.Unlock",
	"runner.Start", "runner.Cancel", "runner.Forget",
	"events.Event", "journal.Record",
}

// observers are the files of the controller that only read, by their directory and
// the beginning of their names.
var observers = map[string]string{"internal/controller": "observe", "internal/controller/states": "inspect"}

// observingWritesNothing follows the calls from the functions of the observers
// through their package, and finds those that write.
func observingWritesNothing(t tree) []problem {
	var found []problem
	for _, dir := range slices.Sorted(maps.Keys(observers)) {
		found = append(found, observerWritesNothing(t, dir, observers[dir])...)
	}
	return found
}

func observerWritesNothing(t tree, dir, name string) []problem {
	files := t.code(product, func(f file) bool { return f.dir() == dir })
	if len(files) == 0 {
		return nil
	}
	graph := callsOf(t, files)
	var found []problem
	from := map[string]string{} // a function that is reached, and by which
	var queue []string
	for _, fn := range slices.Sorted(maps.Keys(graph)) {
		if strings.HasPrefix(path.Base(graph[fn].file.path), name) {
			queue, from[fn] = append(queue, fn), ""
		}
	}
	if len(queue) == 0 {
		return []problem{t.at(files[0], files[0].syntax, "no file of %s is named %s", dir, name)}
	}
	for len(queue) > 0 {
		name := queue[0]
		queue = queue[1:]
		for _, w := range graph[name].writes {
			if !observingWrites.has(t, path.Base(graph[name].file.path)) {
				way := name
				for by := from[name]; by != ""; by = from[by] {
					way = by + " → " + way
				}
				found = append(found, t.at(graph[name].file, w, "observing writes: %s", way))
			}
		}
		for _, next := range graph[name].calls {
			if _, known := from[next]; !known && graph[next].file.syntax != nil {
				from[next] = name
				queue = append(queue, next)
			}
		}
	}
	return found
}

// called is what one function of a package does.
type called struct {
	file   file
	calls  []string // functions of the same package
	writes []ast.Node
}

func callsOf(t tree, files []file) map[string]called {
	_, info := resolve(t.fset, files)
	graph := map[string]called{}
	for _, f := range files {
		for _, d := range f.syntax.Decls {
			d, ok := d.(*ast.FuncDecl)
			if !ok || d.Body == nil {
				continue
			}
			c := called{file: f}
			ast.Inspect(d.Body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.Ident:
					if fn, ok := info.Uses[n].(*types.Func); ok {
						c.calls = append(c.calls, nameOf(fn))
					}
				case *ast.CallExpr:
					if writes(n) {
						c.writes = append(c.writes, n)
					}
				}
				return true
			})
			name := d.Name.Name
			if d.Recv != nil {
				name = receiver(d) + "." + name
			}
			graph[name] = c
		}
	}
	return graph
}

// nameOf is the name of a function, with that of the type that it belongs to.
func nameOf(fn *types.Func) string {
	recv := fn.Signature().Recv()
	if recv == nil {
		return fn.Name()
	}
	of := recv.Type()
	if p, ok := of.(*types.Pointer); ok {
		of = p.Elem()
	}
	if named, ok := of.(*types.Named); ok {
		return named.Obj().Name() + "." + fn.Name()
	}
	return fn.Name()
}

// writes reports whether a call is one of writers, or writes a record.
func writes(call *ast.CallExpr) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	switch x := sel.X.(type) {
	case *ast.Ident:
		return slices.Contains(writers, strings.ToLower(x.Name)+"."+sel.Sel.Name)
	case *ast.SelectorExpr:
		return slices.Contains(writers, strings.ToLower(x.Sel.Name)+"."+sel.Sel.Name)
	case *ast.CallExpr: // record.Decisions(uid).Write(…)
		return sel.Sel.Name == "Write" && len(call.Args) == 3
	}
	return false
}
