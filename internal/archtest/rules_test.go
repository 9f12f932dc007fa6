package archtest

import (
	"cmp"
	"slices"
	"testing"
)

// rule is one thing that holds for the whole tree.
type rule struct {
	name   string
	wayOut string
	check  func(tree) []problem
}

// rules holds them all. A new one needs a tree that breaks it in
// broken_test.go.
var rules = []rule{
	{"arrows point down", "move what is shared to a lower layer, or declare the interface where it is used; a new package needs a layer in layers_test.go", arrowsPointDown},
	{"only mains import app", "take what you need as a parameter; app hands it in", onlyMainsImportApp},
	{"only its dialect knows a kind of stack", "ask dialect.Dialect, or add to dialect.View what you need", kindsStayInDialects},
	{"the core does no I/O", "take the value as a parameter; an edge or the application layer gets it", coreImportsNothingForbidden},
	{"the core has no clock", "take the time as a value: stack.Observation.Now, or a parameter", coreHasNoClock},
	{"Kubernetes stays where it is spoken", "say it in our own words (stack, plan, service) and let dialect or kube translate", kubernetesStaysPut},
	{"the control plane is only in standalone", "start the standalone binary in place of linking k8s.io/kubernetes or etcd", controlPlaneStaysPut},
	{"programs start in internal/sandbox", "use package sandbox", programsStartInSandbox},
	{"archives open in internal/archive", "use package archive, which bounds sizes and refuses escapes", archivesOpenInArchive},
	{"requests go out through internal/outbound", "take a client that package outbound made, which knows the address rules, the limits and the deadlines", requestsGoOutThroughOutbound},
	{"YAML of users is read in internal/plainyaml", "use package plainyaml, which bounds what aliases repeat; a file of the operator, or of the user who runs the program, needs an entry of yamlReaders with its reason", yamlIsReadInPlainYAML},
	{"every package says what it is", "write a comment above the package clause: what it is, what it refuses, where to start reading", packagesHaveComments},
	{"no init functions", "make it a value, and build it where it is needed", noInit},
	{"no package variables that change", "put the variable into a struct that somebody owns", noVariablesThatChange},
	{"files stay short", "a file is about one thing: split it", filesStayShort},
	{"no machine's paths", "use a relative path, t.TempDir() or a flag", noMachinePaths},
	{"types stay small", "a part of the methods belongs to a type of its own; give it the few functions that it needs as fields", typesStaySmall},
	{"packages stay small", "a theme of the package is a package of its own", packagesStaySmall},
	{"the controller decides once", "make what comes in the way an observation of the next pass, or a value that Decide gets", decidesOnce},
	{"keys of records are made in internal/record", "add the kind of record to package record, and take its key from there", recordKeysAreMadeInRecord},
	{"observing writes nothing", "settle or commit writes it", observingWritesNothing},
	{"documents name tests that exist", "name the test that holds it now, or say that nothing does", namedTestsExist},
	{"users read the words of their field", "write what the problem says to use; what is legitimate needs an entry of wordsLeft with its reason", usersReadTheirWords},
	{"the map shows every package", "write one line about the package into the layout of docs/architecture.md", mapShowsEveryPackage},
	{"old names are read", "read the old name as well, or take it out of the list once its release is over", oldNamesAreRead},
	{"documents name files that exist", "name the file that has the code now", namedFilesExist},
	{"links lead somewhere", "name the file or the heading as it is now", linksLeadSomewhere},
	{"tests do not sleep", "wait for the event: a channel, a context, or a condition polled with a deadline", testsDoNotSleep},
}

func TestRules(t *testing.T) {
	all := repository(t)
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			found := r.check(all)
			slices.SortFunc(found, func(a, b problem) int { return cmp.Or(cmp.Compare(a.file, b.file), a.line-b.line) })
			for _, p := range found {
				t.Errorf("%s\n\tway out: %s", p, r.wayOut)
			}
		})
	}
}
