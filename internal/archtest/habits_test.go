package archtest

import (
	"go/ast"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// packagesHaveComments wants one on every package. That of a program begins
// with the program's name, which the import path may not show; any will do.
func packagesHaveComments(t tree) []problem {
	silent := map[string]problem{}
	spoken := map[string]bool{}
	for _, f := range t.code(func(f file) bool { return !f.isTest() }) {
		switch doc := strings.TrimSpace(f.syntax.Doc.Text()); {
		case strings.HasPrefix(doc, "Package "+f.syntax.Name.Name+" "), doc != "" && f.syntax.Name.Name == "main":
			spoken[f.dir()] = true
		case silent[f.dir()].file == "":
			silent[f.dir()] = t.at(f, f.syntax, "package %s has no comment", f.dir())
		}
	}
	maps.DeleteFunc(silent, func(dir string, _ problem) bool { return spoken[dir] })
	return slices.Collect(maps.Values(silent))
}

func noInit(t tree) []problem {
	var found []problem
	for _, f := range t.code() {
		for _, d := range f.syntax.Decls {
			if d, ok := d.(*ast.FuncDecl); ok && d.Recv == nil && d.Name.Name == "init" && !initFunctions.has(t, f.dir()) {
				found = append(found, t.at(f, d, "an init function"))
			}
		}
	}
	return found
}

func filesStayShort(t tree) []problem {
	const most = 600
	var found []problem
	for _, f := range t.code() {
		if n := strings.Count(f.text, "\n"); n > most {
			found = append(found, problem{f.path, most, "the file goes on for longer than 600 lines"})
		}
	}
	return found
}

// machinePath finds the directories of a developer's machine. The pattern is
// in pieces so that it does not find itself.
var machinePath = regexp.MustCompile(`(^|[^\w.])(/` + `root/|/` + `work/(main|shared|\.))`)

func noMachinePaths(t tree) []problem {
	var found []problem
	for _, f := range t.files {
		n := 0
		for line := range strings.Lines(f.text) {
			n++
			if m := machinePath.FindStringSubmatch(line); m != nil {
				found = append(found, problem{f.path, n, "names " + m[2]})
			}
		}
	}
	return found
}

func testsDoNotSleep(t tree) []problem {
	var found []problem
	for _, f := range t.code(file.isTest) {
		uses(f, "time", func(sel *ast.SelectorExpr) {
			if sel.Sel.Name == "Sleep" {
				found = append(found, t.at(f, sel, "sleeps"))
			}
		})
	}
	return found
}
