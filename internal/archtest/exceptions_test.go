package archtest

import (
	"maps"
	"slices"
	"testing"
)

// exceptions are what one rule lets pass: what, and why.
type exceptions struct {
	rule string
	why  map[string]string
}

// has says whether key is let pass, and notes that it was needed.
func (e exceptions) has(t tree, key string) bool {
	_, ok := e.why[key]
	if ok {
		t.excused[e.rule+": "+key] = true
	}
	return ok
}

var (
	// coreLibraries are written "package → library".
	coreLibraries = exceptions{"the core does no I/O", map[string]string{
		"internal/secret → log/slog":                       "a secret decides how it is logged: as dots",
		"internal/workdir → github.com/hashicorp/hcl":      "reading a module's variables and backend is the job",
		"internal/workdir → github.com/zclconf/go-cty":     "the values of that language",
		"internal/tenant → github.com/google/cel-go":       "conditions of templates are written in the language that Kubernetes has for them; it has no way out",
		"internal/drift → github.com/hashicorp/hcl":        "editing modules is the job",
		"internal/drift → github.com/zclconf/go-cty":       "the values of that language",
		"internal/address → github.com/Masterminds/semver": "the order of versions is the one of semantic versions",
		"internal/scan → github.com/hashicorp/hcl":         "reading modules is the job",
		"internal/scan → github.com/zclconf/go-cty":        "the values of that language",
		"internal/scan → go.yaml.in/yaml/v3":               "manifests are read with their lines",
		"internal/inventory → go.yaml.in/yaml/v3":          "inventories are read with their lines, and written with their comments",
		"internal/plainyaml → go.yaml.in/yaml/v3":          "anchors and aliases are found before anything is converted",
		"internal/plainyaml → sigs.k8s.io/yaml":            "annotations are read as the API server reads manifests",
		"internal/meter → github.com/Masterminds/sprig":    "the functions that templates of modules and of tenants are written with; only those without effects are taken",
	}}
	// archiveImports are written "package → import".
	archiveImports = exceptions{"archives open in internal/archive", map[string]string{
		"internal/kube → compress/gzip":              "the engine's kubernetes backend keeps a state gzipped in a Secret; it is one stream, not a tree",
		"internal/registry/protocol → compress/gzip": "a long list of versions is packed on its way to a client; it is one stream, and nothing is unpacked",
	}}
	// yamlReaders are written "package".
	yamlReaders = exceptions{"YAML of users is read in internal/plainyaml", map[string]string{
		"internal/app":                          "definitions and examples that are part of the program",
		"internal/kube":                         "definitions that are part of the program",
		"internal/controller/tenants/admission": "the same",
		"internal/app/identities":               "a file of the operator",
		"internal/registry/origin":              "the same",
		"internal/registry/rights":              "the same",
		"internal/registry/mirror":              "the same",
		"internal/query":                        "manifests that the command line reads, in the process of the user",
		"internal/client/policies":              "the same",
	}}
	// outboundUses are written "package → what".
	outboundUses = exceptions{"requests go out through internal/outbound", map[string]string{
		"internal/runner → http.Client{}":    "health checks are made inside the sandbox of a run: the sandbox confines them, and may reach its own loopback",
		"internal/runner → http.Transport{}": "the same",
	}}
	// wordsLeft are written "file: words" or "directory: words".
	wordsLeft = exceptions{"users read the words of their field", map[string]string{
		"internal/engine/errors.go: left behind":  "the summary of an error is the one of the engine",
		"docs/compatibility.md: glass":            "a message is the one of tofu-controller",
		"docs/compatibility.md: gap":              "it is the former name of a field of the API",
		"docs/compatibility.md: mending":          "it is the former name of a field of the API",
		"docs/architecture.md: basis":             "the table of names that stay in JSON",
		"docs/architecture.md: gap":               "the same",
		"docs/architecture.md: glass":             "the same",
		"internal/dialect/breakglass.go: glass":   "a message is the one of tofu-controller",
		"docs/adr/0022-content-by-digest.md: box": "a JSON name of earlier records",
		"internal/stack/messages.go: glass":       "a message is the one of tofu-controller",
		"internal/graph: box":                     "a graph has boxes and edges",
		"internal/graph: boxes":                   "the same",
		"internal/web/pages/graph.go: box":        "the same",
		"internal/testkit: the world":             "it is the name of the cloud of the provider for tests",
		"test/world: the world":                   "the same",
		"test/world: journal":                     "the log of calls that this provider keeps",
		"test/world: journals":                    "the same",
		"test/e2e: the world":                     "it is the name of the cloud of the provider for tests",
		"test/faults: the world":                  "the same",
	}}
	// largeTypes are written "package.type".
	largeTypes = exceptions{"types stay small", map[string]string{}}
	// largePackages are written as packages.
	largePackages = exceptions{"packages stay small", map[string]string{}}
	// laterDecisions are written as files of the controller.
	laterDecisions = exceptions{"the controller decides once", map[string]string{}}
	// observingWrites are written as files of the controller.
	observingWrites = exceptions{"observing writes nothing", map[string]string{
		"snapshots.go": "a rollback reads the source of its good apply, whose record is copied to a file for that, as artifacts are fetched into their cache",
	}}
	// initFunctions are written as packages.
	initFunctions = exceptions{"no init functions", map[string]string{
		"standalone/kubeapi/quiet": "the etcd client makes its logger in its own initialisation and takes no other",
	}}
	// mutableVariables are written "package.name".
	mutableVariables = exceptions{"no package variables that change", map[string]string{
		"internal/failpoint.armed":    "whether a test crashes this program is a fact about the process, and every durable act asks after it",
		"internal/sandbox.armed":      "whether main called Main is a fact about the process",
		"internal/sandbox.groupCount": "control groups are named after the process, so their numbers are the process's too",
	}}
)

// An exception that nothing needs would hide the next mistake.
func TestExceptionsAreNeeded(t *testing.T) {
	all := repository(t)
	for _, r := range rules {
		r.check(all)
	}
	for _, e := range []exceptions{largeTypes, largePackages, laterDecisions, observingWrites, coreLibraries, archiveImports, yamlReaders, outboundUses, wordsLeft, initFunctions, mutableVariables} {
		for _, key := range slices.Sorted(maps.Keys(e.why)) {
			if !all.excused[e.rule+": "+key] {
				t.Errorf("%s: nothing needs the exception for %q: remove it", e.rule, key)
			}
		}
	}
}
