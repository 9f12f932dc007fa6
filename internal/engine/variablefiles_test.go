package engine

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// A file that cannot be understood may set any variable, which is not the same as
// none.
func TestAutoVariables(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	got, err := AutoVariables(fstest.MapFS{
		"a.auto.tfvars":           file("x = 1\ny = \"z\"\n"),
		"b.auto.tfvars.json":      file(`{"x": 1}`),
		"empty.auto.tfvars":       file("# nothing\n"),
		"empty.auto.tfvars.json":  file("{}"),
		"large.auto.tfvars":       file("x = 1\n" + strings.Repeat("#", maxVariables)),
		"list.auto.tfvars.json":   file(`[{"x": 1}]`),
		"broken.auto.tfvars":      file("x = {\n"),
		"broken.auto.tfvars.json": file("{"),
		"other.tfvars":            file("x = 1\n"),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"a.auto.tfvars": {"x", "y"}, "b.auto.tfvars.json": {"x"},
		"large.auto.tfvars": nil, "list.auto.tfvars.json": nil, "broken.auto.tfvars": nil, "broken.auto.tfvars.json": nil,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the variables of files differ (-want +got):\n%s", diff)
	}
}
