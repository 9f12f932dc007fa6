package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/encryption"
)

// Without a server, a key of records is enough to read a state.
func TestStateKeyWithoutAServer(t *testing.T) {
	e := newEstate(t)
	dir := t.TempDir()
	secret := bytes.Repeat([]byte("k"), encryption.KeyBytes)
	for name, content := range map[string][]byte{"records": secret, "short": secret[1:]} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	of := func(file string) string { return "--records-key " + filepath.Join(dir, file) }
	e.dialogue(t, []line{
		{"state key " + of("records") + " --place stack-x -d " + filepath.Join(dir, "keys"), 0, []string{encryption.Variable + "={", "state-key"}, string(secret)},
		{"state key " + of("short") + " --place stack-x", 2, []string{"does not have 32 bytes"}, ""},
		{"state key " + of("records"), 2, []string{"--place"}, ""},
		{"state key network " + of("records") + " --place stack-x", 2, []string{"without a stack"}, ""},
		{"state key", 2, []string{"name a stack"}, ""},
		{"state key network", 2, []string{"need a reason"}, ""},
	})
	path := filepath.Join(dir, "keys", "state-key.json")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v, want a file that only its owner can read", info, err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	root, err := encryption.NewRoot(secret)
	if err != nil {
		t.Fatal(err)
	}
	k, err := root.Key("", "stack-x")
	if err != nil {
		t.Fatal(err)
	}
	if want, err := encryption.KeyFile(k); err != nil || !bytes.Equal(got, want) || !strings.Contains(string(got), "OpenTofu-External-Key-Provider") {
		t.Errorf("the file holds %s, want %s, %v", got, want, err)
	}
}
