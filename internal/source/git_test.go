package source

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/secret"
)

// repository is a git repository made with the real git.
type repository struct {
	t        *testing.T
	root     string // the directory that is served
	dir      string // the bare repository, root/team/repo.git
	worktree string
}

func newRepository(t *testing.T) *repository {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	root := t.TempDir()
	r := &repository{t: t, root: root, dir: filepath.Join(root, "team", "repo.git"), worktree: t.TempDir()}
	r.git("init", "--quiet", "--bare", "--initial-branch=main", r.dir)
	r.git("init", "--quiet", "--initial-branch=main", r.worktree)
	r.git("remote", "add", "origin", r.dir)
	return r
}

func (r *repository) git(args ...string) string {
	r.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = r.worktree
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.root, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=c", "GIT_COMMITTER_EMAIL=c@example.com",
		"GIT_AUTHOR_DATE=2020-01-01T00:00:00Z", "GIT_COMMITTER_DATE=2020-01-01T00:00:00Z"}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		r.t.Fatalf("git %v: %v: %s", args, err, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

// commit writes files (with "-> target" for links and "x " for executables),
// commits and pushes everything there is, and returns the commit.
func (r *repository) commit(files map[string]string) string {
	r.t.Helper()
	for name, content := range files {
		p := filepath.Join(r.worktree, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			r.t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			err = os.Symlink(target, p)
		} else if text, ok := strings.CutPrefix(content, "x "); ok {
			err = os.WriteFile(p, []byte(text), 0o755)
		} else {
			err = os.WriteFile(p, []byte(content), 0o644)
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
	r.git("add", "--all", "--force")
	r.git("commit", "--quiet", "--allow-empty", "--message=change")
	r.push()
	return r.git("rev-parse", "HEAD")
}

func (r *repository) push() {
	r.git("push", "--quiet", "--force", "--all", "origin")
	r.git("push", "--quiet", "--force", "--tags", "origin")
}

// serve serves the repository over smart HTTP, as git itself does.
func (r *repository) serve(around func(http.Handler) http.Handler) string {
	r.t.Helper()
	path, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		r.t.Fatal(err)
	}
	var backend http.Handler = &cgi.Handler{
		Path:   filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"),
		Env:    []string{"GIT_PROJECT_ROOT=" + r.root, "GIT_HTTP_EXPORT_ALL=1", "HOME=" + r.root, "GIT_CONFIG_NOSYSTEM=1"},
		Stderr: io.Discard,
	}
	if around != nil {
		backend = around(backend)
	}
	s := httptest.NewServer(backend)
	r.t.Cleanup(s.Close)
	return s.URL + "/team/repo.git"
}

// only lets requests through that authorized accepts.
func only(authorized func(*http.Request) bool) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !authorized(r) {
				w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
				http.Error(w, "no", http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

func TestGitReferences(t *testing.T) {
	r := newRepository(t)
	first := r.commit(map[string]string{"main.tf": "1"})
	r.git("tag", "v1.0.0")
	second := r.commit(map[string]string{"main.tf": "2"})
	r.git("tag", "-a", "-m", "annotated", "v1.1.0")
	third := r.commit(map[string]string{"main.tf": "3"})
	r.git("tag", "v2.0.0-rc.1")
	r.git("branch", "master", first)
	r.git("branch", "release", second)
	r.push()
	url := r.serve(nil)

	for name, tt := range map[string]struct {
		ref      GitRef
		revision string
		content  string
		kind     fault.Kind
	}{
		"nothing means master":                  {GitRef{}, "master@sha1:" + first, "1", ""},
		"a branch":                              {GitRef{Branch: "main"}, "main@sha1:" + third, "3", ""},
		"a tag":                                 {GitRef{Tag: "v1.0.0"}, "v1.0.0@sha1:" + first, "1", ""},
		"an annotated tag leads to its commit":  {GitRef{Tag: "v1.1.0"}, "v1.1.0@sha1:" + second, "2", ""},
		"a range takes the highest tag":         {GitRef{SemVer: ">=1.0.0"}, "v1.1.0@sha1:" + second, "2", ""},
		"a range that wants pre-releases":       {GitRef{SemVer: ">=1.0.0-0"}, "v2.0.0-rc.1@sha1:" + third, "3", ""},
		"a full name":                           {GitRef{Name: "refs/heads/release"}, "refs/heads/release@sha1:" + second, "2", ""},
		"a commit that a branch leads to":       {GitRef{Commit: third}, "sha1:" + third, "3", ""},
		"a commit in a branch":                  {GitRef{Commit: third, Branch: "main"}, "main@sha1:" + third, "3", ""},
		"a range wins over a tag":               {GitRef{SemVer: "1.0.x", Tag: "v1.1.0"}, "v1.0.0@sha1:" + first, "1", ""},
		"a commit wins over everything":         {GitRef{Commit: first, Name: "refs/heads/main", Tag: "v1.1.0"}, "sha1:" + first, "1", ""},
		"a branch that is not there is missing": {GitRef{Branch: "gone"}, "", "", fault.Missing},
		"a tag that is not there is missing":    {GitRef{Tag: "main"}, "", "", fault.Missing},
		"a range without a tag is missing":      {GitRef{SemVer: "9.x"}, "", "", fault.Missing},
		"a range that is none is invalid":       {GitRef{SemVer: "newest"}, "", "", fault.Invalid},
		"a short commit is invalid":             {GitRef{Commit: first[:12]}, "", "", fault.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			revision, tree, err := fetch(t, &Git{URL: url, Ref: tt.ref, Out: loopback(t), Scratch: scratchDir(t)})
			if got := fault.Of(err); got != tt.kind || revision != tt.revision || tree["main.tf"] != tt.content {
				t.Errorf("fetch() = %q, %q, %v, want %q, %q, kind %q", revision, tree["main.tf"], err, tt.revision, tt.content, tt.kind)
			}
		})
	}
}

func TestGitCommitThatNoReferencePointsTo(t *testing.T) {
	for name, allow := range map[string]string{"the server hands it out": "true", "the server hands out references only": "false"} {
		t.Run(name, func(t *testing.T) {
			r := newRepository(t)
			old := r.commit(map[string]string{"main.tf": "old"})
			r.commit(map[string]string{"main.tf": "new"})
			r.git("--git-dir="+r.dir, "config", "uploadpack.allowReachableSHA1InWant", allow)
			url := r.serve(nil)
			for _, branch := range []string{"", "main"} {
				_, tree, err := fetch(t, &Git{URL: url, Ref: GitRef{Commit: old, Branch: branch}, Out: loopback(t), Scratch: scratchDir(t)})
				if err != nil || tree["main.tf"] != "old" {
					t.Errorf("fetch() with branch %q = %v, %v, want the old file", branch, tree, err)
				}
			}
			nowhere := strings.Repeat("0", 39) + "1"
			if _, _, err := fetch(t, &Git{URL: url, Ref: GitRef{Commit: nowhere}, Out: loopback(t), Scratch: scratchDir(t)}); err == nil {
				t.Error("a commit that is nowhere is found")
			}
		})
	}
}

func TestGitTree(t *testing.T) {
	r := newRepository(t)
	r.commit(map[string]string{
		"main.tf": "a", "run.sh": "x b", "modules/net/main.tf": "c", "link.tf": "-> modules/net/main.tf",
		"picture.png": "d", ".github/ci.yml": "e", ".gitignore": "f", "docs/readme.md": "g",
	})
	r.git("update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("1", 40)+",submodule")
	r.git("commit", "--quiet", "-m", "submodule")
	r.push()
	url := r.serve(nil)
	everything := map[string]string{
		"main.tf": "a", "run.sh": "x b", "modules/net/main.tf": "c", "link.tf": "c",
		"picture.png": "d", ".github/ci.yml": "e", "docs/readme.md": "g",
	}
	without := func(names ...string) map[string]string {
		m := map[string]string{}
		for name, content := range everything {
			m[name] = content
		}
		for _, n := range names {
			delete(m, n)
		}
		return m
	}
	rules := "docs/\n/*.sh\n"
	for name, tt := range map[string]struct {
		ignore *string
		sparse []string
		want   map[string]string
	}{
		"Flux's exclusions":                    {nil, nil, without("picture.png", ".github/ci.yml")},
		"rules of one's own replace them":      {&rules, nil, without("docs/readme.md", "run.sh")},
		"only the directories that are wanted": {nil, []string{"./modules/net", "docs/"}, map[string]string{"modules/net/main.tf": "c", "docs/readme.md": "g"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := &Git{URL: url, Ref: GitRef{Branch: "main"}, Ignore: tt.ignore, Sparse: tt.sparse, Out: loopback(t), Scratch: scratchDir(t)}
			_, tree, err := fetch(t, g)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, tree); diff != "" {
				t.Errorf("the tree differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGitArtifactIsDeterministic(t *testing.T) {
	r := newRepository(t)
	r.commit(map[string]string{"main.tf": "a", "b/c.tf": "x d"})
	url := r.serve(nil)
	var artifacts [2]bytes.Buffer
	for i := range artifacts {
		g := &Git{URL: url, Ref: GitRef{Branch: "main"}, Out: loopback(t), Scratch: scratchDir(t)}
		found, err := g.Resolve(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Fetch(context.Background(), found, &artifacts[i]); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(artifacts[0].Bytes(), artifacts[1].Bytes()) {
		t.Error("fetching the same commit twice makes two artifacts")
	}
}

func TestGitRefusesHostileTrees(t *testing.T) {
	for name, plant := range map[string]func(r *repository){
		"a link that leads out": func(r *repository) { r.commit(map[string]string{"out": "-> ../../../etc/passwd"}) },
		"an absolute link":      func(r *repository) { r.commit(map[string]string{"passwd": "-> /etc/passwd"}) },
		"a name with a slash":   func(r *repository) { r.pushTree("100644 blob", "../evil") },
		"a name that goes up":   func(r *repository) { r.pushTree("040000 tree", "..") },
		"a .git directory":      func(r *repository) { r.pushTree("040000 tree", ".git") },
		"a .GIT directory":      func(r *repository) { r.pushTree("040000 tree", ".GIT") },
		"the same name twice":   func(r *repository) { r.pushTree("100644 blob", "a", "a") },
		"a file beneath a link": func(r *repository) { r.pushTree("120000 blob", "a", "a") },
		"too large a file":      func(r *repository) { r.commit(map[string]string{"large": strings.Repeat("x", 2000)}) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRepository(t)
			plant(r)
			g := &Git{URL: r.serve(nil), Ref: GitRef{Branch: "main"}, Out: loopback(t), Scratch: scratchDir(t), Limits: archive.Limits{File: 1000}}
			if _, tree, err := fetch(t, g); fault.Of(err) != fault.Invalid {
				t.Errorf("fetch() = %v, %v, of kind %q, want Invalid", tree, err, fault.Of(err))
			}
		})
	}
}

// pushTree pushes a tree object that git itself would not make: it holds one
// entry of the given mode and kind under each name.
func (r *repository) pushTree(modeAndKind string, names ...string) {
	r.t.Helper()
	blob := r.pipe("content", "hash-object", "-w", "--stdin")
	object := blob
	if strings.HasSuffix(modeAndKind, "tree") {
		object = r.pipe(fmt.Sprintf("100644 blob %s\tf\n", blob), "mktree")
	}
	mode, _, _ := strings.Cut(modeAndKind, " ")
	var raw bytes.Buffer
	for _, name := range names {
		fmt.Fprintf(&raw, "%s %s\x00%s", strings.TrimPrefix(mode, "0"), name, unhex(r.t, object))
	}
	tree := r.pipe(raw.String(), "hash-object", "-w", "-t", "tree", "--literally", "--stdin")
	commit := r.git("commit-tree", "-m", "hostile", tree)
	r.git("update-ref", "refs/heads/main", commit)
	// Git would refuse to push it; hostile servers are under no such rule.
	if err := os.CopyFS(filepath.Join(r.dir, "objects"), os.DirFS(filepath.Join(r.worktree, ".git", "objects"))); err != nil {
		r.t.Fatal(err)
	}
	r.git("--git-dir="+r.dir, "update-ref", "refs/heads/main", commit)
}

func (r *repository) pipe(stdin string, args ...string) string {
	r.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stdin = r.worktree, strings.NewReader(stdin)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.root, "GIT_CONFIG_NOSYSTEM=1"}
	out, err := cmd.Output()
	if err != nil {
		r.t.Fatalf("git %v: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}

func unhex(t *testing.T, s string) string {
	t.Helper()
	var b []byte
	if _, err := fmt.Sscanf(s, "%x", &b); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestGitCredentials(t *testing.T) {
	r := newRepository(t)
	r.commit(map[string]string{"main.tf": "a"})
	basic := r.serve(only(func(req *http.Request) bool {
		user, password, _ := req.BasicAuth()
		return user == "u" && password == "canary"
	}))
	bearer := r.serve(only(func(req *http.Request) bool { return req.Header.Get("Authorization") == "Bearer canary" }))
	for name, tt := range map[string]struct {
		url  string
		data map[string][]byte
		kind fault.Kind
	}{
		"user and password":  {basic, map[string][]byte{"username": []byte("u"), "password": []byte("canary")}, ""},
		"a bearer token":     {bearer, map[string][]byte{"bearerToken": []byte("canary\n")}, ""},
		"the wrong password": {basic, map[string][]byte{"username": []byte("u"), "password": []byte("wrong-canary")}, fault.Denied},
		"nothing":            {basic, nil, fault.Denied},
	} {
		t.Run(name, func(t *testing.T) {
			g := &Git{URL: tt.url, Ref: GitRef{Branch: "main"}, Auth: GitAuthFrom(tt.data), Out: loopback(t), Scratch: scratchDir(t)}
			_, _, err := fetch(t, g)
			if got := fault.Of(err); got != tt.kind {
				t.Errorf("fetch() = %v, of kind %q, want %q", err, got, tt.kind)
			}
			if err != nil && (strings.Contains(err.Error(), "canary") || fault.Reason(err, "") != ReasonAuth) {
				t.Errorf("fetch() = %v, want the reason %s and no secret", err, ReasonAuth)
			}
		})
	}
}

func TestGitCredentialsDoNotFollowRedirects(t *testing.T) {
	r := newRepository(t)
	r.commit(map[string]string{"main.tf": "a"})
	var hits, secrets atomic.Int32
	other := r.serve(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			hits.Add(1)
			if req.Header.Get("Authorization") != "" {
				secrets.Add(1)
			}
			next.ServeHTTP(w, req)
		})
	})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, strings.TrimSuffix(other, "/team/repo.git")+req.URL.Path+"?"+req.URL.RawQuery, http.StatusFound)
	}))
	t.Cleanup(front.Close)
	for name, data := range map[string]map[string][]byte{
		"basic":  {"username": []byte("u"), "password": []byte("canary")},
		"bearer": {"bearerToken": []byte("canary")},
	} {
		t.Run(name, func(t *testing.T) {
			g := &Git{URL: front.URL + "/team/repo.git", Ref: GitRef{Branch: "main"}, Auth: GitAuthFrom(data), Out: loopback(t), Scratch: scratchDir(t)}
			if _, tree, err := fetch(t, g); err != nil || tree["main.tf"] != "a" {
				t.Errorf("fetch() = %v, %v, want the redirect followed", tree, err)
			}
		})
	}
	if hits.Load() == 0 || secrets.Load() != 0 {
		t.Errorf("the other server got %d requests, %d with credentials, want some and 0", hits.Load(), secrets.Load())
	}
}

func TestGitURLs(t *testing.T) {
	for _, url := range []string{
		"", "--upload-pack=touch /tmp/evil", "-u", "ext::sh -c id", "file:///etc", "/etc", "git@example.com:team/repo.git",
		"git://example.com/repo", "ftp://example.com/repo", "ssh://-oProxyCommand=id/repo", "https://-x/repo", "https:///repo", "https://example.com",
		"https://user:canary@example.com/repo", "https://canary@example.com/repo", "ssh://git:canary@example.com/repo",
		"https://example.com/repo?x=canary", "https://example.com/repo#x", "https:example.com/repo", "HTTPS://[::1/repo canary", "javascript:alert(1)",
	} {
		g := &Git{URL: url, Ref: GitRef{Branch: "main"}, Out: loopback(t), Scratch: scratchDir(t)}
		_, err := g.Resolve(context.Background())
		if fault.Of(err) != fault.Invalid || fault.Reason(err, "") != ReasonURL {
			t.Errorf("Resolve(%q) = %v, want it refused for its URL", url, err)
		}
		if err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("Resolve(%q) = %v, which quotes a secret", url, err)
		}
	}
}

func TestGitObeysThePolicy(t *testing.T) {
	r := newRepository(t)
	r.commit(map[string]string{"main.tf": "a"})
	url := r.serve(nil)
	allow, err := outbound.ParseAllow("127.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		policy outbound.Policy
		reason string
	}{
		"http is not allowed":     {outbound.Policy{Allow: allow}, outbound.ReasonInsecure},
		"loopback is not allowed": {outbound.Policy{PlainHTTP: true}, outbound.ReasonAddress},
	} {
		t.Run(name, func(t *testing.T) {
			out := outbound.New(tt.policy)
			t.Cleanup(out.Close)
			_, err := (&Git{URL: url, Ref: GitRef{Branch: "main"}, Out: out, Scratch: scratchDir(t)}).Resolve(context.Background())
			if fault.Of(err) != fault.Denied || fault.Reason(err, "") != tt.reason {
				t.Errorf("Resolve() = %v, want it denied as %s", err, tt.reason)
			}
		})
	}
}

func TestGitMissing(t *testing.T) {
	r := newRepository(t)
	empty := r.serve(nil)
	for name, url := range map[string]string{"an empty repository": empty, "no repository": strings.Replace(empty, "repo.git", "gone.git", 1)} {
		_, err := (&Git{URL: url, Ref: GitRef{Branch: "main"}, Out: loopback(t), Scratch: scratchDir(t)}).Resolve(context.Background())
		if fault.Of(err) != fault.Missing {
			t.Errorf("%s: Resolve() = %v, want Missing", name, err)
		}
	}
}

func TestGitEndsWithItsContext(t *testing.T) {
	hung := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-hung:
		}
	}))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(hung) })
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := (&Git{URL: s.URL + "/repo", Ref: GitRef{Branch: "main"}, Out: loopback(t), Scratch: scratchDir(t)}).Resolve(ctx)
	if err == nil || ctx.Err() == nil {
		t.Errorf("Resolve() = %v, want it to end at the deadline", err)
	}
}

func TestGitAuthFrom(t *testing.T) {
	got := GitAuthFrom(map[string][]byte{"caFile": []byte("old"), "ca.crt": []byte("new"), "tls.crt": []byte("c"), "tls.key": []byte("k"), "identity": []byte("i"), "known_hosts": []byte("h")})
	want := GitAuth{CA: []byte("new"), Cert: []byte("c"), Key: secret.New("k"), Identity: secret.New("i"), KnownHosts: []byte("h")}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b secret.Text) bool { return a == b })); diff != "" {
		t.Errorf("GitAuthFrom() differs (-want +got):\n%s", diff)
	}
}
