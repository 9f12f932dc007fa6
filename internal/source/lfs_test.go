package source

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/secret"
)

// lfs is a server of Git LFS in front of a git server, and the store that it
// leads to: another host, as far as credentials are concerned.
type lfs struct {
	contents map[string]string // by digest
	store    *httptest.Server
	say      func(oid string) map[string]any // in place of an action

	mu    sync.Mutex
	shown []string // credentials that the store was shown
	asked int      // batches
}

func newLFS(t *testing.T, contents ...string) *lfs {
	l := &lfs{contents: map[string]string{}}
	for _, c := range contents {
		l.contents[oid(c)] = c
	}
	l.store = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.shown = append(l.shown, r.Header.Get("Authorization"))
		if r.Header.Get("X-Store") != "token-of-the-store" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = io.WriteString(w, l.contents[strings.TrimPrefix(r.URL.Path, "/")])
	}))
	t.Cleanup(l.store.Close)
	return l
}

func oid(content string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(content))) }

func pointer(content string) string {
	return fmt.Sprintf("version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n", oid(content), len(content))
}

// before answers batches, and leaves all else to git.
func (l *lfs) before(git http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "u" || password != "canary" {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.URL.Path != "/team/repo.git/info/lfs/objects/batch" {
			git.ServeHTTP(w, r)
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.asked++
		var ask struct {
			Operation string
			Objects   []struct {
				OID  string
				Size int64
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&ask); err != nil || ask.Operation != "download" || r.Header.Get("Accept") != "application/vnd.git-lfs+json" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		var objects []map[string]any
		for _, o := range ask.Objects {
			answer := map[string]any{"actions": map[string]any{"download": map[string]any{"href": l.store.URL + "/" + o.OID, "header": map[string]string{"X-Store": "token-of-the-store"}}}}
			if l.say != nil {
				answer = l.say(o.OID)
			}
			answer["oid"], answer["size"] = o.OID, o.Size
			objects = append(objects, answer)
		}
		w.Header().Set("Content-Type", "application/vnd.git-lfs+json")
		_ = json.NewEncoder(w).Encode(map[string]any{"transfer": "basic", "objects": objects})
	})
}

// Files of Git LFS have their content; the credentials of the source stay at its
// origin, and what is left out is not fetched.
func TestGitLFS(t *testing.T) {
	large := strings.Repeat("large\n", 1000)
	r := newRepository(t)
	r.commit(map[string]string{
		"main.tf": "a", "data/large.bin": pointer(large), "run.sh": "x " + pointer("#!/bin/sh\n"), "link": "-> data/large.bin",
		"picture.png": pointer("a picture that is not kept"), "almost": "version https://git-lfs.github.com/spec/v1\nno pointer\n",
	})
	l := newLFS(t, large, "#!/bin/sh\n")
	g := &Git{URL: r.serve(l.before), Ref: GitRef{Branch: "main"}, Out: loopback(t), Scratch: scratchDir(t),
		Auth: GitAuthFrom(map[string][]byte{"username": []byte("u\n"), "password": []byte("canary\r\n")})}
	_, tree, err := fetch(t, g)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"main.tf": "a", "data/large.bin": large, "run.sh": "x #!/bin/sh\n", "link": large,
		"almost": "version https://git-lfs.github.com/spec/v1\nno pointer\n"}
	if diff := cmp.Diff(want, tree); diff != "" {
		t.Errorf("the tree differs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"", ""}, l.shown); diff != "" || l.asked != 1 {
		t.Errorf("after %d batches the store was shown (-want +got):\n%s", l.asked, diff)
	}

	for name, c := range map[string]struct {
		say    func(oid string) map[string]any
		limits archive.Limits
		kind   fault.Kind
		want   string
	}{
		"an object that is gone": {kind: fault.Missing, want: `the server says of the object`, say: func(string) map[string]any {
			return map[string]any{"error": map[string]any{"code": 404, "message": "no such object"}}
		}},
		"a store that wants to know who asks": {kind: fault.Denied, want: "403 Forbidden", say: func(oid string) map[string]any {
			return map[string]any{"actions": map[string]any{"download": map[string]any{"href": l.store.URL + "/" + oid}}}
		}},
		"another content": {kind: fault.Invalid, want: "as long as it claims", say: func(string) map[string]any {
			return map[string]any{"actions": map[string]any{"download": map[string]any{"href": l.store.URL + "/" + oid("#!/bin/sh\n"), "header": map[string]string{"X-Store": "token-of-the-store"}}}}
		}},
		"an address of this machine": {kind: fault.Denied, want: "169.254.169.254", say: func(string) map[string]any {
			return map[string]any{"actions": map[string]any{"download": map[string]any{"href": "http://169.254.169.254/latest"}}}
		}},
		"a store that does not answer": {kind: fault.Broken, want: "connection refused", say: func(string) map[string]any {
			return map[string]any{"actions": map[string]any{"download": map[string]any{"href": "http://127.0.0.1:1/x?X-Amz-Signature=canary"}}}
		}},
		"no address":     {kind: fault.Missing, want: "does not say where", say: func(string) map[string]any { return map[string]any{} }},
		"more than fits": {kind: fault.Invalid, want: "data/large.bin", limits: archive.Limits{File: 5000}},
	} {
		t.Run(name, func(t *testing.T) {
			l.say, g.Limits = c.say, c.limits
			_, tree, err := fetch(t, g)
			if fault.Of(err) != c.kind || !strings.Contains(fmt.Sprint(err), c.want) || !strings.Contains(fmt.Sprint(err), `the file "data/large.bin" is kept in Git LFS`) {
				t.Errorf("fetch() = %v, %v of kind %q; want kind %q, the file's name and %q", tree, err, fault.Of(err), c.kind, c.want)
			}
			if strings.Contains(fmt.Sprint(err), "canary") {
				t.Errorf("fetch() = %v, which shows a secret", err)
			}
		})
	}
}

// An address over http is not followed for a source over https, also where http
// is allowed.
func TestGitLFSStaysEncrypted(t *testing.T) {
	l := newLFS(t, "large")
	at := lfsAction{Href: l.store.URL + "/" + oid("large"), Header: map[string]string{"X-Store": "token-of-the-store"}}
	source := &url.URL{Scheme: "https", Host: "git.example.com", Path: "/team/repo"}
	err := lfsDownload(t.Context(), l.store.Client(), source, lfsFile{name: "large.bin"}, at, nil)
	if fault.Of(err) != fault.Denied || fault.Reason(err, "") != outbound.ReasonInsecure {
		t.Errorf("lfsDownload() = %v, want it denied as insecure", err)
	}
	if len(l.shown) != 0 {
		t.Errorf("the store was asked %d times, want 0", len(l.shown))
	}
}

// A server without LFS, or another way to it, does not let a pointer pass.
func TestPointersAreNotContent(t *testing.T) {
	r := newRepository(t)
	r.commit(map[string]string{"main.tf": "a", "b.bin": pointer("b")})
	_, tree, err := fetch(t, &Git{URL: r.serve(nil), Ref: GitRef{Branch: "main"}, Out: loopback(t), Scratch: scratchDir(t)})
	if err == nil || !strings.Contains(err.Error(), `the file "b.bin" is kept in Git LFS`) {
		t.Errorf("fetch() = %v, %v; want a refusal that names the file", tree, err)
	}
	g := &Git{URL: "ssh://git@example.com/team/repo.git", Out: loopback(t)}
	if err := g.fetchLFS(t.Context(), g.URL, []lfsFile{{name: "b.bin"}}, nil); fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), "over https only") {
		t.Errorf("over ssh: %v, want a refusal that says what to do", err)
	}
}

// A refusal says what was sent, and no value of it.
func TestARefusalSaysWhatWasSent(t *testing.T) {
	at := newRepository(t).serve(only(func(*http.Request) bool { return false }))
	for want, auth := range map[string]GitAuth{
		"no credential was sent: set spec.secretRef":                 {},
		"a username of 12 bytes and a password of 6 bytes were sent": GitAuthFrom(map[string][]byte{"username": []byte("token-canary"), "password": []byte("canary\n")}),
		"a username of 12 bytes was sent, and no password":           GitAuthFrom(map[string][]byte{"username": []byte("token-canary")}),
		"a password of 6 bytes was sent, and no username":            {Password: secret.New("canary")},
		"a bearer token of 6 bytes was sent":                         {Bearer: secret.New("canary")},
	} {
		_, err := (&Git{URL: at, Ref: GitRef{Branch: "main"}, Auth: auth, Out: loopback(t), Scratch: scratchDir(t)}).Resolve(t.Context())
		if fault.Of(err) != fault.Denied || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("Resolve() = %v, want it denied with %q", err, want)
		}
	}
}
