package origin

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/failpoint"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// A registry that is killed in the middle leaves no half of a version, and the next check
// completes it.
func TestCrash(t *testing.T) {
	if spec := os.Getenv("ORIGIN_CRASH"); spec != "" {
		crash(t, spec)
		return
	}
	g := testkit.NewGit(t)
	g.Commit(module("one"))
	tag(g, "v1.0.0", "v1.1.0")
	for n := 1; ; n++ {
		dir := t.TempDir()
		if !killed(t, g, dir, n) {
			if n < 8 {
				t.Errorf("a check has %d durable acts, want more", n-1)
			}
			return
		}
		completes(t, g, dir, n)
	}
}

// completes checks the repository of a registry that was killed before act n.
func completes(t *testing.T, g *testkit.Git, dir string, n int) {
	t.Helper()
	b := newBench(t, dir)
	s := b.checked(t, b.register(g, nil))
	b.wantVersions(t, "network/vpc/aws", "1.0.0", "1.1.0")
	if s.Versions != 2 || s.Error != "" || len(s.Problems) > 0 || s.Skips > 0 {
		t.Errorf("after a crash at act %d the state is %+v", n, s)
	}
	m := address.Module{Namespace: "network", Name: "vpc", System: "aws"}
	for _, v := range b.versions(t, m.String()) {
		a, err := b.registry.OpenArchive(t.Context(), registry.ModuleKey(m, v.File))
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.New()
		_, err = io.Copy(sum, a)
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if got := fmt.Sprintf("%x", sum.Sum(nil)); err != nil || got != v.SHA256 || v.Origin == nil {
			t.Errorf("after a crash at act %d version %s has the bytes %s, %v, want %s; it comes from %+v", n, v.Version, got, err, v.SHA256, v.Origin)
		}
	}
}

// killed runs a check in a process of its own that ends before act n, and reports whether it
// came so far.
func killed(t *testing.T, g *testkit.Git, dir string, n int) bool {
	t.Helper()
	acts := filepath.Join(t.TempDir(), "acts")
	if err := os.WriteFile(acts, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	spec, err := json.Marshal(testkit.Git{URL: g.URL, Username: g.Username, Password: g.Password, Root: dir})
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCrash$")
	command.Env = append(os.Environ(), "TMPDIR="+t.TempDir(), "ORIGIN_CRASH="+string(spec), fmt.Sprintf("%s=crash:before:%d@%s", failpoint.Env, n, acts))
	out, err := command.CombinedOutput()
	text, readErr := os.ReadFile(acts)
	if readErr != nil {
		t.Fatal(readErr)
	}
	if _, crashed := failpoint.Crashed(text); crashed != (err != nil) {
		t.Fatalf("the process ended with %v, its acts are %s, and it said %s", err, text, out)
	}
	return err != nil
}

// crash is the check that is killed.
func crash(t *testing.T, spec string) {
	var g testkit.Git
	if err := json.Unmarshal([]byte(spec), &g); err != nil {
		t.Fatal(err)
	}
	if err := failpoint.Arm(os.Getenv(failpoint.Env)); err != nil {
		t.Fatal(err)
	}
	b := newBench(t, g.Root)
	if s := b.checked(t, b.register(&g, nil)); s.Versions != 2 {
		t.Fatalf("the state is %+v", s)
	}
}
