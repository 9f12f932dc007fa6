package archtest

import (
	"path"
	"slices"
	"strings"
)

// layer is a storey of the house; see docs/architecture.md.
type layer string

const (
	core       layer = "core"       // decides; no I/O, no clock, no Kubernetes
	ground     layer = "ground"     // opens archives, sends requests, starts programs: once for all edges
	wire       layer = "api"        // wire types, and the files that describe or show them
	edge       layer = "edge"       // one outside thing each
	controller layer = "controller" // observe, decide, act, report
	access     layer = "access"     // who a user is, and what that user may do
	query      layer = "query"      // what a user asks
	command    layer = "command"    // what a user commands
	client     layer = "client"     // both of them over HTTP
	outside    layer = "outside"    // speaks to people and programs
	wiring     layer = "app"        // puts everything together
	program    layer = "cmd"        // mains
	support    layer = "test"       // helps tests, and may use everything
)

// layerOf holds every package of internal/, by its first directory.
var layerOf = map[string]layer{
	"cache": core, "record": ground, "input": edge, "review": edge,
	"address": core, "afterapply": core, "backend": core, "drift": core, "externalsecret": core, "fault": core, "graph": core, "identity": core, "inventory": core, "location": core, "meter": core, "plainyaml": core, "plan": core, "plural": core, "policy": core, "prerequisite": core, "scan": core, "schedule": core, "sealed": core, "secret": core, "shard": core, "share": core, "stack": core, "tenant": core, "workdir": core,
	"archive": ground, "encryption": ground, "failpoint": ground, "machine": ground, "outbound": ground, "sandbox": ground,
	"audit": edge, "blob": edge, "dialect": edge, "engine": edge, "image": edge, "issuer": edge, "kube": edge, "notify": edge, "peers": edge, "pods": edge, "policyapi": edge, "provision": edge, "registry": edge, "rows": edge, "runner": edge, "source": edge, "tenantapi": edge, "vault": edge,
	"controller": controller, "access": access, "query": query, "command": command, "client": client,
	"cli": outside, "web": outside,
	"app":      wiring,
	"archtest": support, "testkit": support,
}

// below says what a layer may import, besides the package's own directories.
var below = map[layer][]layer{
	core:       {core},
	ground:     {core},
	wire:       {wire},
	edge:       {core, ground},
	controller: {core, ground, edge, wire},
	access:     {core, ground, edge, wire},
	query:      {core, ground, edge, wire, access},
	command:    {core, ground, edge, wire, access, query},
	client:     {core, ground, edge, wire, access, query, command},
	outside:    {core, ground, access, query, command, client},
	wiring:     {core, ground, edge, wire, controller, access, query, command, client, outside},
	program:    {core, ground, edge, wire, controller, access, query, command, client, outside, wiring},
	support:    {core, ground, edge, wire, controller, access, query, command, client, outside, wiring, support},
}

// beside are the arrows that point sideways.
var beside = map[string][]string{
	// Images are pushed with the credentials for registries that sources are fetched with.
	"internal/image":  {"internal/source"},
	"internal/runner": {"internal/engine"}, // the supervisor drives the engine inside its own process
	// Pods keep the contract of package runner by means of a cluster, and terrier-runner
	// links no Kubernetes. A Job of a cluster builds the image of a Dockerfile.
	"internal/pods": {"internal/runner", "internal/kube", "internal/image"},
	// What makes buckets has the identities and the clients of the clouds.
	"internal/provision": {"internal/blob"},
	// Archives and indexes are kept by key, and replaced only if they are what was read.
	// Modules come from tags of git repositories, which are fetched as sources are.
	"internal/registry": {"internal/blob", "internal/source"},
	// A dialect maps the types of api, writes conditions and events the way all our
	// objects do, and knows which kinds of sources its objects may name.
	"internal/dialect":   {"internal/kube", "internal/input", "api"},
	"internal/tenantapi": {"internal/kube", "api"}, // the same for the kinds of tenants
	"internal/policyapi": {"api"},                  // and for policies
}

// place finds the unit that a directory belongs to, the directory whose
// sub-packages may import one another, and its layer.
func place(dir string) (unit string, l layer, ok bool) {
	parts := strings.Split(dir, "/")
	switch parts[0] {
	case "internal":
		if len(parts) < 2 {
			return dir, "", false
		}
		l, ok = layerOf[parts[1]]
		if strings.HasSuffix(path.Base(dir), "test") && len(parts) > 2 {
			l = support // a conformance suite: runner/runnertest
		}
		return path.Join(parts[:2]...), l, ok
	case "api", "config", "examples", "policies": // what is embedded of the last three is no code
		return parts[0], wire, true
	case "cmd":
		return dir, program, true
	case "standalone":
		if len(parts) == 1 {
			return dir, program, true
		}
		return path.Join(parts[:2]...), outside, true
	default: // test, tools
		return dir, support, true
	}
}

func arrowsPointDown(t tree) []problem {
	var found []problem
	for _, f := range t.code() {
		unit, from, ok := place(f.dir())
		if !ok {
			found = append(found, t.at(f, f.syntax, "package %s has no layer", f.dir()))
			continue
		}
		if f.isTest() {
			continue
		}
		for p, spec := range imports(f) {
			dir, ours := strings.CutPrefix(p, module+"/")
			if !ours {
				continue
			}
			target, to, ok := place(dir)
			if !ok || target == unit || slices.Contains(below[from], to) || slices.Contains(beside[unit], target) {
				continue
			}
			found = append(found, t.at(f, spec, "%s (%s) imports %s (%s)", unit, from, dir, to))
		}
	}
	return found
}

func onlyMainsImportApp(t tree) []problem {
	return importers(t, func(p string) bool { return under(p, module+"/internal/app") }, func(f file) bool {
		return under(f.path, "cmd", "internal/app", "test") || f.dir() == "standalone"
	})
}

// kindsStayInDialects keeps the wire types of stacks, and the packages that read them,
// out of everything that serves all kinds. One file of app makes an object of the
// first kind as a user would, and the admission webhook judges its inline modules.
func kindsStayInDialects(t tree) []problem {
	return importers(t, func(p string) bool {
		dialect, below := strings.CutPrefix(p, module+"/internal/dialect/")
		return under(p, module+"/api") && !under(p, module+"/api/tenants", module+"/api/policy") || below && dialect != "kinds"
	}, func(f file) bool {
		return under(f.path, "api", "config", "internal/dialect", "internal/controller/tenants/admission") ||
			f.path == "internal/app/stamps.go"
	}, product)
}

// importers lists the imports that match in files outside home.
func importers(t tree, match func(importPath string) bool, home func(file) bool, keep ...func(file) bool) []problem {
	var found []problem
	for _, f := range t.code(keep...) {
		if home(f) {
			continue
		}
		for p, spec := range imports(f) {
			if match(p) {
				found = append(found, t.at(f, spec, "imports %s", p))
			}
		}
	}
	return found
}
