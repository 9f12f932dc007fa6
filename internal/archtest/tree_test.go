package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// module is the path of the main module. The modules below it (standalone,
// test/world, tools/…) are named by their directories, so that an import path
// of ours is always module/directory.
const module = "github.com/terrier-iac/terrier"

// tree is the source of the repository, all modules together.
type tree struct {
	fset    *token.FileSet
	files   []file          // by path
	excused map[string]bool // the exceptions that were needed so far
}

// file is one text file. Only Go files have syntax.
type file struct {
	path      string // from the root, with slashes
	text      string
	syntax    *ast.File
	generated bool
}

func (f file) dir() string { return path.Dir(f.path) }

func (f file) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

// isSupport says that a file only helps tests, without being one.
func (f file) isSupport() bool {
	return under(f.path, "internal/testkit", "test", "tools") || strings.HasSuffix(f.dir(), "test") && under(f.path, "internal")
}

// under says whether p is one of the directories or inside one.
func under(p string, dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return p == d || strings.HasPrefix(p, d+"/") })
}

// newTree parses what Go there is among the texts.
func newTree(texts map[string]string) (tree, error) {
	t := tree{fset: token.NewFileSet(), excused: map[string]bool{}}
	for _, p := range slices.Sorted(maps.Keys(texts)) {
		f := file{path: p, text: texts[p]}
		if path.Ext(p) == ".go" {
			syntax, err := parser.ParseFile(t.fset, p, f.text, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return tree{}, fmt.Errorf("parsing: %w", err)
			}
			f.syntax, f.generated = syntax, ast.IsGenerated(syntax)
		}
		t.files = append(t.files, f)
	}
	return t, nil
}

// code lists the Go files that people write and that pass all the filters.
func (t tree) code(keep ...func(file) bool) []file {
	return slices.DeleteFunc(slices.Clone(t.files), func(f file) bool {
		return f.syntax == nil || f.generated || slices.ContainsFunc(keep, func(k func(file) bool) bool { return !k(f) })
	})
}

// product keeps what ends up in a binary that we ship.
func product(f file) bool { return !f.isTest() && !f.isSupport() }

func (t tree) at(f file, n ast.Node, format string, args ...any) problem {
	return problem{file: f.path, line: t.fset.Position(n.Pos()).Line, text: fmt.Sprintf(format, args...)}
}

// problem is one place that breaks a rule.
type problem struct {
	file string
	line int
	text string
}

func (p problem) String() string { return fmt.Sprintf("%s:%d: %s", p.file, p.line, p.text) }

// imports lists the import specs of a file with their unquoted paths.
func imports(f file) map[string]*ast.ImportSpec {
	all := map[string]*ast.ImportSpec{}
	for _, s := range f.syntax.Imports {
		all[strings.Trim(s.Path.Value, `"`)] = s
	}
	return all
}

// uses calls found for every selector pkg.Name of an imported package.
func uses(f file, pkg string, found func(sel *ast.SelectorExpr)) {
	spec, ok := imports(f)[pkg]
	if !ok {
		return
	}
	local := path.Base(pkg)
	if spec.Name != nil {
		local = spec.Name.Name
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && isIdent(sel.X, local) {
			found(sel)
		}
		return true
	})
}

func isIdent(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

// repository reads the files that git knows or would add.
func repository(t *testing.T) tree {
	t.Helper()
	root := repositoryRoot(t)
	texts := map[string]string{}
	for p := range strings.SplitSeq(output(t, root, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"), "\x00") {
		if p == "" || path.Base(p) == "go.sum" || slices.Contains(strings.Split(p, "/"), "testdata") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, p))
		if os.IsNotExist(err) {
			continue // deleted, and not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "\x00") { // a picture
			texts[p] = string(text)
		}
	}
	all, err := newTree(texts)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func repositoryRoot(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func output(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	var stderr strings.Builder
	cmd.Dir, cmd.Stderr = dir, &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, &stderr)
	}
	return string(out)
}
