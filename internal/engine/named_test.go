package engine

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/terrier-iac/terrier/internal/fault"
)

func TestNamed(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	put := func(path string) {
		if err := os.WriteFile(path, []byte("x"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put(filepath.Join(dir, "tofu"))
	put(filepath.Join(dir, "terraform"))
	put(filepath.Join(dir, "evil"))
	put(filepath.Join(other, "old"))
	f := &Finder{
		Beside: dir, Known: map[string]string{"tofu-1.10": filepath.Join(other, "old")},
		Run: func(context.Context, string, ...string) ([]byte, error) {
			return []byte(`{"terraform_version":"1.12.6"}`), nil
		},
	}
	for name, want := range map[string]string{
		"":            filepath.Join(dir, "tofu"),
		"terraform":   filepath.Join(dir, "terraform"),
		"tofu-1.10":   filepath.Join(other, "old"),
		"evil":        "", // what lies beside is not for the asking
		"../tofu":     "",
		dir + "/tofu": "",
		"tofu-1.9":    "",
	} {
		e, err := f.Named(t.Context(), name)
		if e.Path != want || (want == "") != (fault.Of(err) == fault.Missing) {
			t.Errorf("Named(%q) = %q, %v, want %q", name, e.Path, err, want)
		}
	}
}
