package source

import (
	"cmp"
	"context"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/location"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/testkit/apart"
	"github.com/terrier-iac/terrier/internal/testkit/sshgit"
)

// sshServer serves repositories over ssh with the real git-upload-pack.
type sshServer struct{ *sshgit.Server }

// privateKey returns an identity and what lets it in.
func privateKey(t *testing.T, passphrase string) (secret.Text, ssh.PublicKey) {
	t.Helper()
	key, public := sshgit.NewIdentity(t, passphrase)
	return secret.New(key), public
}

// serveSSH accepts the key of client.
func (r *repository) serveSSH(client ssh.PublicKey, hosts ...ssh.Signer) sshServer {
	r.t.Helper()
	return sshServer{sshgit.Serve(r.t, r.root, client, hosts...)}
}

func newSigner(t *testing.T, kind string) (ssh.Signer, any) { return sshgit.NewSigner(t, kind) }

func (s sshServer) url() string { return "ssh://git@" + s.Address + "/team/repo.git" }

func (s sshServer) known(host ssh.Signer) []byte { return s.Known(host) }

func TestGitOverSSH(t *testing.T) {
	r := newRepository(t)
	first := r.commit(map[string]string{"main.tf": "1"})
	second := r.commit(map[string]string{"main.tf": "2"})
	identity, client := privateKey(t, "")
	ed, _ := newSigner(t, "ed25519")
	rsa, _ := newSigner(t, "rsa")
	s := r.serveSSH(client, ed, rsa)
	for name, tt := range map[string]struct {
		known []byte
		ref   GitRef
		want  string
	}{
		"a branch":                    {s.known(ed), GitRef{Branch: "main"}, "main@sha1:" + second},
		"a host known by its RSA key": {s.known(rsa), GitRef{Branch: "main"}, "main@sha1:" + second},
		"an older commit":             {s.known(ed), GitRef{Commit: first, Branch: "main"}, "main@sha1:" + first},
	} {
		t.Run(name, func(t *testing.T) {
			g := &Git{URL: s.url(), Ref: tt.ref, Auth: GitAuth{Identity: identity, KnownHosts: tt.known}, Out: loopback(t), Scratch: scratchDir(t)}
			revision, tree, err := fetch(t, g)
			if err != nil || revision != tt.want || tree["main.tf"] == "" {
				t.Errorf("fetch() = %q, %v, %v, want %q", revision, tree, err, tt.want)
			}
		})
	}
	t.Run("an identity with a passphrase", func(t *testing.T) {
		locked, client := privateKey(t, "open sesame")
		s := r.serveSSH(client, ed)
		g := &Git{URL: s.url(), Ref: GitRef{Branch: "main"}, Out: loopback(t), Scratch: scratchDir(t),
			Auth: GitAuth{Identity: locked, Password: secret.New("open sesame"), KnownHosts: s.known(ed)}}
		if _, tree, err := fetch(t, g); err != nil || tree["main.tf"] != "2" {
			t.Errorf("fetch() = %v, %v", tree, err)
		}
	})
	t.Run("a repository that is not there is missing", func(t *testing.T) {
		g := &Git{URL: strings.Replace(s.url(), "repo.git", "gone.git", 1), Ref: GitRef{Branch: "main"},
			Auth: GitAuth{Identity: identity, KnownHosts: s.known(ed)}, Out: loopback(t), Scratch: scratchDir(t)}
		if _, _, err := fetch(t, g); fault.Of(err) != fault.Missing || !strings.Contains(err.Error(), "gone.git") {
			t.Errorf("fetch() = %v, want Missing, in the server's own words", err)
		}
	})
}

// git@host:path is the usual port of ssh, and a path that is relative to the home directory of
// the user; a directory may stand behind the repository. No ordinary user may listen on that
// port of this machine, so the test has a network of its own.
func TestGitOverSSHWithoutAScheme(t *testing.T) {
	if !apart.Network(t) {
		return
	}
	r := newRepository(t)
	want := r.commit(map[string]string{"main.tf": "root", "terraform/net/main.tf": "net"})
	identity, client := privateKey(t, "")
	host, _ := newSigner(t, "ed25519")
	s := sshServer{sshgit.ServeAt(t, "127.0.0.1:22", r.root, client, host)}
	for url, directory := range map[string]string{
		"git@127.0.0.1:team/repo.git":            "",
		"git@127.0.0.1:/team/repo.git":           "",
		"git@127.0.0.1:team/repo//terraform/net": "terraform/net",
		"git@127.0.0.1:team/repo/terraform/net":  "terraform/net",
	} {
		at, err := location.ParseGit(url)
		if err != nil {
			t.Fatal(err)
		}
		g := &Git{URL: at.Repository, Search: at.Search, Ref: GitRef{Branch: "main"}, Out: loopback(t), Scratch: scratchDir(t),
			Auth: GitAuth{Identity: identity, KnownHosts: s.known(host)}}
		found, err := g.Resolve(t.Context())
		if got := cmp.Or(at.Directory, found.Metadata[DirectoryFound]); err != nil || found.Revision != "main@sha1:"+want || got != directory {
			t.Errorf("Resolve() of %s = %+v, %v with the directory %q, want %s and %q", url, found, err, got, want, directory)
		}
		if _, tree, err := fetch(t, g); err != nil || tree["main.tf"] != "root" || tree["terraform/net/main.tf"] != "net" {
			t.Errorf("fetch() of %s = %v, %v, want the whole repository", url, tree, err)
		}
	}
}

func TestGitOverSSHChecksBothSides(t *testing.T) {
	r := newRepository(t)
	r.commit(map[string]string{"main.tf": "1"})
	identity, client := privateKey(t, "")
	stranger, _ := privateKey(t, "")
	locked, _ := privateKey(t, "open sesame")
	host, _ := newSigner(t, "ed25519")
	other, _ := newSigner(t, "ed25519")
	s := r.serveSSH(client, host)
	elsewhere := []byte(knownhosts.Line([]string{"git.example"}, host.PublicKey()) + "\n")
	for name, tt := range map[string]struct {
		auth GitAuth
		kind fault.Kind
	}{
		"no known_hosts":                    {GitAuth{Identity: identity}, fault.Invalid},
		"no identity":                       {GitAuth{KnownHosts: s.known(host)}, fault.Invalid},
		"an identity that is not opened":    {GitAuth{Identity: locked, KnownHosts: s.known(host)}, fault.Invalid},
		"a passphrase that is wrong":        {GitAuth{Identity: locked, Password: secret.New("open barley"), KnownHosts: s.known(host)}, fault.Invalid},
		"an identity that is none":          {GitAuth{Identity: secret.New("x"), KnownHosts: s.known(host)}, fault.Invalid},
		"known_hosts that are none":         {GitAuth{Identity: identity, KnownHosts: []byte("x y z")}, fault.Invalid},
		"a host that is not in known_hosts": {GitAuth{Identity: identity, KnownHosts: elsewhere}, fault.Denied},
		"a host with another key":           {GitAuth{Identity: identity, KnownHosts: s.known(other)}, fault.Denied},
		"a host whose key is revoked":       {GitAuth{Identity: identity, KnownHosts: append([]byte("@revoked "), s.known(host)...)}, fault.Denied},
		"an identity that is not let in":    {GitAuth{Identity: stranger, KnownHosts: s.known(host)}, fault.Denied},
	} {
		t.Run(name, func(t *testing.T) {
			g := &Git{URL: s.url(), Ref: GitRef{Branch: "main"}, Auth: tt.auth, Out: loopback(t), Scratch: scratchDir(t)}
			_, err := g.Resolve(context.Background())
			if got := fault.Of(err); got != tt.kind || fault.Reason(err, "") != ReasonAuth {
				t.Errorf("Resolve() = %v, of kind %q, want %q for %s", err, got, tt.kind, ReasonAuth)
			}
			for _, line := range strings.Split(tt.auth.Identity.Reveal(), "\n") {
				if len(line) > 1 && strings.Contains(err.Error(), line) || strings.Contains(err.Error(), "barley") {
					t.Errorf("Resolve() = %v, which shows a secret", err)
				}
			}
		})
	}
	if got := s.Sessions.Load(); got != 0 {
		t.Errorf("%d sessions were opened, want 0", got)
	}
}
