package plan

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/stack"
)

var update = flag.Bool("update", false, "write golden files")

func TestRender(t *testing.T) {
	for golden, tt := range map[string]struct {
		document string
		options  Options
	}{
		"plan.txt":       {"plan.json", Options{}},
		"plan-wide.txt":  {"plan.json", Options{Wide: true}},
		"plan-color.txt": {"plan.json", Options{Color: true, Limit: 3}},
		"destroy.txt":    {"destroy.json", Options{}},
		"unchanged.txt":  {"unchanged.json", Options{}},
		"drift.txt":      {"drift.json", Options{}},
		"found.txt":      {"drift-found.json", Options{}},
	} {
		t.Run(golden, func(t *testing.T) {
			var out strings.Builder
			if err := Render(&out, parse(t, raw(t, tt.document)), tt.options); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", golden)
			if *update {
				if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(raw(t, golden)), out.String()); diff != "" {
				t.Errorf("Render() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSummarize(t *testing.T) {
	for want, c := range map[string]stack.Changes{
		"No changes.": {},
		"Plan: 1 to add, 0 to change, 0 to destroy.":                         {Add: 1},
		"Plan: 1 to import, 0 to add, 2 to change, 3 to destroy.":            {Import: 1, Change: 2, Destroy: 3},
		"Plan: 0 to add, 0 to change, 0 to destroy, 1 to forget, 2 to move.": {Forget: 1, Move: 2},
		"Plan: 0 to add, 0 to change, 0 to destroy. 1 output changes.":       {Outputs: 1},
		"Plan: 1 to add, 0 to change, 0 to destroy. 2 outputs change.":       {Add: 1, Outputs: 2},
	} {
		if got := Summarize(c); got != want {
			t.Errorf("Summarize(%+v) = %q, want %q", c, got, want)
		}
	}
}

// Of a text of many lines a plan shows those that change, with some around them.
func TestRenderShowsTheLinesThatChange(t *testing.T) {
	var same []string
	for i := range 50 {
		same = append(same, "line "+string(rune('a'+i%26)))
	}
	text := func(changed string) string {
		lines := append([]string{}, same...)
		lines[30] = changed
		return strings.Join(lines, "\n")
	}
	p := printer{}
	p.diff(Diff{Path: "user_data", Before: text("port: 80"), After: text("port: \x1b[31m443")}, "user_data: ", "  ")
	want := "  ~ user_data:\n" +
		"      …\n" +
		"        line c\n" +
		"        line d\n" +
		"      - port: 80\n" +
		"      + port: \\x1b[31m443\n" +
		"        line f\n" +
		"        line g\n" +
		"      …\n"
	if diff := cmp.Diff(want, p.out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
