package origin

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/room"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

// bench is a registry with a poller in this process.
type bench struct {
	*Poller
	registry *registry.Registry
	dir      string // of the storage

	mu    sync.Mutex
	now   time.Time
	all   []Repository
	tells []string // kind, reason and message of what users were told
	log   bytes.Buffer
}

func newBench(t *testing.T, dir string) *bench {
	t.Helper()
	store, err := blob.OpenVersionedFiles(dir, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	allow, err := outbound.ParseAllow("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	out := outbound.New(outbound.Policy{Allow: allow, PlainHTTP: true})
	t.Cleanup(out.Close)
	b := &bench{dir: dir, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	log, disk := slog.New(slog.NewTextHandler(b, nil)), room.Of(dir)
	b.registry = registry.New(store, registry.Options{Scratch: t.TempDir(), Room: disk, Now: b.clock, Log: log})
	b.Poller, err = New(Options{
		Registry: b.registry, Store: store, Source: b, Out: out,
		Scratch: t.TempDir(), Room: disk, Counts: b, Alone: true, Now: b.clock, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) clock() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

func (b *bench) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.Write(p)
}

// Repositories implements Source.
func (b *bench) Repositories(context.Context) ([]Repository, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.all), nil
}

func (*bench) Published(Key)      {}
func (*bench) Checked(Key, State) {}
func (*bench) Known(Key, State)   {}
func (*bench) Removed(Key)        {}

// register adds the repository of a git server, or takes the place of the one of its name.
func (b *bench) register(g *testkit.Git, edit func(*Repository)) Repository {
	r := Repository{Key: Key{"network", "vpc"}, URL: g.URL, Module: "vpc/aws", Access: login(g)}
	r.Tell = func(problem bool, reason, message string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.tells = append(b.tells, fmt.Sprintf("%t %s %s", problem, reason, message))
	}
	if edit != nil {
		edit(&r)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(slices.DeleteFunc(b.all, func(o Repository) bool { return o.Key == r.Key }), r)
	return r
}

func login(g *testkit.Git) func(context.Context) (Access, error) {
	return func(context.Context) (Access, error) {
		return Access{Auth: source.GitAuth{User: g.Username, Password: secret.New(g.Password)}}, nil
	}
}

// checked checks a repository once, and returns what is known of it then.
func (b *bench) checked(t *testing.T, r Repository) State {
	t.Helper()
	before, err := b.store.read(t.Context(), r.Key)
	if err != nil {
		t.Fatal(err)
	}
	b.check(t.Context(), r, before, "")
	s, err := b.state(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// told are what users were told since the last call.
func (b *bench) told() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.tells
	b.tells = nil
	return all
}

func (b *bench) versions(t *testing.T, name string) []registry.ModuleVersion {
	t.Helper()
	m, err := address.ParseModule(name)
	if err != nil {
		t.Fatal(err)
	}
	all, err := b.registry.ModuleVersions(t.Context(), m)
	if err != nil && fault.Of(err) != fault.Missing {
		t.Fatal(err)
	}
	return all
}

func (b *bench) wantVersions(t *testing.T, name string, want ...address.Version) {
	t.Helper()
	var got []address.Version
	for _, v := range b.versions(t, name) {
		got = append(got, v.Version)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s has the versions %q, want %q", name, got, want)
	}
}

// unpacked are the files of a version.
func (b *bench) unpacked(t *testing.T, name, version string) []string {
	t.Helper()
	m, err := address.ParseModule(name)
	if err != nil {
		t.Fatal(err)
	}
	v, err := b.registry.ModuleVersion(t.Context(), m, address.Version(version))
	if err != nil {
		t.Fatal(err)
	}
	a, err := b.registry.OpenArchive(t.Context(), registry.ModuleKey(m, v.File))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	dir := t.TempDir()
	if err := archive.Extract(a, dir, archive.Limits{}); err != nil {
		t.Fatal(err)
	}
	var files []string
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			files = append(files, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// tag makes an annotated tag of the newest commit, in place of one that is there.
func tag(g *testkit.Git, names ...string) {
	for _, name := range names {
		g.Do("-c", "tag.gpgSign=false", "tag", "--force", "--annotate", "--message=release", name)
		g.Do("push", "--quiet", "--force", "origin", "refs/tags/"+name)
	}
}

func module(text string) map[string]string {
	return map[string]string{"main.tf": fmt.Sprintf("output \"says\" {\n  value = %q\n}\n", text)}
}
