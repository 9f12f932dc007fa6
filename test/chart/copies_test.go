package chart

import (
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the generated files of the chart instead of comparing with them")

// Where everything is, from this directory.
const (
	root  = "../.."
	chart = root + "/charts/terrier"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// generated compares a file with what it should hold, or writes it.
func generated(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(read(t, path), want); diff != "" {
		t.Errorf("%s is out of date: run go test ./test/chart -update (-got +want):\n%s", path, diff)
	}
}

// The chart cannot refer to files outside of it, so it has copies.
func TestCopies(t *testing.T) {
	want := map[string]string{
		"dashboard.json": read(t, root+"/config/monitoring/dashboard.json"),
		"rules.yaml":     read(t, root+"/config/monitoring/rules.yaml"),
	}
	dashboards, err := filepath.Glob(root + "/config/monitoring/dashboards/*.json")
	if err != nil || len(dashboards) == 0 {
		t.Fatalf("finding the dashboards: %d, %v", len(dashboards), err)
	}
	for _, path := range dashboards {
		want["dashboards/"+filepath.Base(path)] = read(t, path)
	}
	definitions, err := filepath.Glob(root + "/config/crd/*.yaml")
	if err != nil || len(definitions) == 0 {
		t.Fatalf("finding the definitions: %d, %v", len(definitions), err)
	}
	for _, path := range definitions {
		want["crds/"+filepath.Base(path)] = read(t, path)
	}
	policies, err := filepath.Glob(root + "/config/admission/deletion/*.yaml")
	if err != nil || len(policies) == 0 {
		t.Fatalf("finding the policy about deletions: %d, %v", len(policies), err)
	}
	for _, path := range policies {
		want["deletion/"+filepath.Base(path)] = read(t, path)
	}
	for name, role := range roles(t) {
		want["roles/"+name+".yaml"] = role
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		generated(t, filepath.Join(chart, "files", name), want[name])
	}
	err = filepath.WalkDir(filepath.Join(chart, "files"), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(filepath.Join(chart, "files"), path)
		if _, known := want[filepath.ToSlash(name)]; !known {
			t.Errorf("%s is a copy of nothing: delete it", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

var roleName = regexp.MustCompile(`(?m)^  name: terrier-(\w+)$|metadata: \{name: terrier-(\w+)\}`)

// roles are those of docs/rbac.md, for users.
func roles(t *testing.T) map[string]string {
	t.Helper()
	_, text, _ := strings.Cut(read(t, root+"/docs/rbac.md"), "<!-- test: roles -->\n```yaml\n")
	text, _, ok := strings.Cut(text, "```\n")
	if !ok {
		t.Fatal("docs/rbac.md has no roles")
	}
	all := map[string]string{}
	for role := range strings.SplitSeq(text, "---\n") {
		m := roleName.FindStringSubmatch(role)
		if m == nil {
			t.Fatalf("a role of docs/rbac.md has no name:\n%s", role)
		}
		all[m[1]+m[2]] = role
	}
	return all
}

// helm runs Helm, with no home but one of the test, and returns what it prints.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	binary, err := filepath.Abs(root + "/bin/helm")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(binary); err != nil {
		t.Fatalf("run make bin/helm: %v", err)
	}
	home := t.TempDir()
	command := exec.CommandContext(t.Context(), binary, args...)
	command.Env = append(os.Environ(), "HOME="+home, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var stderr strings.Builder
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		return stderr.String(), err
	}
	return string(out), nil
}

// mustHelm is helm, where a failure ends the test.
func mustHelm(t *testing.T, args ...string) string {
	t.Helper()
	out, err := helm(t, args...)
	if err != nil {
		t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}
