package rego

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// examples are the directories of conftest's own examples that have policies.
func examples(t *testing.T) []string {
	t.Helper()
	found := map[string]bool{}
	root := os.DirFS(filepath.Join("testdata", "conftest"))
	err := fs.WalkDir(root, ".", func(name string, _ fs.DirEntry, err error) error {
		if err == nil && path.Ext(name) == ".rego" && !strings.HasSuffix(name, "_test.rego") {
			found[path.Dir(name)] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(found))
}

// Conftest's own examples are read as they are, except those that ask for a network or an
// environment, and one that calls a function that it does not have: the error names the function.
func TestTheExamplesOfConftest(t *testing.T) {
	refused := map[string]string{
		"builtin-errors": "net.lookup_ip_addr is not available to policies",
		"capabilities":   "opa.runtime is not available to policies",

		"serverless/policy": "undefined function has_field",
	}
	packages := map[string]string{"configfile/test": "conftest"}
	all := examples(t)
	if len(all) < 30 {
		t.Fatalf("there are %d examples", len(all))
	}
	for _, dir := range all {
		t.Run(dir, func(t *testing.T) {
			o := Options{Format: Conftest}
			if name := packages[dir]; name != "" {
				o.Namespaces = []string{name}
			}
			parts, err := Read(os.DirFS(filepath.Join("testdata", "conftest", filepath.FromSlash(dir))), o)
			if err == nil {
				_, err = Compile(t.Context(), parts[0].Source)
			}
			if want := refused[dir]; want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("it is read with %v, want %q", err, want)
			}
		})
	}
}

// What conftest's examples say of their own inputs, the plan of an engine among them, is what
// conftest says of them.
func TestFindingsOfTheExamplesOfConftest(t *testing.T) {
	for name, tt := range map[string]struct {
		dir, input string
		document   int               // of several in the input
		beside     map[string]string // what conftest is told on its command line
		want       []string
	}{
		"a plan": {"hcl1/policy", "hcl1/gke-show.json", 0, nil, []string{"deny deny: Terraform plan will change prohibited resources in the following namespaces: google_iam, google_container"}},
		"several rules": {"kubernetes/policy", "kubernetes/deployment.yaml", 0, nil, []string{
			"deny deny: Containers must not run as root in Deployment hello-kubernetes",
			"deny deny: Deployment hello-kubernetes must provide app/release labels for pod selectors",
			"deny deny: hello-kubernetes must include Kubernetes recommended labels: https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/#labels",
			"deny violation: Found deployment hello-kubernetes but deployments are not allowed",
		}},
		"a warning":         {"kubernetes/policy", "kubernetes/service.yaml", 0, nil, []string{"warn warn: Found service hello-kubernetes but services are not allowed"}},
		"before exceptions": {"exceptions/policy", "exceptions/deployments.yaml", 0, nil, []string{"deny deny_run_as_root: Containers must not run as root in Deployment cannot-run-as-root"}},
		"an exception":      {"exceptions/policy", "exceptions/deployments.yaml", 1, nil, nil},
		"data": {"data", "data/service.yaml", 0, map[string]string{"conftest.toml": "policy = \"policy\"\ndata = [\"exclusions\"]\n"},
			[]string{"deny deny: Cannot expose port 22 on LoadBalancer. Denied ports: [22, 21]"}},
	} {
		t.Run(name, func(t *testing.T) {
			below := fstest.MapFS{}
			dir := os.DirFS(filepath.Join("testdata", "conftest", filepath.FromSlash(tt.dir)))
			err := fs.WalkDir(dir, ".", func(file string, e fs.DirEntry, err error) error {
				if err != nil || e.IsDir() {
					return err
				}
				b, err := fs.ReadFile(dir, file)
				below[file] = &fstest.MapFile{Data: b}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			for file, text := range tt.beside {
				below[file] = &fstest.MapFile{Data: []byte(text)}
			}
			parts, err := Read(below, Options{Format: Conftest})
			if err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(filepath.Join("testdata", "conftest", filepath.FromSlash(tt.input)))
			if err != nil {
				t.Fatal(err)
			}
			input, err := yaml.YAMLToJSON([]byte(strings.Split(string(b), "\n---\n")[tt.document]))
			if err != nil {
				t.Fatal(err)
			}
			document, err := json.Marshal(map[string]json.RawMessage{"plan": input})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(brief(asked(t, parts[0].Source, string(document), nil)), tt.want); d != "" {
				t.Error(d)
			}
		})
	}
}
