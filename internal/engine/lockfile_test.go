package engine

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const lockFile = `# This file is maintained automatically by "tofu init".
# Manual edits may be lost in future updates.

provider "registry.opentofu.org/hashicorp/null" {
  version     = "3.2.4"
  constraints = "~> 3.2"
  hashes = [
    "h1:bbb=",
    "zh:0a",
  ]
}

provider "registry.opentofu.org/hashicorp/random" {
  version = "3.7.2"
  hashes = [
    "h1:aaa=",
  ]
}
`

func TestCompleteLockFile(t *testing.T) {
	known := map[string][]string{
		"registry.opentofu.org/hashicorp/null 3.2.4":   {"zh:0b", "zh:0a", "h1:/aa+=", "zh:0b", "bad", "zh:\"\n"},
		"registry.opentofu.org/hashicorp/random 3.7.1": {"zh:of another version"},
	}
	of := func(l Locked) []string { return known[l.Address+" "+l.Version] }
	want := strings.Replace(lockFile, "    \"h1:bbb=\",\n    \"zh:0a\",\n", "    \"h1:/aa+=\",\n    \"h1:bbb=\",\n    \"zh:0a\",\n    \"zh:0b\",\n", 1)
	got := CompleteLockFile([]byte(lockFile), of)
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("CompleteLockFile() (-want +got):\n%s", diff)
	}
	if again := CompleteLockFile(got, of); string(again) != want {
		t.Errorf("CompleteLockFile() of its own result differs:\n%s", again)
	}
	for name, other := range map[string]string{
		"no list":          strings.Replace(lockFile, "hashes = [", "hashes=[", 1),
		"no lock file":     "provider {",
		"nothing is known": strings.ReplaceAll(lockFile, "3.2.4", "9.9.9"),
	} {
		if got := string(CompleteLockFile([]byte(other), of)); got != other {
			t.Errorf("%s: CompleteLockFile() changed it:\n%s", name, got)
		}
	}
}

func FuzzCompleteLockFile(f *testing.F) {
	f.Add(lockFile, "zh:ff")
	f.Add(lockFile, "h1:+/=")
	f.Fuzz(func(t *testing.T, text, hash string) {
		before, err := ParseLockFile([]byte(text))
		got := CompleteLockFile([]byte(text), func(Locked) []string { return []string{hash} })
		if err != nil {
			if string(got) != text {
				t.Errorf("a file that is none was changed: %q", got)
			}
			return
		}
		after, err := ParseLockFile(got)
		if err != nil || len(after) != len(before) {
			t.Fatalf("the result cannot be read: %v\n%s", err, got)
		}
		for i := range before {
			if after[i].Address != before[i].Address || after[i].Version != before[i].Version || len(after[i].Hashes) < len(before[i].Hashes) {
				t.Errorf("%+v became %+v", before[i], after[i])
			}
		}
	})
}
