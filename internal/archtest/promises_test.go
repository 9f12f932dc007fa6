package archtest

import (
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
)

// quotedTest is a test as documents name it: `TestX`, `TestX/a case`, `…/a case`.
var quotedTest = regexp.MustCompile("`(Test[A-Z][A-Za-z0-9_]*)[^`]*`")

// namedTestsExist: a document that says what holds a promise must not outlive
// the test.
func namedTestsExist(t tree) []problem {
	there := map[string]bool{}
	for _, f := range t.code(file.isTest) {
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				there[fn.Name.Name] = true
			}
		}
	}
	var all []problem
	for _, f := range t.files {
		if path.Ext(f.path) != ".md" {
			continue
		}
		line := 0
		for text := range strings.Lines(f.text) {
			line++
			for _, m := range quotedTest.FindAllStringSubmatch(text, -1) {
				if !there[m[1]] {
					all = append(all, problem{file: f.path, line: line, text: "there is no test " + m[1]})
				}
			}
		}
	}
	return all
}

// mapShowsEveryPackage: the layout in docs/architecture.md names every package
// below internal, and no other. A conformance suite is named with its package.
func mapShowsEveryPackage(t tree) []problem {
	const page = "docs/architecture.md"
	there := map[string]ast.Node{}
	in := map[string]file{}
	for _, f := range t.code(product) {
		if dir, ok := strings.CutPrefix(f.dir(), "internal/"); ok && there[dir] == nil {
			there[dir], in[dir] = f.syntax, f
		}
	}
	shown, found := map[string]bool{}, []problem{}
	for _, f := range t.files {
		if f.path != page {
			continue
		}
		var above []string // the directories that the indentation is in
		inside, line := false, 0
		for text := range strings.Lines(f.text) {
			line++
			inside = (inside || text == "internal/\n") && !strings.HasPrefix(text, "```")
			m := mapEntry.FindStringSubmatch(text)
			if !inside || m == nil {
				continue
			}
			depth := len(m[1])/2 - 1
			above = append(above[:min(depth, len(above))], m[2])
			dir := path.Join(above...)
			shown[dir] = true
			if there[dir] == nil && !under(dir, "archtest", "testkit") {
				found = append(found, problem{page, line, "there is no package internal/" + dir})
			}
		}
	}
	for dir, n := range there {
		if !shown[dir] {
			found = append(found, t.at(in[dir], n, "internal/%s is not in the layout of %s", dir, page))
		}
	}
	return found
}

// mapEntry is a line of the layout: "  stack/    what it is".
var mapEntry = regexp.MustCompile(`^((?:  )+)([a-z/]+)/ +\S`)

// oldNamesAreRead: code has every new name of the list, and every old name that
// the list says is read or written.
func oldNamesAreRead(t tree) []problem {
	var found []problem
	for _, f := range t.files {
		if f.path != "docs/compatibility.md" {
			continue
		}
		inside, line := false, 0
		for text := range strings.Lines(f.text) {
			line++
			if strings.HasPrefix(text, "## ") {
				inside = text == "## Names that changed\n"
			}
			m := renamed.FindStringSubmatch(text)
			if !inside || m == nil {
				continue
			}
			names := m[2:3]
			if !strings.HasPrefix(m[3], "no longer") {
				names = m[1:3]
			}
			for _, name := range names {
				if !slices.ContainsFunc(t.files, func(c file) bool {
					return path.Ext(c.path) != ".md" && product(c) && strings.Contains(c.text, name)
				}) {
					found = append(found, problem{f.path, line, "no code has " + name})
				}
			}
		}
	}
	return found
}

// renamed is a row of that document: | `old` | `new` | of | read |.
var renamed = regexp.MustCompile("^\\| `([^`]+)` \\| `([^`]+)` \\| [^|]+ \\| ([^|]+) \\|")

// linksLeadSomewhere: a link of a document to a file of the repository, or to a
// heading, finds it.
func linksLeadSomewhere(t tree) []problem {
	anchors := map[string]map[string]bool{}
	for _, f := range t.files {
		anchors[f.path] = nil
		if path.Ext(f.path) != ".md" {
			continue
		}
		anchors[f.path] = map[string]bool{}
		for text := range strings.Lines(f.text) {
			if m := heading.FindStringSubmatch(text); m != nil {
				anchors[f.path][slug(m[1])] = true
			}
			for _, m := range anchor.FindAllStringSubmatch(text, -1) {
				anchors[f.path][m[1]] = true
			}
		}
	}
	var found []problem
	for _, f := range t.files {
		if path.Ext(f.path) != ".md" {
			continue
		}
		line := 0
		for text := range strings.Lines(f.text) {
			line++
			for _, m := range link.FindAllStringSubmatch(text, -1) {
				to, at, _ := strings.Cut(m[1], "#")
				if strings.Contains(to, ":") || path.Ext(to) == ".png" {
					continue
				}
				target := f.path
				if to != "" {
					target = path.Join(f.dir(), to)
				}
				there, ok := anchors[target]
				ok = ok || slices.ContainsFunc(t.files, func(c file) bool { return under(c.path, target) })
				if !ok || at != "" && there != nil && !there[at] {
					found = append(found, problem{f.path, line, "nothing is at " + m[1]})
				}
			}
		}
	}
	return found
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`^#+ (.+?)\s*$`)
	anchor  = regexp.MustCompile(`<a id="([^"]+)"`)
	noSlug  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// slug is the anchor that a heading gets.
func slug(text string) string {
	return strings.ReplaceAll(noSlug.ReplaceAllString(strings.ToLower(text), ""), " ", "-")
}

// namedFilesExist: a document that names a Go file must not outlive it. A name
// without a directory is that of any file.
func namedFilesExist(t tree) []problem {
	var found []problem
	for _, f := range t.files {
		if path.Ext(f.path) != ".md" {
			continue
		}
		line := 0
		for text := range strings.Lines(f.text) {
			line++
			for _, m := range goFile.FindAllStringSubmatch(text, -1) {
				if !slices.ContainsFunc(t.files, func(c file) bool { return strings.HasSuffix("/"+c.path, "/"+m[1]) }) {
					found = append(found, problem{f.path, line, "there is no file " + m[1]})
				}
			}
		}
	}
	return found
}

var goFile = regexp.MustCompile("(?:^|[\\s(`])((?:[a-z0-9_]+/)*[a-z0-9_]+\\.go)\\b")
