package source

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
)

// pushable lets clients of the repository push.
func (r *repository) pushable() *repository {
	r.t.Helper()
	r.git("-C", r.dir, "config", "http.receivepack", "true")
	return r
}

// of is what a branch of the repository has at a path.
func (r *repository) of(branch, path string) string {
	r.t.Helper()
	return r.git("-C", r.dir, "show", branch+":"+path)
}

// file is a file of the repository at a URL.
func (r *repository) file(url, branch, path string) *GitFile {
	return &GitFile{Git: &Git{URL: url, Out: loopback(r.t), Scratch: scratchDir(r.t)}, Branch: branch, Path: path}
}

func changeTo(content string) GitChange {
	return GitChange{Content: []byte(content), Message: "store " + content + "\n", Author: "Terrier", Email: "t@example.com", At: time.Unix(1700000000, 0)}
}

// A file is read at the tip of its branch and written on top of it, in a repository that is
// empty and in one that is not. What lies beside it stays, and so does the history.
func TestAFileOfABranch(t *testing.T) {
	r := newRepository(t).pushable()
	url := r.serve(nil)
	identity, client := privateKey(t, "")
	host, _ := newSigner(t, "ed25519")
	s := r.serveSSH(client, host)
	s.Pushes.Store(true)
	overSSH := &Git{URL: s.url(), Auth: GitAuth{Identity: identity, KnownHosts: s.known(host)}, Out: loopback(t), Scratch: scratchDir(t)}
	f := r.file(url, "states", "states/apps/net.tfstate")
	none, err := f.Read(t.Context(), GitTip{})
	if err != nil || none.Blob != "" || none.Commit != "" {
		t.Fatalf("Read() of an empty repository = %+v, %v", none, err)
	}
	one, err := f.Write(t.Context(), none, changeTo("one"))
	if err != nil || r.of("states", f.Path) != "one" || r.git("-C", r.dir, "rev-parse", "states") != one.Commit {
		t.Fatalf("Write() = %+v, %v", one, err)
	}
	main := r.commit(map[string]string{"main.tf": "1"})
	other := r.file(url, "states", "states/other.tfstate")
	other.Git = overSSH
	if _, err := other.Write(t.Context(), GitTip{}, changeTo("beside")); err != nil {
		t.Fatalf("Write() of another file over ssh: %v", err)
	}
	two, err := f.Write(t.Context(), one, changeTo("two")) // the branch has moved since
	if err != nil || r.of("states", f.Path) != "two" || r.of("states", other.Path) != "beside" || r.git("-C", r.dir, "rev-parse", "main") != main {
		t.Fatalf("Write() = %+v, %v", two, err)
	}
	if log := r.git("-C", r.dir, "log", "--format=%an %ae %s", "states"); log != "Terrier t@example.com store two\nTerrier t@example.com store beside\nTerrier t@example.com store one" {
		t.Errorf("the history is\n%s", log)
	}
	r.git("-C", r.dir, "fsck", "--strict")
	g := *f
	g.Git = overSSH
	for name, f := range map[string]*GitFile{"http": f, "ssh": &g} {
		if got, err := f.Read(t.Context(), one); err != nil || string(got.Content) != "two" || got.Commit != two.Commit || got.Blob != two.Blob {
			t.Errorf("Read() over %s = %+v, %v", name, got, err)
		}
	}
	known := GitTip{Commit: two.Commit, Content: []byte("known")}
	if got, err := f.Read(t.Context(), known); err != nil || string(got.Content) != "known" {
		t.Errorf("Read() where nothing changed = %+v, %v; want what is known", got, err)
	}

	if _, err := f.Write(t.Context(), one, changeTo("three")); fault.Reason(err, "") != ReasonFileChanged || fault.Of(err) != fault.Conflict {
		t.Errorf("Write() over an older file = %v, want a conflict", err)
	}
	if _, err := f.Write(t.Context(), GitTip{}, changeTo("three")); fault.Reason(err, "") != ReasonFileChanged {
		t.Errorf("Write() over nothing = %v, want a conflict", err)
	}
	r.git("-C", r.dir, "update-ref", "-d", "refs/heads/states")
	if got, err := f.Read(t.Context(), two); err != nil || got.Blob != "" {
		t.Errorf("Read() of a branch that was deleted = %+v, %v", got, err)
	}
	if _, err := f.Write(t.Context(), two, changeTo("three")); fault.Reason(err, "") != ReasonFileChanged {
		t.Errorf("Write() into a branch that was deleted = %v, want a conflict", err)
	}
}

// Writers of different files of one branch all come to an end, and of those of one file one
// wins.
func TestWritersOfABranchRace(t *testing.T) {
	r := newRepository(t).pushable()
	url := r.serve(nil)
	const writers = 4
	var all sync.WaitGroup
	errs := make([]error, 2*writers)
	for i := range writers {
		own, one := r.file(url, "states", fmt.Sprintf("own/%d", i)), r.file(url, "one", "file")
		all.Go(func() { _, errs[i] = own.Write(t.Context(), GitTip{}, changeTo(fmt.Sprint(i))) })
		all.Go(func() { _, errs[writers+i] = one.Write(t.Context(), GitTip{}, changeTo(fmt.Sprint(i))) })
	}
	all.Wait()
	won := 0
	for i, err := range errs {
		switch {
		case i < writers && err != nil:
			t.Errorf("the writer of a file of its own: %v", err)
		case i >= writers && err == nil:
			won++
		case i >= writers && fault.Reason(err, "") != ReasonFileChanged:
			t.Errorf("a writer of the file of others: %v, want a conflict", err)
		}
	}
	if won != 1 {
		t.Errorf("%d writers of one file won, want one", won)
	}
	if n := r.git("-C", r.dir, "rev-list", "--count", "states"); n != fmt.Sprint(writers) {
		t.Errorf("the branch has %s commits, want one of each writer", n)
	}
}

func TestAPushThatIsRefused(t *testing.T) {
	r := newRepository(t).pushable()
	hook := filepath.Join(r.dir, "hooks", "pre-receive")
	if err := os.MkdirAll(filepath.Dir(hook), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(hook, []byte("#!/bin/sh\necho 'this branch is protected' >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := r.file(r.serve(nil), "states", "a").Write(t.Context(), GitTip{}, changeTo("one"))
	if fault.Of(err) != fault.Denied || fault.Reason(err, "") != ReasonPush || !strings.Contains(err.Error(), "this branch is protected") {
		t.Errorf("Write() = %v, want Denied in the words of the server", err)
	}

	// Credentials that may only read are found before there is something to write.
	reads := newRepository(t)
	reads.git("-C", reads.dir, "config", "http.receivepack", "false")
	url := reads.serve(only(func(q *http.Request) bool { _, _, ok := q.BasicAuth(); return ok }))
	f := reads.file(url, "states", "a")
	f.Git.Auth = GitAuth{User: "u", Password: secret.New("p")}
	if _, err := f.Read(t.Context(), GitTip{}); fault.Reason(err, "") != ReasonAuth {
		t.Errorf("Read() with credentials that may not push = %v, want them refused", err)
	}
	f.Git.Auth = GitAuth{}
	if _, err := f.Read(t.Context(), GitTip{}); fault.Reason(err, "") != ReasonAuth {
		t.Errorf("Read() without credentials = %v, want them refused", err)
	}
}

// What is at the path of the file and is no file is not read, and nothing takes its place.
func TestWhatIsNoFileOfABranch(t *testing.T) {
	r := newRepository(t).pushable()
	r.commit(map[string]string{"dir/file": "x", "link": "-> dir/file"})
	url := r.serve(nil)
	for _, path := range []string{"dir", "link"} {
		if _, err := r.file(url, "main", path).Read(t.Context(), GitTip{}); fault.Of(err) != fault.Invalid {
			t.Errorf("Read() of %s = %v, want it to be invalid", path, err)
		}
	}
	if _, err := r.file(url, "main", "dir/file/below").Write(t.Context(), GitTip{}, changeTo("y")); fault.Of(err) != fault.Invalid {
		t.Errorf("Write() below a file = %v, want it to be invalid", err)
	}
	if got := r.of("main", "dir/file"); got != "x" {
		t.Errorf("the file is %q afterwards", got)
	}
}
