package archtest

import (
	"go/ast"
	"path"
	"regexp"
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
