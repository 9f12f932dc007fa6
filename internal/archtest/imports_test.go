package archtest

import (
	"go/ast"
	"slices"
	"strings"
)

// inCore keeps the files of the core that ship.
func inCore(f file) bool {
	_, l, _ := place(f.dir())
	return l == core && !f.isTest()
}

// coreForbids are the parts of the standard library that do I/O, or that answer
// differently each time.
var coreForbids = []string{
	"crypto/rand", "database/sql", "io/ioutil", "log", "math/rand", "net", "os", "plugin", "runtime", "syscall", "testing",
}

// coreAllows are the harmless ones below those.
var coreAllows = []string{"net/netip", "net/url"}

func coreImportsNothingForbidden(t tree) []problem {
	var found []problem
	for _, f := range t.code(inCore) {
		for p, spec := range imports(f) {
			standard := !strings.Contains(strings.Split(p, "/")[0], ".")
			fine := under(p, module) || standard && (!under(p, coreForbids...) || under(p, coreAllows...))
			unit, _, _ := place(f.dir())
			if !fine && !coreLibraries.has(t, unit+" → "+library(p)) {
				found = append(found, t.at(f, spec, "the core imports %s", p))
			}
		}
	}
	return found
}

// library is the part of an import path that names who publishes it:
// github.com/owner/name.
func library(importPath string) string {
	parts := strings.Split(importPath, "/")
	return strings.Join(parts[:min(3, len(parts))], "/")
}

func coreHasNoClock(t tree) []problem {
	clock := []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"}
	var found []problem
	for _, f := range t.code(inCore) {
		uses(f, "time", func(sel *ast.SelectorExpr) {
			if slices.Contains(clock, sel.Sel.Name) {
				found = append(found, t.at(f, sel, "the core uses time.%s", sel.Sel.Name))
			}
		})
	}
	return found
}

func kubernetesStaysPut(t tree) []problem {
	return importers(t, func(p string) bool {
		// sigs.k8s.io/yaml is a codec that links nothing else.
		return under(p, "k8s.io", "sigs.k8s.io", "github.com/fluxcd") && p != "sigs.k8s.io/yaml"
	}, func(f file) bool {
		// A test may set the scene in a cluster for a package that knows none.
		return f.isTest() || under(f.path, "api", "config", "standalone", "test", "tools", "internal/app", "internal/controller",
			"internal/dialect", "internal/tenantapi", "internal/policyapi", "internal/kube", "internal/pods", "internal/access", "internal/query", "internal/command", "internal/client", "internal/testkit",
			"internal/provision") // the backend kubernetes marks its states
	})
}

func controlPlaneStaysPut(t tree) []problem {
	heavy := []string{"k8s.io/kubernetes", "go.etcd.io/etcd"}
	found := importers(t, func(p string) bool { return under(p, heavy...) }, func(f file) bool {
		return under(f.path, "standalone")
	})
	for _, f := range t.files {
		if f.path != "go.mod" {
			continue
		}
		n := 0
		for line := range strings.Lines(f.text) {
			n++
			for _, field := range strings.Fields(line) {
				if under(field, heavy...) {
					found = append(found, problem{f.path, n, "the main module requires " + field})
				}
			}
		}
	}
	return found
}

func archivesOpenInArchive(t tree) []problem {
	var found []problem
	for _, f := range t.code(product) {
		if under(f.path, "internal/archive") {
			continue
		}
		for p, spec := range imports(f) {
			if under(p, "archive", "compress", "github.com/klauspost/compress") && !archiveImports.has(t, f.dir()+" → "+p) {
				found = append(found, t.at(f, spec, "imports %s", p))
			}
		}
	}
	return found
}

// yamlIsReadInPlainYAML finds conversions of YAML to values, by which a small text becomes a large
// one: each alias repeats what its anchor marks.
func yamlIsReadInPlainYAML(t tree) []problem {
	var found []problem
	for _, f := range t.code(product, func(f file) bool { return !under(f.path, "internal/plainyaml", "internal/testkit") }) {
		uses(f, "sigs.k8s.io/yaml", func(sel *ast.SelectorExpr) {
			if name := sel.Sel.Name; (strings.HasPrefix(name, "Unmarshal") || strings.HasPrefix(name, "YAMLToJSON")) && !yamlReaders.has(t, f.dir()) {
				found = append(found, t.at(f, sel, "reads with yaml.%s", name))
			}
		})
	}
	return found
}

func programsStartInSandbox(t tree) []problem {
	starters := map[string][]string{
		"os":                    {"StartProcess"},
		"syscall":               {"Exec", "ForkExec", "StartProcess"},
		"golang.org/x/sys/unix": {"Exec"},
	}
	elsewhere := func(f file) bool { return !under(f.path, "internal/sandbox") }
	found := importers(t, func(p string) bool { return p == "os/exec" }, func(f file) bool { return !elsewhere(f) }, product)
	for _, f := range t.code(product, elsewhere) {
		for pkg, names := range starters {
			uses(f, pkg, func(sel *ast.SelectorExpr) {
				if slices.Contains(names, sel.Sel.Name) {
					found = append(found, t.at(f, sel, "starts a program with %s.%s", pkg, sel.Sel.Name))
				}
			})
		}
	}
	return found
}

// requestsGoOutThroughOutbound finds the default client and the making of
// clients and transports. Naming the types is fine: that is how a client is
// handed in.
func requestsGoOutThroughOutbound(t tree) []problem {
	var found []problem
	for _, f := range t.code(product, func(f file) bool { return !under(f.path, "internal/outbound") }) {
		report := func(n ast.Node, what string) {
			if !outboundUses.has(t, f.dir()+" → "+what) {
				found = append(found, t.at(f, n, "uses %s", what))
			}
		}
		made := map[ast.Expr]bool{} // types of values that the file makes
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CompositeLit:
				made[n.Type] = true
			case *ast.ValueSpec: // var c http.Client
				made[n.Type] = true
			case *ast.CallExpr: // new(http.Client)
				if isIdent(n.Fun, "new") && len(n.Args) == 1 {
					made[n.Args[0]] = true
				}
			}
			return true
		})
		uses(f, "net/http", func(sel *ast.SelectorExpr) {
			switch name := sel.Sel.Name; name {
			case "Get", "Head", "Post", "PostForm", "DefaultClient", "DefaultTransport":
				report(sel, "http."+name)
			case "Client", "Transport":
				if made[sel] {
					report(sel, "http."+name+"{}")
				}
			}
		})
	}
	return found
}
