package source

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
)

// A change of a file is committed on top of the branch and pushed as another one; a real server
// has it. What cannot be pushed changes nothing.
func TestPushesABranch(t *testing.T) {
	r := newRepository(t)
	r.commit(map[string]string{"main.tf": "a = 1\n", "sub/dir/x.tf": "b = 1\n", "readme": "no", "run.sh": "x no"})
	r.git("--git-dir="+r.dir, "config", "http.receivepack", "true")
	g := &Git{
		URL: r.serve(only(func(r *http.Request) bool {
			user, password, _ := r.BasicAuth()
			return user == "ann" && password == "right"
		})),
		Ref: GitRef{Branch: "main"}, Auth: GitAuth{User: "ann", Password: secret.New("right")}, Out: loopback(t), Scratch: scratchDir(t),
	}
	seen := map[string][]byte{}
	commit := NewCommit{
		Branch: "drift/net", Author: "ann <x>\n", Message: "Accept\n", At: time.Unix(1e9, 0), Reads: func(name string) bool { return strings.HasSuffix(name, ".tf") },
		Edit: func(files map[string][]byte) (map[string][]byte, error) {
			seen = files
			return map[string][]byte{"sub/dir/x.tf": []byte("b = 2\n")}, nil
		},
	}
	hash, err := g.Push(t.Context(), commit)
	if err != nil {
		t.Fatal(err)
	}
	if len(seen) != 2 || string(seen["sub/dir/x.tf"]) != "b = 1\n" {
		t.Errorf("the edit saw %q, want the files of the configuration", seen)
	}
	bare := "--git-dir=" + r.dir
	if got := r.git(bare, "rev-parse", "refs/heads/drift/net"); got != hash {
		t.Errorf("the branch is %s, want %s", got, hash)
	}
	if got := r.git(bare, "show", "--stat", "--format=%an|%s", "refs/heads/drift/net"); !strings.HasPrefix(got, "ann x|Accept") || !strings.Contains(got, "1 file changed, 1 insertion(+), 1 deletion(-)") {
		t.Errorf("the commit is %s", got)
	}
	r.git(bare, "fsck", "--strict")

	if _, err := g.Push(t.Context(), commit); fault.Of(err) != fault.Conflict {
		t.Errorf("Push() of a branch that exists = %v, want Conflict", err)
	}
	commit.Branch, commit.Edit = "other", func(map[string][]byte) (map[string][]byte, error) { return nil, nil }
	if _, err := g.Push(t.Context(), commit); fault.Reason(err, "") != ReasonUnchanged {
		t.Errorf("Push() of no change = %v", err)
	}
	broken := errors.New("broken")
	commit.Edit = func(map[string][]byte) (map[string][]byte, error) { return nil, broken }
	if _, err := g.Push(t.Context(), commit); !errors.Is(err, broken) {
		t.Errorf("Push() = %v, want the error of the edit", err)
	}
	if _, err := (&Git{URL: "ssh://git@example.com/x.git"}).Push(t.Context(), commit); err == nil || !strings.Contains(err.Error(), "over ssh") {
		t.Errorf("Push() over ssh = %v", err)
	}
	g.Auth.Password = secret.New("wrong")
	if _, err := g.Push(t.Context(), commit); fault.Of(err) != fault.Denied {
		t.Errorf("Push() with another password = %v, want Denied", err)
	}
}

func TestNamesOfBranches(t *testing.T) {
	for name, ok := range map[string]bool{
		"drift/network": true, "a": true, "": false, "-x": false, "a..b": false, "a b": false, "/a": false, "a/": false, "a.lock": false, "a~1": false, "a//b": false, "a@{1}": false, "a\n": false, "a.": false,
	} {
		if err := CheckBranch(name); (err == nil) != ok {
			t.Errorf("CheckBranch(%q) = %v", name, err)
		}
	}
}

// git applies a patch, also of a file without an end of its last line.
func TestGitAppliesAPatch(t *testing.T) {
	before := map[string][]byte{"main.tf": []byte("a = 1\n# b\nc = 3\n"), "sub/x.tf": []byte("b = 1"), "same.tf": []byte("z = 1\n")}
	after := map[string][]byte{"main.tf": []byte("a = 1\n# b\nc = 4\nd = 5\n"), "sub/x.tf": []byte("b = 2"), "same.tf": []byte("z = 1\n")}
	patch, err := Patch(before, after)
	if err != nil {
		t.Fatal(err)
	}
	r := newRepository(t)
	r.commit(map[string]string{"main.tf": string(before["main.tf"]), "sub/x.tf": string(before["sub/x.tf"]), "same.tf": string(before["same.tf"])})
	file := filepath.Join(t.TempDir(), "drift.patch")
	if err := os.WriteFile(file, patch, 0o600); err != nil {
		t.Fatal(err)
	}
	r.git("apply", file)
	for name, want := range after {
		if got, err := os.ReadFile(filepath.Join(r.worktree, name)); err != nil || string(got) != string(want) {
			t.Errorf("%s is %q, %v, want %q", name, got, err, want)
		}
	}
	if strings.Contains(string(patch), "same.tf") {
		t.Errorf("the patch has a file that does not change:\n%s", patch)
	}
	if none, err := Patch(before, before); err != nil || len(none) > 0 {
		t.Errorf("Patch() of nothing = %q, %v", none, err)
	}
}
