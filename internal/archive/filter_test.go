package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/terrier-iac/terrier/internal/fault"
)

func TestFilter(t *testing.T) {
	in := tarOf(t, entry{name: "a/", kind: tar.TypeDir}, entry{name: "a/b", content: "1"}, entry{name: "c", content: "22"}, entry{name: "a/d/", kind: tar.TypeDir}, entry{name: "a/d/e", content: "333"})
	below := func(name string) (string, error) {
		name, _ = strings.CutPrefix(name, "a/")
		if name == "c" {
			return "", nil
		}
		return name, nil
	}
	var out bytes.Buffer
	if err := Filter(bytes.NewReader(in), &out, 4, below); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := Extract(&out, dir, Limits{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"b": "1", "d": "dir", "d/e": "333"}, tree(t, dir)); diff != "" {
		t.Errorf("the tree differs (-want +got):\n%s", diff)
	}
	if err := Filter(bytes.NewReader(in), io.Discard, 3, below); fault.Of(err) != fault.Invalid {
		t.Errorf("Filter() of more than its bytes = %v, want Invalid", err)
	}
	broken := errors.New("broken")
	if err := Filter(bytes.NewReader(in), io.Discard, 9, func(string) (string, error) { return "", broken }); !errors.Is(err, broken) {
		t.Errorf("Filter() = %v, want the error of rename", err)
	}
	if err := Filter(io.MultiReader(bytes.NewReader(in), iotest.ErrReader(broken)), io.Discard, 9, below); !errors.Is(err, broken) {
		t.Errorf("Filter() = %v, want the error at the end of its reader", err)
	}
}
