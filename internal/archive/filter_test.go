package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"math"
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
	const all = 4 + int64(len("b")+len("d/")+len("d/e")) // content and names
	if err := Filter(bytes.NewReader(in), &out, all, below); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := Extract(&out, dir, Limits{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"b": "1", "d": "dir", "d/e": "333"}, tree(t, dir)); diff != "" {
		t.Errorf("the tree differs (-want +got):\n%s", diff)
	}
	if err := Filter(bytes.NewReader(in), io.Discard, all-1, below); fault.Of(err) != fault.Invalid {
		t.Errorf("Filter() of more than its bytes = %v, want Invalid", err)
	}
	broken := errors.New("broken")
	if err := Filter(bytes.NewReader(in), io.Discard, all, func(string) (string, error) { return "", broken }); !errors.Is(err, broken) {
		t.Errorf("Filter() = %v, want the error of rename", err)
	}
	if err := Filter(io.MultiReader(bytes.NewReader(in), iotest.ErrReader(broken)), io.Discard, all, below); !errors.Is(err, broken) {
		t.Errorf("Filter() = %v, want the error at the end of its reader", err)
	}
}

// A header can be as large as a file: names, targets of links and attributes have bounds.
func TestFilterBoundsHeaders(t *testing.T) {
	long := strings.Repeat("a/", mostName/2)
	same := func(name string) (string, error) { return name, nil }
	for name, tt := range map[string]struct {
		in   tar.Header
		kind fault.Kind
	}{
		"a name":                    {tar.Header{Name: long[:mostName-1] + "b", Typeflag: tar.TypeReg}, ""},
		"a longer name":             {tar.Header{Name: long + "b", Typeflag: tar.TypeReg}, fault.Invalid},
		"a target of a link":        {tar.Header{Name: "l", Linkname: long, Typeflag: tar.TypeSymlink}, ""},
		"a longer target":           {tar.Header{Name: "l", Linkname: long + "b", Typeflag: tar.TypeSymlink}, fault.Invalid},
		"a file of all bytes there": {tar.Header{Name: "f", Size: math.MaxInt64, Typeflag: tar.TypeReg}, fault.Invalid},
		"attributes":                {tar.Header{Name: "f", Typeflag: tar.TypeReg, PAXRecords: map[string]string{"SCHILY.xattr.user.a": strings.Repeat("a", 1<<19)}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tt.in.Format = tar.FormatPAX
			var in, out bytes.Buffer
			if err := tar.NewWriter(&in).WriteHeader(&tt.in); err != nil {
				t.Fatal(err)
			}
			err := Filter(&in, &out, 2*mostName, same)
			if fault.Of(err) != tt.kind {
				t.Errorf("Filter() = %v, want of kind %q", err, tt.kind)
			}
			if out.Len() > 4*mostName {
				t.Errorf("the copy has %d bytes", out.Len())
			}
		})
	}
	// Each is short, and together they are not.
	var links bytes.Buffer
	w := tar.NewWriter(&links)
	for _, n := range []string{"a", "b", "c"} {
		if err := w.WriteHeader(&tar.Header{Name: n, Linkname: long, Typeflag: tar.TypeSymlink}); err != nil {
			t.Fatal(err)
		}
	}
	if err := Filter(&links, io.Discard, 2*mostName+2, same); fault.Of(err) != fault.Invalid {
		t.Errorf("Filter() of targets that are together too large = %v, want Invalid", err)
	}
}
