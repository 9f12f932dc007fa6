package source

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
)

func openStore(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := OpenStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t *testing.T, s *Store, key Key, content string) Stored {
	t.Helper()
	a, err := s.Put(key, func(w io.Writer) error { _, err := io.WriteString(w, content); return err })
	if err != nil {
		t.Fatal(err)
	}
	return a
}

var netKey = Key{"gitrepository", "team", "net"}

func TestStore(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	a := put(t, s, netKey, "abc")
	const sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	want := Stored{Path: "gitrepository/team/net/" + sum + ".tar.gz", Digest: "sha256:" + sum, Size: 3}
	if diff := cmp.Diff(want, a); diff != "" {
		t.Fatalf("Put() differs (-want +got):\n%s", diff)
	}
	for name, s := range map[string]*Store{"now": s, "after a restart": openStore(t, dir)} {
		if !s.Has(a) {
			t.Errorf("%s: the artifact is not there", name)
		}
	}
	broken := errors.New("broken")
	if _, err := s.Put(netKey, func(w io.Writer) error { io.WriteString(w, "half"); return broken }); !errors.Is(err, broken) {
		t.Errorf("Put() = %v, want the writer's error", err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, tmpDir)); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestStoreHas(t *testing.T) {
	for name, damage := range map[string]func(path string, a *Stored) error{
		"a file that is gone":                 func(path string, _ *Stored) error { return os.Remove(path) },
		"a file that was cut":                 func(path string, _ *Stored) error { return os.Truncate(path, 2) },
		"a flipped bit":                       func(path string, _ *Stored) error { return os.WriteFile(path, []byte("abd"), 0o600) },
		"a path that is not that of a digest": func(_ string, a *Stored) error { a.Digest = "sha256:1"; return nil },
		"a path that leads out":               func(_ string, a *Stored) error { a.Path = "../" + a.Path; return nil },
		"no artifact":                         func(_ string, a *Stored) error { *a = Stored{}; return nil },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := openStore(t, dir)
			a := put(t, s, netKey, "abc")
			path := filepath.Join(dir, a.Path)
			past := time.Now().Add(-time.Hour)
			if err := os.Chtimes(path, past, past); err != nil {
				t.Fatal(err)
			}
			if !s.Has(a) {
				t.Fatal("the artifact is not there to begin with")
			}
			if err := damage(path, &a); err != nil {
				t.Fatal(err)
			}
			if s.Has(a) {
				t.Error("Has() = true, want false")
			}
		})
	}
}

func TestStoreRefusesKeys(t *testing.T) {
	s := openStore(t, t.TempDir())
	for _, key := range []Key{{}, {"gitrepository", "..", "net"}, {"gitrepository", "team", "a..b"}, {"gitrepository", "team", "a/b"}, {"GitRepository", "team", "net"}, {".tmp", "a", "b"}, {"gitrepository", "team", strings.Repeat("a", 254)}} {
		if _, err := s.Put(key, func(io.Writer) error { return nil }); fault.Of(err) != fault.Invalid {
			t.Errorf("Put(%v) = %v, want Invalid", key, err)
		}
		if err := s.Remove(key); fault.Of(err) != fault.Invalid {
			t.Errorf("Remove(%v) = %v, want Invalid", key, err)
		}
	}
}

func TestStoreCollect(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir)
	now := time.Now()
	names := map[string]string{}
	var all []Stored
	for i, content := range []string{"current", "an hour old", "two hours old", "three hours old"} {
		a := put(t, s, netKey, content)
		at := now.Add(-time.Duration(i) * time.Hour)
		if i == 0 {
			at = now.Add(-10 * time.Hour) // being current counts, not being new
		}
		if err := os.Chtimes(filepath.Join(dir, a.Path), at, at); err != nil {
			t.Fatal(err)
		}
		names[a.Path] = content
		all = append(all, a)
	}
	other := put(t, s, Key{"gitrepository", "team", "dns"}, "other")
	kept := func() map[string]bool {
		got := map[string]bool{}
		for _, a := range all {
			if s.Has(a) {
				got[names[a.Path]] = true
			}
		}
		return got
	}
	for _, tt := range []struct {
		keep int
		age  time.Duration
		want []string
	}{
		{1, 150 * time.Minute, []string{"current", "an hour old", "two hours old"}},
		{2, time.Minute, []string{"current", "an hour old"}},
		{1, time.Minute, []string{"current"}},
	} {
		if err := s.Collect(netKey, all[0].Path, tt.keep, now.Add(-tt.age)); err != nil {
			t.Fatal(err)
		}
		want := map[string]bool{}
		for _, w := range tt.want {
			want[w] = true
		}
		if diff := cmp.Diff(want, kept()); diff != "" {
			t.Errorf("Collect(keep %d, age %v) differs (-want +got):\n%s", tt.keep, tt.age, diff)
		}
	}
	keys, err := s.Keys("gitrepository")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Key{{"gitrepository", "team", "dns"}, netKey}, keys); diff != "" {
		t.Errorf("Keys() differs (-want +got):\n%s", diff)
	}
	if err := s.Remove(netKey); err != nil {
		t.Fatal(err)
	}
	if got := kept(); len(got) != 0 || !s.Has(other) {
		t.Errorf("after Remove() %v is left, and the other is there: %v", got, s.Has(other))
	}
}

func TestArtifactHandler(t *testing.T) {
	s := openStore(t, t.TempDir())
	a, b := put(t, s, netKey, "abc"), put(t, s, Key{"gitrepository", "other", "dns"}, "def")
	key := secret.New("key")
	server := httptest.NewServer(NewArtifactHandler(s, key))
	t.Cleanup(server.Close)
	path := ArtifactPath(key, a.Path)
	mac, _, _ := strings.Cut(path[1:], "/")
	for name, tt := range map[string]struct {
		method, path string
		status       int
		body         string
	}{
		"the artifact":                        {"GET", path, 200, "abc"},
		"its head":                            {"HEAD", path, 200, ""},
		"writing":                             {"PUT", path, 405, "method not allowed\n"},
		"no ticket":                           {"GET", "/" + a.Path, 404, "404 page not found\n"},
		"somebody else's ticket":              {"GET", "/" + mac + "/" + b.Path, 404, "404 page not found\n"},
		"a ticket made with another key":      {"GET", ArtifactPath(secret.New("x"), a.Path), 404, "404 page not found\n"},
		"a right ticket for what leads out":   {"GET", ArtifactPath(key, "../secret"), 404, "Not Found\n"},
		"a right ticket for a directory":      {"GET", ArtifactPath(key, "gitrepository"), 404, "Not Found\n"},
		"a right ticket for what is not kept": {"GET", ArtifactPath(key, strings.Replace(a.Path, "net", "gone", 1)), 404, "Not Found\n"},
		"the root":                            {"GET", "/", 404, "404 page not found\n"},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequest(tt.method, server.URL+tt.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.DefaultTransport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tt.status || string(body) != tt.body {
				t.Errorf("answer = %d %q, want %d %q", resp.StatusCode, body, tt.status, tt.body)
			}
		})
	}
}
