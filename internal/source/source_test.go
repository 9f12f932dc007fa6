package source

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/outbound"
	"go.uber.org/goleak"
)

// loopback returns a client that may reach what tests listen on.
func loopback(t testing.TB) *outbound.Client {
	t.Helper()
	allow, err := outbound.ParseAllow("127.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	c := outbound.New(outbound.Policy{Allow: allow, PlainHTTP: true})
	t.Cleanup(c.Close)
	return c
}

// fetch resolves and fetches, and returns the revision and what is in the
// artifact.
func fetch(t *testing.T, f Fetcher) (revision string, tree map[string]string, err error) {
	t.Helper()
	var b bytes.Buffer
	found, err := f.Resolve(context.Background())
	if err != nil {
		return "", nil, err
	}
	if _, err := f.Fetch(context.Background(), found, &b); err != nil {
		return found.Revision, nil, err
	}
	return found.Revision, untar(t, b.Bytes()), nil
}

// untar returns the files in an archive, with an "x " in front of the content
// of those that may be executed.
func untar(t *testing.T, content []byte) map[string]string {
	t.Helper()
	dir := t.TempDir()
	if err := archive.Extract(bytes.NewReader(content), dir, archive.Limits{}); err != nil {
		t.Fatalf("extracting the artifact: %v", err)
	}
	got := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, p)
		got[name] = string(content)
		if info.Mode()&0o111 != 0 {
			got[name] = "x " + got[name]
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// plant makes files below a new directory.
func plant(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		p := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// scratchDir is a directory that has to be empty again when the test ends.
func scratchDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() {
		left, err := os.ReadDir(dir)
		if err != nil || len(left) > 0 {
			t.Errorf("left in the scratch directory: %v, %v", left, err)
		}
	})
	return dir
}

func TestOpenScratch(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	if err := OpenScratch(dir); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "fetch-1", "a"), 0o700), os.WriteFile(filepath.Join(dir, "else"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := OpenScratch(dir); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != "else" {
		t.Errorf("left: %v, %v, want only what is not ours", left, err)
	}
}

func TestMessage(t *testing.T) {
	for given, want := range map[string]string{
		`Get "https://s3.example/x?X-Amz-Signature=canary&y=1": EOF`: `Get "https://s3.example/x?•••": EOF`,
		"two\nlines\tand \x1b[31mcolour\x00":                         "two lines and [31mcolour",
		"turned \u202earound":                                        "turned around",
		"read tcp 10.0.0.1:43210->10.0.0.2:443: i/o timeout":         "read tcp 10.0.0.2:443: i/o timeout",
		"read tcp [fd00::1]:43210->[fd00::2]:443: i/o timeout":       "read tcp [fd00::2]:443: i/o timeout",
		"plain": "plain",
	} {
		if got := Message(errors.New(given)); got != want {
			t.Errorf("Message(%q) = %q, want %q", given, got, want)
		}
	}
	if got := Message(errors.New(strings.Repeat("ü", 5000))); len(got) > 2048 || !strings.HasSuffix(got, "ü…") {
		t.Errorf("a long message has %d bytes and ends in %q", len(got), got[len(got)-6:])
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
