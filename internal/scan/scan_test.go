package scan_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/scan"
)

var update = flag.Bool("update", false, "write the golden files")

func tree(t *testing.T, dir string, exclude ...string) scan.Report {
	t.Helper()
	r, err := scan.Tree(t.Context(), os.DirFS(dir), "", exclude)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func golden(t *testing.T, file string, r scan.Report) {
	t.Helper()
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%s:%d: %s, %s: %s %s", f.File, f.Line, f.Kind, f.Rule, f.At, f.Mask)
		if f.Note != "" {
			fmt.Fprintf(&b, " (%s)", f.Note)
		}
		b.WriteString("\n")
	}
	for _, f := range r.Allowed {
		fmt.Fprintf(&b, "%s:%d: allowed: %s: %s\n", f.File, f.Line, f.At, f.Why)
	}
	for _, u := range r.Unread {
		fmt.Fprintf(&b, "%s: %s, scanned line by line: %v\n", u.File, u.Why, u.Scanned)
	}
	file = filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("the findings differ from %s (-want +got), go test -update writes them:\n%s", file, diff)
	}
}

// The plain values of the guides that others follow, and none of their references.
func TestGuides(t *testing.T) {
	content, err := os.ReadFile("testdata/guides.md")
	if err != nil {
		t.Fatal(err)
	}
	var r scan.Report
	if err := r.Read("guides.md", strings.NewReader(string(content))); err != nil {
		t.Fatal(err)
	}
	golden(t, "guides.txt", r)
}

// Each kind of file, with what is a secret in it and what is not.
func TestFindings(t *testing.T) {
	r := tree(t, "testdata/tree")
	golden(t, "tree.txt", r)
	out, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{
		"quartz-lantern-7", "aHVudGVyMi1hbmQtc29tZQ", "hunter2-and-some", "amber-walnut-3", "q8ZrT3mKx0LwPz5vBn7y", "velvet-orbit-42", "k9Xw2LmQ7rTz",
		"marble-finch-9", "a-pin", "copper-willow-5", "silver-harbor", "ivory-canyon-8", "devdevdev",
	} {
		if strings.Contains(string(out), value) {
			t.Errorf("the report holds the secret %q", value)
		}
	}
}

// What the repository shows as examples follows its own advice.
func TestExamplesHaveNone(t *testing.T) {
	for _, dir := range []string{"examples", "config", "charts"} {
		r := tree(t, filepath.Join("..", "..", dir))
		for _, f := range r.Findings {
			t.Errorf("%s/%s:%d: %s", dir, f.File, f.Line, f)
		}
		if r.Files == 0 {
			t.Errorf("no file of %s was scanned", dir)
		}
	}
}
