package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// opener puts a program of a desktop into a directory of its own.
func opener(t *testing.T, mode os.FileMode, script string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "xdg-open"), []byte("#!/bin/sh\n"+script), mode); err != nil {
		t.Fatal(err)
	}
	return dir
}

// With --open the browser of the desktop is given the very link that is printed,
// and nothing else; what cannot be opened is said, with the link still there.
func TestOpensTheLink(t *testing.T) {
	e := newEstate(t)
	given := filepath.Join(t.TempDir(), "given")
	works := opener(t, 0o755, fmt.Sprintf(`printf '%%s|%%s' "$#" "$1" > '%s'`, given))
	no := opener(t, 0o644, "exit 0\n")
	fails := opener(t, 0o755, "exit 3\n")
	base := e.Environ
	for name, tt := range map[string]struct {
		args  []string
		path  string
		code  int
		opens bool
		says  string
	}{
		"found behind what is none": {[]string{"ui", "--open"}, no + ":relative:" + works, 0, true, ""},
		"not asked for":             {[]string{"ui"}, works, 0, false, ""},
		"there is none":             {[]string{"ui", "--open"}, no, 4, false, "open the link in a browser"},
		"it fails":                  {[]string{"ui", "--open"}, fails + ":" + works, 1, false, "xdg-open ended with 3"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.RemoveAll(given); err != nil {
				t.Fatal(err)
			}
			e.Environ = append(base[:len(base):len(base)], "PATH="+tt.path)
			got := e.run(t, tt.args...)
			link := strings.TrimSpace(got.out)
			if got.code != tt.code || !strings.HasPrefix(link, "https://127.0.0.1:") || !strings.Contains(got.err, tt.says) {
				t.Fatalf("it ended with %d and said %q %q", got.code, got.out, got.err)
			}
			opened, err := os.ReadFile(given)
			if !tt.opens {
				if !os.IsNotExist(err) {
					t.Errorf("a browser was opened with %q (%v)", opened, err)
				}
				return
			}
			if err != nil || string(opened) != "1|"+link {
				t.Errorf("opened was %q (%v), want only %q", opened, err, link)
			}
		})
	}
}
