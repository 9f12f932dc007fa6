package origin

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// A tag becomes a version once, and nothing that happens to it afterwards changes it.
func TestTagsBecomeVersions(t *testing.T) {
	g, b := testkit.NewGit(t), newBench(t, t.TempDir())
	one := g.Commit(module("one"))
	tag(g, "v1.0.0", "latest")
	r := b.register(g, nil)
	s := b.checked(t, r)
	b.wantVersions(t, "network/vpc/aws", "1.0.0")
	if s.Versions != 1 || s.Error != "" || s.Skips != 1 || s.Skipped[0].Tag != "latest" || s.Newest == "" {
		t.Errorf("the state is %+v, want one version, and the tag latest skipped", s)
	}
	v := b.versions(t, "network/vpc/aws")[0]
	if o := v.Origin; o == nil || o.Repository != g.URL || o.Tag != "v1.0.0" || o.Commit != one || o.Tagger != "t <t@example.com>" || o.Tagged.IsZero() {
		t.Errorf("the version comes from %+v", v.Origin)
	}
	if wait := s.Next.Sub(s.Checked); wait < 9*time.Minute || wait > 11*time.Minute {
		t.Errorf("the next check is in %s, want about 10 minutes", wait)
	}
	b.told()

	two := g.Commit(module("two"))
	tag(g, "v1.0.0", "v1.1.0")
	s = b.checked(t, r)
	b.wantVersions(t, "network/vpc/aws", "1.0.0", "1.1.0")
	if got := b.versions(t, "network/vpc/aws")[0]; got.SHA256 != v.SHA256 || got.Origin.Commit != one {
		t.Errorf("the version of the tag that moved is %+v, want what it was", got)
	}
	if len(s.Problems) != 1 || s.Problems[0].Reason != ReasonMoved || s.Problems[0].Was != one || s.Problems[0].Is != two {
		t.Errorf("the problems are %+v, want the tag that moved, with both commits", s.Problems)
	}
	if got := b.told(); !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "true "+ReasonMoved) }) {
		t.Errorf("users were told %q, want the tag that moved", got)
	}

	if err := b.registry.RetractModule(t.Context(), address.Module{Namespace: "network", Name: "vpc", System: "aws"}, "1.1.0", "ann", "broken"); err != nil {
		t.Fatal(err)
	}
	g.Do("push", "--quiet", "origin", "--delete", "v1.0.0")
	g.Do("tag", "--delete", "v1.0.0")
	r.Requested = "again"
	s = b.checked(t, r)
	b.wantVersions(t, "network/vpc/aws", "1.0.0", "1.1.0")
	if len(s.Problems) > 0 || s.Error != "" || b.versions(t, "network/vpc/aws")[1].Retracted == nil {
		t.Errorf("after the tag was deleted, and the other version retracted, the state is %+v", s)
	}
	if got := b.told(); len(got) > 0 {
		t.Errorf("users were told %q, want nothing", got)
	}
}

// The counts are those of what is published now: not in the order of publishing, also after a
// tag moved, another form of tags, and a retraction without a new tag.
func TestCounts(t *testing.T) {
	g, b := testkit.NewGit(t), newBench(t, t.TempDir())
	g.Commit(module("one"))
	tag(g, "v1.10.0")
	r := b.register(g, nil)
	want := func(what string, s State, versions int, newest string) {
		t.Helper()
		if s.Versions != versions || s.Newest != newest || s.Named != 1 || len(s.Modules) != 1 || s.Modules[0].Versions != versions || s.Error != "" {
			t.Errorf("%s: the state is %+v, want %d versions and %q", what, s, versions, newest)
		}
	}
	want("one tag", b.checked(t, r), 1, "network/vpc/aws 1.10.0")
	tag(g, "v1.9.0")
	want("an older version later", b.checked(t, r), 2, "network/vpc/aws 1.10.0")
	g.Commit(module("two"))
	tag(g, "v1.9.0")
	want("a tag that moved", b.checked(t, r), 2, "network/vpc/aws 1.10.0")
	r.Tags = "v{version}"
	want("another form of tags", b.checked(t, r), 2, "network/vpc/aws 1.10.0")
	if err := b.registry.RetractModule(t.Context(), address.Module{Namespace: "network", Name: "vpc", System: "aws"}, "1.10.0", "ann", "broken"); err != nil {
		t.Fatal(err)
	}
	want("a retraction", b.checked(t, r), 2, "network/vpc/aws 1.9.0")
	g.Do("push", "--quiet", "origin", "--delete", "v1.9.0", "v1.10.0")
	want("tags that are gone", b.checked(t, r), 2, "network/vpc/aws 1.9.0")
}

// While there is nothing new, a check costs the server one request.
func TestNothingNewCostsOneRequest(t *testing.T) {
	g, b := testkit.NewGit(t), newBench(t, t.TempDir())
	g.Username = ""
	g.Commit(module("one"))
	tag(g, "v1.0.0", "v1.1.0")
	var mu sync.Mutex
	var asked []string
	at, err := url.Parse(g.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.Method+" "+r.URL.Path)
		mu.Unlock()
		g.ServeHTTP(w, r)
	}))
	defer proxy.Close()
	r := b.register(g, func(r *Repository) { r.URL = proxy.URL + at.Path })
	b.checked(t, r)
	mu.Lock()
	asked = nil
	mu.Unlock()
	s := b.checked(t, r)
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"GET /repository.git/info/refs"}; !slices.Equal(asked, want) || s.Versions != 2 {
		t.Errorf("a check with nothing new asked for %q, want %q; the state is %+v", asked, want, s)
	}
}

// Directories of a monorepo are modules, each with versions of its own.
func TestMonorepo(t *testing.T) {
	g, b := testkit.NewGit(t), newBench(t, t.TempDir())
	g.Commit(map[string]string{
		"modules/vpc/main.tf": "", "modules/vpc/.env": "KEY=secret", "modules/vpc/terraform.tfstate": "{}", "modules/vpc/.terraformignore": ".env\nexamples/\n!examples/basic/\n",
		"modules/vpc/examples/large/main.tf": "", "modules/vpc/examples/basic/main.tf": "", "modules/vpc/.terraform/lock": "",
		"modules/dns/main.tf": "", "modules/open/main.tf": "", "modules/open/.env": "KEY=secret", "README.md": "",
	})
	tag(g, "vpc/v1.0.0", "dns/v0.3.0", "gone/v1.0.0", "open/v1.0.0", "v9.0.0")
	r := b.register(g, func(r *Repository) {
		r.Module, r.Tags, r.Directory = "{name}/aws", "{name}/{version}", "modules/{name}"
	})
	s := b.checked(t, r)
	b.wantVersions(t, "network/vpc/aws", "1.0.0")
	b.wantVersions(t, "network/dns/aws", "0.3.0")
	b.wantVersions(t, "network/gone/aws")
	b.wantVersions(t, "network/open/aws")
	if s.Versions != 2 || s.Skips != 3 || !strings.Contains(s.Skipped[0].Reason, "has no directory modules/gone") || !strings.Contains(s.Skipped[1].Reason, "often hold secrets: .env") || s.Error != "" {
		t.Errorf("the state is %+v", s)
	}
	if got, want := b.unpacked(t, "network/vpc/aws", "1.0.0"), []string{".terraformignore", "examples/basic/main.tf", "main.tf"}; !slices.Equal(got, want) {
		t.Errorf("the archive has %q, want %q", got, want)
	}
}

// What is no module is skipped with the reason, is not fetched again, and stops no other tag.
func TestTagsThatAreNoModules(t *testing.T) {
	g, b := testkit.NewGit(t), newBench(t, t.TempDir())
	g.Commit(map[string]string{"README.md": "no module"})
	tag(g, "v0.1.0")
	if err := os.Symlink("/etc/passwd", filepath.Join(strings.TrimSpace(g.Do("rev-parse", "--show-toplevel")), "out.tf")); err != nil {
		t.Fatal(err)
	}
	g.Do("add", "--all")
	g.Do("commit", "--quiet", "--message=link")
	g.Do("push", "--quiet", "origin", "main")
	tag(g, "v0.2.0")
	g.Commit(module("one"))
	tag(g, "v1.0.0")
	r := b.register(g, nil)
	s := b.checked(t, r)
	b.wantVersions(t, "network/vpc/aws", "1.0.0")
	got := map[string]string{}
	for _, skip := range s.Skipped {
		got[skip.Tag] = skip.Reason
	}
	if !strings.Contains(got["v0.1.0"], "it is no module") || !strings.Contains(got["v0.2.0"], "links that stay below the root") || s.Error != "" || s.Pending > 0 {
		t.Errorf("skipped are %q; the state is %+v", got, s)
	}
}

// Of an upload and a tag the first one is the version, and the other one is told.
func TestUploadsAndTags(t *testing.T) {
	g, b := testkit.NewGit(t), newBench(t, t.TempDir())
	vpc := address.Module{Namespace: "network", Name: "vpc", System: "aws"}
	upload := func(version address.Version, files map[string]string) error {
		dir := t.TempDir()
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var packed bytes.Buffer
		tree, err := source.OpenModule(dir, nil)
		if err == nil {
			err = tree.Pack(&packed)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.registry.PublishModule(t.Context(), vpc, version, registry.Upload{By: "ann", Content: &packed})
		return err
	}
	for version, text := range map[address.Version]string{"1.0.0": "one", "1.1.0": "other"} {
		if err := upload(version, module(text)); err != nil {
			t.Fatal(err)
		}
	}
	g.Commit(module("one"))
	tag(g, "v1.0.0", "v1.1.0", "v1.2.0")
	r := b.register(g, nil)
	s := b.checked(t, r)
	b.wantVersions(t, "network/vpc/aws", "1.0.0", "1.1.0", "1.2.0")
	if s.Versions != 2 || len(s.Problems) != 1 || s.Problems[0].Version != "1.1.0" || s.Problems[0].Reason != ReasonOther || !strings.Contains(s.Problems[0].Text, "which ann uploaded") {
		t.Errorf("the state is %+v, want the same bytes of 1.0.0 accepted, and 1.1.0 a problem", s)
	}
	again := b.checked(t, r)
	if len(again.Problems) != 1 || !again.Problems[0].Since.Equal(s.Problems[0].Since) {
		t.Errorf("after another check the problems are %+v, want them as they were", again.Problems)
	}
	err := upload("1.2.0", module("by hand"))
	if fault.Of(err) != fault.Conflict || !strings.Contains(err.Error(), "from the tag v1.2.0 of "+g.URL) {
		t.Errorf("an upload over a version of a tag: %v, want a conflict that names the tag", err)
	}
	if err := upload("1.2.0", module("one")); err != nil {
		t.Errorf("an upload of the same bytes as those of the tag: %v", err)
	}
}

// The first check of a repository with many tags takes them in turns, the newest first, and
// says how many are to come.
func TestManyTags(t *testing.T) {
	g, b := testkit.NewGit(t), newBench(t, t.TempDir())
	g.Commit(module("one"))
	for i := range 2*turnTags + 1 {
		g.Do("tag", fmt.Sprintf("v1.%d.0", i))
	}
	g.Do("push", "--quiet", "origin", "--tags")
	r := b.register(g, nil)
	s := b.checked(t, r)
	if s.Versions != turnTags || s.Pending != turnTags+1 || s.Next.After(b.clock()) {
		t.Errorf("after a turn the state is %+v, want %d versions, and the next turn at once", s, turnTags)
	}
	if all := b.versions(t, "network/vpc/aws"); all[0].Version != address.Version(fmt.Sprintf("1.%d.0", turnTags+1)) {
		t.Errorf("the oldest version after a turn is %s, want the newest tags first", all[0].Version)
	}
	b.checked(t, r)
	if s = b.checked(t, r); s.Versions != 2*turnTags+1 || s.Pending != 0 || !s.Next.After(b.clock()) {
		t.Errorf("after three turns the state is %+v", s)
	}
}

// A repository that cannot be read says why, and is tried again less and less often.
func TestRepositoriesThatFail(t *testing.T) {
	g, b := testkit.NewGit(t), newBench(t, t.TempDir())
	g.Commit(module("one"))
	tag(g, "v1.0.0")
	r := b.register(g, func(r *Repository) {
		r.Access = func(context.Context) (Access, error) {
			return Access{Auth: source.GitAuth{User: g.Username, Password: secret.New("wrong")}}, nil
		}
	})
	first, second := b.checked(t, r), b.checked(t, r)
	if !strings.Contains(first.Error, "a password of 5 bytes") || first.Failing.IsZero() || strings.Contains(first.Error, "wrong") {
		t.Errorf("the error is %q", first.Error)
	}
	if a, z := first.Next.Sub(first.Checked), second.Next.Sub(second.Checked); a < 27*time.Second || a > 33*time.Second || z < 54*time.Second || z > 66*time.Second {
		t.Errorf("it is tried again after %s and %s, want 30 s and a minute", a, z)
	}
	if got := b.told(); len(got) != 1 {
		t.Errorf("users were told %q, want the failure once", got)
	}
	r.Access = login(g)
	if s := b.checked(t, r); s.Error != "" || !s.Failing.IsZero() || s.Versions != 1 {
		t.Errorf("with the right password the state is %+v", s)
	}
	r.Module = "VPC"
	if s := b.checked(t, r); !strings.Contains(s.Error, "write NAME/SYSTEM") {
		t.Errorf("with an invalid name the error is %q", s.Error)
	}
}

// A server that never answers, and one that is away, stop no other repository, and however many
// of them a namespace has, they stop none of another namespace.
func TestOneRepositoryStopsNoOther(t *testing.T) {
	for name, tt := range map[string]struct {
		silent    int
		namespace string // of the repository that works
	}{
		"of its namespace":     {ofNamespace - 1, "network"},
		"of another namespace": {workers, "platform"},
	} {
		t.Run(name, func(t *testing.T) {
			g, b := testkit.NewGit(t), newBench(t, t.TempDir())
			g.Commit(module("one"))
			tag(g, "v1.0.0")
			ends := make(chan struct{})
			silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-ends }))
			defer silent.Close()
			defer close(ends)
			away := httptest.NewServer(nil)
			away.Close()
			for i := range tt.silent {
				b.register(g, func(r *Repository) { r.Name, r.URL = fmt.Sprintf("silent-%d", i), silent.URL+"/x.git" })
			}
			b.register(g, func(r *Repository) { r.Name, r.URL = "away", away.URL+"/x.git" })
			r := b.register(g, func(r *Repository) { r.Namespace, r.Name = tt.namespace, "works" })
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- b.Run(ctx) }()
			b.await(t, r, func(s State) bool { return s.Versions == 1 })
			stop()
			if err := <-ended; err != nil {
				t.Errorf("Run() = %v", err)
			}
			if n := b.running.places.Busy(); n != 0 {
				t.Errorf("after the end %d checks go on", n)
			}
		})
	}
}

// Two namespaces with many repositories whose servers never answer have all places, and the next
// place is for a third one.
func TestTwoNamespacesKeepNoThirdFromItsChecks(t *testing.T) {
	g, b := testkit.NewGit(t), newBench(t, t.TempDir())
	g.Commit(module("one"))
	tag(g, "v1.0.0")
	asked, first, rest := make(chan struct{}, 100), make(chan struct{}), make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		if strings.HasPrefix(r.URL.Path, "/first/") {
			<-first
		} else {
			<-rest
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	defer silent.Close()
	defer close(rest)
	answer := sync.OnceFunc(func() { close(first) })
	defer answer()
	for i := range workers {
		for _, namespace := range []string{"a", "b"} {
			path := "/rest/x.git"
			if i == 0 && namespace == "a" {
				path = "/first/x.git"
			}
			b.register(g, func(r *Repository) { r.Namespace, r.Name, r.URL = namespace, fmt.Sprint("silent-", i), silent.URL+path })
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	for range workers {
		<-asked
	}
	r := b.register(g, func(r *Repository) { r.Namespace, r.Name = "late", "works" })
	answer()
	b.await(t, r, func(s State) bool { return s.Versions == 1 })
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Run() = %v", err)
	}
}

// await waits until what is known of a repository is as a test wants it.
func (b *bench) await(t *testing.T, r Repository, is func(State) bool) State {
	t.Helper()
	deadline := time.NewTimer(5 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		s, err := b.state(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if is(s) {
			return s
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			b.mu.Lock()
			defer b.mu.Unlock()
			t.Fatalf("the state is %+v; the log is %s", s, b.log.String())
		}
	}
}

// A webhook that one replica takes makes the next check of the other one come at once, and
// many webhooks are one check.
func TestWebhooksOfAnotherReplica(t *testing.T) {
	dir := t.TempDir()
	g, b, other := testkit.NewGit(t), newBench(t, dir), newBench(t, dir)
	g.Commit(module("one"))
	tag(g, "v1.0.0")
	r := b.register(g, nil)
	other.register(g, nil)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- b.Run(ctx) }()
	first := b.await(t, r, func(s State) bool { return s.Versions == 1 })
	go func() { ended <- other.Run(ctx) }() // the first one has the lease

	tag(g, "v1.1.0")
	for range 3 {
		if err := other.Ask(t.Context(), r.Key); err != nil {
			t.Fatal(err)
		}
	}
	b.mu.Lock()
	b.now = b.now.Add(askedEvery) // long before the interval is over
	b.mu.Unlock()
	s := b.await(t, r, func(s State) bool { return s.Versions == 2 })
	if !s.Checked.After(first.Checked) || !b.clock().Before(first.Next) {
		t.Errorf("the states are %+v and %+v, want a check before the interval is over", first, s)
	}
	stop()
	for range 2 {
		if err := <-ended; err != nil {
			t.Errorf("Run() = %v", err)
		}
	}
	other.mu.Lock()
	defer other.mu.Unlock()
	if strings.Contains(other.log.String(), "module published") {
		t.Error("the replica without the lease published a module")
	}
}

// Only one replica has the lease. It ends with the replica, or when its time is over.
func TestLease(t *testing.T) {
	dir := t.TempDir()
	one, two := newBench(t, dir), newBench(t, dir)
	holds := func(b *bench, want bool) {
		t.Helper()
		if got, err := b.lease.hold(t.Context()); got != want || err != nil {
			t.Errorf("hold() = %v, %v, want %v", got, err, want)
		}
	}
	holds(one, true)
	holds(two, false)
	two.now = two.now.Add(leaseTries)
	holds(two, false)
	two.now = two.now.Add(leaseFor)
	holds(two, true)
	one.now = two.now
	holds(one, false)
	if err := two.lease.free(t.Context()); err != nil {
		t.Fatal(err)
	}
	one.now = one.now.Add(leaseTries)
	holds(one, true)
}

// What is verified is the signature of the tag, or of its commit, by a key of the user.
func TestSignedTags(t *testing.T) {
	g, b, signer := testkit.NewGit(t), newBench(t, t.TempDir()), testkit.NewSigner(t)
	keys := map[string][]byte{"release.asc": signer.Public}
	g.Commit(module("one"))
	g.Do("-c", "gpg.program="+signer.Program, "tag", "--sign", "--local-user="+signer.User, "--message=release", "v1.0.0")
	g.Do("push", "--quiet", "origin", "v1.0.0")
	tag(g, "v1.1.0")
	g.Do("tag", "v1.2.0")
	g.Do("push", "--quiet", "origin", "v1.2.0", "v1.0.0:refs/tags/v1.3.0")
	r := b.register(g, func(r *Repository) {
		r.Mode = "Tag"
		r.Access = func(ctx context.Context) (Access, error) {
			a, err := login(g)(ctx)
			a.Keys = keys
			return a, err
		}
	})
	s := b.checked(t, r)
	b.wantVersions(t, "network/vpc/aws", "1.0.0")
	got := map[string]string{}
	for _, skip := range s.Skipped {
		got[skip.Tag] = skip.Reason
	}
	for name, want := range map[string]string{"v1.1.0": "is not signed", "v1.2.0": "only an annotated tag", "v1.3.0": `a signed tag "v1.0.0"`} {
		if !strings.Contains(got[name], want) {
			t.Errorf("the tag %s is skipped for %q, want %q", name, got[name], want)
		}
	}
	if o := b.versions(t, "network/vpc/aws")[0].Origin; o.Signer == "" {
		t.Errorf("the version comes from %+v, want the key that signed it", o)
	}
	r.Mode = "TagAndHEAD"
	if s := b.checked(t, r); s.Skips != 3 || !strings.Contains(s.Skipped[0].Reason, "the commit") {
		t.Errorf("where commits have to be signed as well, the state is %+v", s)
	}

	// A commit that was signed once, under the name of a new version, is none.
	g.Do("-c", "gpg.program="+signer.Program, "commit", "--quiet", "--allow-empty", "--gpg-sign="+signer.User, "--message=old")
	g.Do("push", "--quiet", "origin", "HEAD:refs/tags/v9.9.9")
	for mode, want := range map[string]string{"HEAD": "verify.mode HEAD asks for the signature of the commit alone", "head": "write Tag", "Head": "is no mode"} {
		r.Mode = mode
		if s := b.checked(t, r); !strings.Contains(s.Error, want) {
			t.Errorf("with the mode %s the error is %q, want %q", mode, s.Error, want)
		}
	}
	for _, mode := range []string{"Tag", "TagAndHEAD"} {
		r.Mode = mode
		b.checked(t, r)
	}
	b.wantVersions(t, "network/vpc/aws", "1.0.0")
	keys = nil
	r.Requested = "again"
	if s := b.checked(t, r); !strings.Contains(s.Error, "no public key") {
		t.Errorf("without keys the error is %q", s.Error)
	}
}
