package source

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/location"
)

// publishedKeys are the fingerprints that the hosts publish in their documentation.
var publishedKeys = []string{
	"github.com ssh-ed25519 SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU",
	"github.com ecdsa-sha2-nistp256 SHA256:p2QAMXNIC1TJYWeIOttrVc98/R1BUFWu3/LiyKgUfQM",
	"github.com ssh-rsa SHA256:uNiVztksCsDhcc0u9e8BujQXVUpKZIDTMczCvj3tD2s",
	"gitlab.com ssh-ed25519 SHA256:eUXGGm1YGsMAS7vkcx6JOJdOGHPem5gQp4taiCfCLB8",
	"gitlab.com ecdsa-sha2-nistp256 SHA256:HbW3g8zUjNSksFbqTiUWPWg2Bq1x8xdGUrliXFzSnUw",
	"gitlab.com ssh-rsa SHA256:ROQFvPThGrW4RuWLoL9tq9I9zJ42fK4XywyRtbOz/EQ",
	"bitbucket.org ssh-ed25519 SHA256:ybgmFkzwOSotHTHLJgHO0QN8L0xErw6vd0VhFA9m3SM",
	"bitbucket.org ecdsa-sha2-nistp256 SHA256:FC73VB6C4OQLSCrjEayhMp9UMxS97caD/Yyi2bhW/J0",
	"bitbucket.org ssh-rsa SHA256:46OSHA1Rmj8E8ERTC6xkNcmGOw9oFxYr0WF6zWW8l1E",
}

func TestPublicHostsHaveTheirKeys(t *testing.T) {
	var got []string
	for rest := publicHosts; len(rest) > 0; {
		_, hosts, key, _, next, err := ssh.ParseKnownHosts(rest)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, hosts[0]+" "+key.Type()+" "+ssh.FingerprintSHA256(key))
		rest = next
	}
	if !slices.Equal(got, publishedKeys) {
		t.Errorf("the built-in known_hosts are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(publishedKeys, "\n"))
	}
	g := &Git{Scratch: scratchDir(t)}
	for _, address := range []string{"github.com:22", "gitlab.com:22", "bitbucket.org:22"} {
		if _, err := g.hostKeys(address); err != nil {
			t.Errorf("hostKeys(%s) = %v", address, err)
		}
	}
	if _, err := g.hostKeys("git.example:22"); fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), "--ssh-known-hosts") {
		t.Errorf("hostKeys() of an unknown host = %v, want Invalid with the way out", err)
	}
	// The operator's keys take the place of the built-in ones.
	host, _ := newSigner(t, "ed25519")
	g.KnownHosts = []byte("github.com " + string(ssh.MarshalAuthorizedKey(host.PublicKey())))
	known, err := g.hostKeys("github.com:22")
	if err != nil {
		t.Fatal(err)
	}
	if got := hostKeyAlgorithms(known, "github.com:22"); !slices.Equal(got, []string{ssh.KeyAlgoED25519}) {
		t.Errorf("the algorithms of github.com are %v, want that of the operator's line alone", got)
	}
}

// search is a source whose URL may have a directory behind the repository.
func search(t *testing.T, text string, auth GitAuth) *Git {
	t.Helper()
	at, err := location.ParseGit(text)
	if err != nil {
		t.Fatal(err)
	}
	return &Git{URL: at.Repository, Search: at.Search, Ref: GitRef{Branch: "main"}, Auth: auth, Out: loopback(t), Scratch: scratchDir(t)}
}

func TestADirectoryBehindTheRepositoryIsFoundOverSSH(t *testing.T) {
	r := newRepository(t)
	want := r.commit(map[string]string{"main.tf": "root", "terraform/net/main.tf": "net"})
	identity, client := privateKey(t, "")
	host, _ := newSigner(t, "ed25519")
	s := r.serveSSH(client, host)
	for name, tt := range map[string]struct {
		url, remembered string
		ref             GitRef
		asks            int32
	}{
		"with a directory":                  {"ssh://git@" + s.Address + "/team/repo/terraform/net", "", GitRef{Branch: "main"}, 3},
		"a pinned commit":                   {"ssh://git@" + s.Address + "/team/repo/terraform/net", "", GitRef{Commit: want}, 3},
		"relative to the home directory":    {"ssh://git@" + s.Address + "/./team/repo/terraform/net", "", GitRef{Branch: "main"}, 3},
		"a repository that was found":       {"ssh://git@" + s.Address + "/team/repo/terraform/net", "ssh://git@" + s.Address + "/team/repo", GitRef{Branch: "main"}, 1},
		"a repository of another directory": {"ssh://git@" + s.Address + "/team/repo/terraform/net", "ssh://git@" + s.Address + "/other", GitRef{Branch: "main"}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			g := search(t, tt.url, GitAuth{Identity: identity})
			g.KnownHosts, g.Remembered, g.Ref = s.known(host), tt.remembered, tt.ref
			before := s.Sessions.Load()
			found, err := g.Resolve(t.Context())
			if err != nil || !strings.HasSuffix(found.Revision, "sha1:"+want) || found.Metadata[DirectoryFound] != "terraform/net" ||
				!strings.HasSuffix(found.Metadata[RepositoryFound], "/team/repo") {
				t.Fatalf("Resolve() = %+v, %v, want team/repo and terraform/net", found, err)
			}
			if asks := s.Sessions.Load() - before; asks != tt.asks {
				t.Errorf("the server was asked %d times, want %d", asks, tt.asks)
			}
			if _, tree, err := fetch(t, g); err != nil || tree["terraform/net/main.tf"] != "net" || tree["main.tf"] != "root" {
				t.Errorf("fetch() = %v, %v, want the whole repository", tree, err)
			}
		})
	}
	t.Run("nowhere", func(t *testing.T) {
		g := search(t, "ssh://git@"+s.Address+"/team/gone/terraform", GitAuth{Identity: identity, KnownHosts: s.known(host)})
		if _, err := g.Resolve(t.Context()); fault.Of(err) != fault.Missing || !strings.Contains(err.Error(), "/team/gone (not found)") {
			t.Errorf("Resolve() = %v, want Missing, and what was asked for", err)
		}
	})
	t.Run("an identity that is refused ends the search", func(t *testing.T) {
		stranger, _ := privateKey(t, "")
		before := s.Sessions.Load()
		g := search(t, "ssh://git@"+s.Address+"/team/repo/terraform", GitAuth{Identity: stranger, KnownHosts: s.known(host)})
		if _, err := g.Resolve(t.Context()); fault.Of(err) != fault.Denied || s.Sessions.Load() != before {
			t.Errorf("Resolve() = %v, want Denied at the first host", err)
		}
	})
}

func TestADirectoryBehindTheRepositoryIsFoundOverHTTP(t *testing.T) {
	r := newRepository(t)
	want := r.commit(map[string]string{"terraform/main.tf": "1"})
	status := 0 // of what is not there
	server := strings.TrimSuffix(r.serve(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if strings.HasPrefix(req.URL.Path, "/team/repo/info/") || strings.HasPrefix(req.URL.Path, "/team/repo/git-") {
				next.ServeHTTP(w, req)
				return
			}
			w.WriteHeader(status)
		})
	}), "/team/repo.git")
	for name, tt := range map[string]struct {
		url    string
		status int
		kind   fault.Kind
	}{
		"the server says that it is not there":        {server + "/team/repo/terraform", http.StatusNotFound, fault.None},
		"the server hides what is not there":          {server + "/team/repo/terraform", http.StatusUnauthorized, fault.None},
		"the server forbids what is not there":        {server + "/team/repo/terraform", http.StatusForbidden, fault.None},
		"a server that is down for a moment":          {server + "/team/repo/terraform", http.StatusServiceUnavailable, fault.Broken},
		"no repository, on a server that hides":       {server + "/team/gone/terraform", http.StatusUnauthorized, fault.Denied},
		"no repository, on a server that tells of it": {server + "/team/gone/terraform", http.StatusNotFound, fault.Missing},
	} {
		t.Run(name, func(t *testing.T) {
			status = tt.status
			g := search(t, tt.url, GitAuth{})
			found, err := g.Resolve(t.Context())
			if got := fault.Of(err); got != tt.kind {
				t.Fatalf("Resolve() = %+v, %v, want %q", found, err, tt.kind)
			}
			if err == nil && (found.Revision != "main@sha1:"+want || found.Metadata[RepositoryFound] != server+"/team/repo" || found.Metadata[DirectoryFound] != "terraform") {
				t.Errorf("Resolve() = %+v, want team/repo and terraform", found)
			}
		})
	}
}
