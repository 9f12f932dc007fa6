package archive

import (
	"os"
	"path/filepath"
	"testing"
)

func TestOne(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a.yml": "one", "b/c.yml": "three", "empty": ""} {
		at := filepath.Join(dir, "tree", name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	archived := filepath.Join(dir, "a.tar.gz")
	f, err := os.Create(archived)
	if err != nil {
		t.Fatal(err)
	}
	if err := Pack(filepath.Join(dir, "tree"), nil, f, Limits{}); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		text string
		size int64
	}{
		"a.yml":   {"one", 3},
		"b/c.yml": {"", 5}, // more than is asked for
		"empty":   {"", 0},
		"c.yml":   {"", -1},
		"b":       {"", -1},
	} {
		got, size, err := One(archived, name, 4)
		if err != nil || string(got) != want.text || size != want.size {
			t.Errorf("One(%s) = %q, %d, %v, want %q, %d", name, got, size, err, want.text, want.size)
		}
	}
	if _, _, err := One(filepath.Join(dir, "none"), "a.yml", 4); !os.IsNotExist(err) {
		t.Errorf("without an archive: %v", err)
	}
}
