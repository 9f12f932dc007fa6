package archive

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestScratchLeavesNothing(t *testing.T) {
	from, parent := t.TempDir(), filepath.Join(t.TempDir(), "made")
	if err := os.WriteFile(filepath.Join(from, "main.tf"), []byte("# net"), 0o600); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Pack(from, nil, &b, Limits{}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(from, "tree.tar.gz")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := OpenScratch(file, parent, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := s.Root.ReadFile("main.tf"); err != nil || string(text) != "# net" {
		t.Errorf("the archive has %q, %v", text, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for name, broken := range map[string]func() string{
		"no archive": func() string {
			file := filepath.Join(from, "broken")
			if err := os.WriteFile(file, []byte("no archive"), 0o600); err != nil {
				t.Fatal(err)
			}
			return file
		},
		"no file": func() string { return filepath.Join(from, "none") },
	} {
		if _, err := OpenScratch(broken(), parent, Limits{}); err == nil {
			t.Errorf("%s is unpacked", name)
		}
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}
