package module

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// Reach is the part of a source that a root module can depend on.
type Reach struct {
	// Dirs are directories of the source that count with everything below: that of the
	// root module, and those of the local modules that it calls, directly or not.
	Dirs []string

	// Whole says why the whole source counts, with the file and the line; empty if it does not.
	Whole string
}

// mostModules bounds how many local modules are followed.
const mostModules = 500

// sourceRoot stands for the root of the source in paths that are evaluated.
const sourceRoot = "/\x00source"

// readers are the functions of the engine that read files, and whether a file that is not
// there is an answer: a run without the file fails with the others, and so tells it.
var readers = map[string]bool{
	"file": false, "filebase64": false, "filebase64sha256": false, "filebase64sha512": false, "filemd5": false,
	"filesha1": false, "filesha256": false, "filesha512": false, "templatefile": false,
	"fileexists": true, "fileset": true,
}

// ReachOf finds what the root module in a directory of a tree can depend on. It follows calls
// of local modules, and looks at the paths that functions read files by. A path may be
// written with path.module, path.root, path.cwd and constant locals. One that leads out of
// Dirs, or of which that cannot be told, makes the whole source count, as do configuration in
// JSON and modules that cannot be parsed.
func ReachOf(tree fs.FS, root string) Reach {
	root = path.Clean(strings.TrimPrefix(root, "/"))
	r := &reaching{tree: tree, root: root, left: maxTotal, seen: map[string]bool{}}
	for r.queue = []string{root}; len(r.queue) > 0 && r.whole == ""; {
		dir := r.queue[0]
		r.queue = r.queue[1:]
		if !r.seen[dir] {
			r.seen[dir] = true
			r.module(dir)
		}
	}
	for _, ref := range r.refs {
		if r.whole == "" && !r.holds(ref.path) {
			r.whole = fmt.Sprintf("%s: %s reads %q, which is outside of %s", ref.at, ref.function, ref.path, strings.Join(r.dirs, ", "))
		}
	}
	return Reach{Dirs: r.dirs, Whole: r.whole}
}

// reaching is one ReachOf.
type reaching struct {
	tree  fs.FS
	root  string
	left  int64
	queue []string
	seen  map[string]bool
	dirs  []string
	refs  []reference
	whole string
}

// reference is a path in the source that a function reads.
type reference struct{ at, function, path string }

func (r *reaching) all(format string, args ...any) {
	if r.whole == "" {
		r.whole = fmt.Sprintf(format, args...)
	}
}

// holds reports whether a path is in one of the directories.
func (r *reaching) holds(name string) bool {
	return slices.ContainsFunc(r.dirs, func(dir string) bool { return dir == "." || name == dir || strings.HasPrefix(name, dir+"/") })
}

// module reads one module.
func (r *reaching) module(dir string) {
	if !r.holds(dir) {
		r.dirs = append(r.dirs, dir)
	}
	if len(r.seen) > mostModules {
		r.all("%s: there are more than %d local modules", dir, mostModules)
		return
	}
	entries, err := fs.ReadDir(r.tree, dir)
	if err != nil {
		r.all("the directory %q cannot be read", dir)
		return
	}
	var bodies []*hclsyntax.Body
	for _, name := range configurationOfBoth(names(entries)) {
		full := path.Join(dir, name)
		if strings.HasSuffix(name, ".json") {
			r.all("%s: Terrier does not look for paths in configuration that is JSON", full)
			return
		}
		src, err := readFile(r.tree, full, min(r.left, maxFile))
		if err != nil {
			r.all("%s: it cannot be read", full)
			return
		}
		r.left -= int64(len(src))
		body, err := parse(full, src)
		syntax, ok := body.(*hclsyntax.Body)
		if err != nil || !ok {
			r.all("%s: it cannot be parsed", full)
			return
		}
		bodies = append(bodies, syntax)
	}
	scope := r.scope(dir, bodies)
	for _, body := range bodies {
		r.body(dir, body, scope)
	}
}

// configurationOfBoth are the files that either engine reads.
func configurationOfBoth(all []string) []string {
	extensions := []string{".tf", ".tofu", ".tf.json", ".tofu.json"}
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool {
		return !slices.ContainsFunc(extensions, func(ext string) bool { return strings.HasSuffix(name, ext) })
	})
}

// scope has what paths may be written with.
func (r *reaching) scope(dir string, bodies []*hclsyntax.Body) *hcl.EvalContext {
	place := func(dir string) cty.Value { return cty.StringVal(path.Join(sourceRoot, dir)) }
	ctx := &hcl.EvalContext{Variables: map[string]cty.Value{
		"path": cty.ObjectVal(map[string]cty.Value{"module": place(dir), "root": place(r.root), "cwd": place(r.root)}),
	}}
	constant := map[string]cty.Value{}
	for range 3 { // a local may be written with others
		for _, body := range bodies {
			for _, b := range body.Blocks {
				if b.Type != "locals" {
					continue
				}
				for name, a := range b.Body.Attributes {
					if v, diags := a.Expr.Value(ctx); !diags.HasErrors() && v.Type() == cty.String && v.IsKnown() && !v.IsNull() {
						constant[name] = v
					}
				}
			}
		}
		if len(constant) == 0 {
			break
		}
		ctx.Variables["local"] = cty.ObjectVal(constant)
	}
	return ctx
}

// body looks at the module calls and functions of one file.
func (r *reaching) body(dir string, body *hclsyntax.Body, scope *hcl.EvalContext) {
	for _, b := range body.Blocks {
		if b.Type == "module" {
			r.call(dir, b, scope)
		}
	}
	_ = hclsyntax.VisitAll(body, func(n hclsyntax.Node) hcl.Diagnostics { // never an error
		if call, ok := n.(*hclsyntax.FunctionCallExpr); ok {
			r.function(call, scope)
		}
		return nil
	})
}

// call follows the call of a local module.
func (r *reaching) call(dir string, b *hclsyntax.Block, scope *hcl.EvalContext) {
	source, ok := b.Body.Attributes["source"]
	if !ok {
		return // the engine refuses it
	}
	text, ok := constantText(source.Expr, scope)
	if !ok {
		r.all("%s: the source of the module is not constant", where(source.SrcRange))
		return
	}
	if strings.HasPrefix(text, sourceRoot) || strings.HasPrefix(text, "/") {
		r.all("%s: the source of the module is an absolute path", where(source.SrcRange))
		return
	}
	if text != "." && text != ".." && !strings.HasPrefix(text, "./") && !strings.HasPrefix(text, "../") {
		return // it is from elsewhere, with a version of its own
	}
	target := path.Join(dir, text)
	if !fs.ValidPath(target) {
		r.all("%s: the module %q is outside of the source", where(source.SrcRange), text)
		return
	}
	r.queue = append(r.queue, target)
}

// function looks at the path that a function reads by.
func (r *reaching) function(call *hclsyntax.FunctionCallExpr, scope *hcl.EvalContext) {
	name := strings.TrimPrefix(call.Name, "core::")
	absenceAnswers, ok := readers[name]
	if !ok || len(call.Args) == 0 {
		return
	}
	at := where(call.Range())
	text, constant := constantText(call.Args[0], scope)
	if !constant {
		prefix := constantPrefix(call.Args[0], scope)
		slash := strings.LastIndexByte(prefix, '/')
		if absenceAnswers || slash < 0 {
			r.all("%s: the path that %s reads is not constant", at, name)
			return
		}
		text = prefix[:slash]
	}
	if name == "fileset" && len(call.Args) > 1 {
		pattern, known := constantText(call.Args[1], scope)
		if !known || slices.Contains(strings.Split(pattern, "/"), "..") {
			r.all("%s: the pattern of fileset may lead out of its directory", at)
			return
		}
	}
	if in, ok := r.inSource(text); ok {
		r.refs = append(r.refs, reference{at, name, in})
	}
}

// inSource is a path of the source; none if it is of the machine that runs the engine.
func (r *reaching) inSource(text string) (string, bool) {
	if !path.IsAbs(text) && !strings.HasPrefix(text, "~") {
		text = sourceRoot + "/" + path.Join(r.root, text) // the engine works in the root module
	}
	below, ok := strings.CutPrefix(text, sourceRoot)
	if !ok {
		return "", false
	}
	// Not cleaned as an absolute path: one that climbs out of the source keeps its dots.
	return path.Join(".", strings.TrimPrefix(below, "/")), true
}

func constantText(e hcl.Expression, scope *hcl.EvalContext) (string, bool) {
	v, diags := e.Value(scope)
	if diags.HasErrors() || v.IsNull() || !v.IsKnown() || v.IsMarked() || v.Type() != cty.String {
		return "", false
	}
	return v.AsString(), true
}

// constantPrefix is what a template begins with before its first part that is not constant.
func constantPrefix(e hcl.Expression, scope *hcl.EvalContext) string {
	t, ok := e.(*hclsyntax.TemplateExpr)
	if !ok {
		return ""
	}
	prefix := ""
	for _, part := range t.Parts {
		text, ok := constantText(part, scope)
		if !ok {
			break
		}
		prefix += text
	}
	return prefix
}

func where(r hcl.Range) string { return fmt.Sprintf("%s:%d", r.Filename, r.Start.Line) }
