package e2e

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/testkit"
)

var (
	defectRow = regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+) \| ([^|]*)\|$`)
	quoted    = regexp.MustCompile("`([^`]+)`")
	testName  = regexp.MustCompile(`^(Test\w+)(?:/(.+))?$`)
)

// Every row of docs/defects.md has a test that is there, cases included, or says
// that it is open.
func TestDefectsHaveTests(t *testing.T) {
	root := testkit.Repository(t)
	doc := read(t, filepath.Join(root, "docs", "defects.md"))
	rows := 0
	for _, m := range defectRow.FindAllStringSubmatch(doc, -1) {
		defect, how, shown := strings.TrimSpace(m[1]), m[2], m[3]
		if defect == "defect" || strings.HasPrefix(defect, "---") {
			continue
		}
		rows++
		var dir string
		named := 0
		for _, q := range quoted.FindAllStringSubmatch(shown, -1) {
			parts := testName.FindStringSubmatch(q[1])
			switch {
			case parts == nil:
				dir = q[1]
			case dir == "":
				t.Errorf("%s: %s is in no package", defect, q[1])
			default:
				named++
				if why := missing(t, filepath.Join(root, dir), parts[1], parts[2]); why != "" {
					t.Errorf("%s: %s", defect, why)
				}
			}
		}
		if open := strings.Contains(how, "**Open**"); named == 0 && !open {
			t.Errorf("%s: neither a test nor open", defect)
		}
	}
	if rows < 40 {
		t.Errorf("%d rows were read", rows)
	}
}

// missing says which test or case of a package is not there. The cases of the
// conformance suite of runners are in a package beside it.
func missing(t *testing.T, dir, name, wanted string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(files, func(f string) bool { return strings.Contains(read(t, f), "\nfunc "+name+"(t *testing.T)") })
	if i < 0 {
		return name + " is not in " + dir
	}
	places := []string{files[i]}
	if name == "TestConformance" {
		suite, err := filepath.Glob(filepath.Join(dir, "runnertest", "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		places = suite
	}
	if wanted != "" && !slices.ContainsFunc(places, func(f string) bool { return strings.Contains(read(t, f), `"`+wanted) }) {
		return name + " has no case " + wanted
	}
	return ""
}
