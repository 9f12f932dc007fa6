package e2e

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	infrav1alpha2 "github.com/terrier-iac/terrier/api/infra/v1alpha2"
)

var (
	requiredProvider = regexp.MustCompile(`source\s*=\s*"([^"]+)"`)
	lockedProvider   = regexp.MustCompile(`(?s)provider "([^"]+)" \{\s*version\s*= "[0-9.]+".*?hashes = \[\s*"h1:`)
)

// locked checks that the plan of a stack has locked the providers that its module
// requires and no others, each to one version with its hash, and that no copy of
// them was made for it (A17).
func (e *example) locked(t *testing.T, s *infrav1alpha2.Terraform, hcl string) {
	t.Helper()
	want := map[string]bool{}
	for _, m := range requiredProvider.FindAllStringSubmatch(hcl, -1) {
		want["registry.opentofu.org/"+strings.ToLower(m[1])] = true
	}
	lock := e.lockFile(t, s)
	found := lockedProvider.FindAllStringSubmatch(lock, -1)
	for _, m := range found {
		if !want[m[1]] {
			t.Errorf("%s has locked %s, which its module does not require", s.Name, m[1])
		}
	}
	if len(found) != len(want) || len(want) == 0 {
		t.Errorf("%s requires %v and has locked\n%s", s.Name, want, lock)
	}
	e.unCopied(t, s)
}

// lockFile is what the newest plan of a stack has locked.
func (e *example) lockFile(t *testing.T, s *infrav1alpha2.Terraform) string {
	t.Helper()
	records := filepath.Join(e.platform.Dir, "records")
	files, err := filepath.Glob(filepath.Join(records, "stacks", string(s.UID), "plans", "*", "lock.hcl~"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no lock file: %v", s.Name, err)
	}
	key, err := filepath.Rel(records, strings.TrimSuffix(files[len(files)-1], "~"))
	if err != nil {
		t.Fatal(err)
	}
	return string(e.platform.Record(t, key))
}

// unCopied checks that all that a stack has of its providers is where they are.
func (e *example) unCopied(t *testing.T, s *infrav1alpha2.Terraform) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(e.platform.Dir, "runner", "stacks", string(s.UID)), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.HasPrefix(d.Name(), "terraform-provider-") {
			t.Errorf("%s has a copy of a provider, %s", s.Name, path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
