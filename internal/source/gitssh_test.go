package source

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// sshServer serves repositories over ssh with the real git-upload-pack.
type sshServer struct {
	address  string
	sessions atomic.Int32
	all      sync.WaitGroup // goroutines
}

func newSigner(t *testing.T, kind string) (ssh.Signer, any) {
	t.Helper()
	var key any
	var err error
	if kind == "rsa" {
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	} else {
		_, key, err = ed25519.GenerateKey(rand.Reader)
	}
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return signer, key
}

// privateKey returns an identity and what lets it in.
func privateKey(t *testing.T, passphrase string) (secret.Text, ssh.PublicKey) {
	t.Helper()
	signer, key := newSigner(t, "ed25519")
	var block *pem.Block
	var err error
	if passphrase == "" {
		block, err = ssh.MarshalPrivateKey(key, "")
	} else {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte(passphrase))
	}
	if err != nil {
		t.Fatal(err)
	}
	return secret.New(string(pem.EncodeToMemory(block))), signer.PublicKey()
}

// serveSSH accepts the key of client.
func (r *repository) serveSSH(client ssh.PublicKey, hosts ...ssh.Signer) *sshServer {
	r.t.Helper()
	config := &ssh.ServerConfig{PublicKeyCallback: func(c ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if c.User() != "git" || string(key.Marshal()) != string(client.Marshal()) {
			return nil, io.ErrClosedPipe
		}
		return nil, nil
	}}
	for _, h := range hosts {
		config.AddHostKey(h)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	s := &sshServer{address: l.Addr().String()}
	r.t.Cleanup(func() {
		l.Close()
		s.all.Wait()
	})
	s.all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.all.Go(func() { s.handle(conn, config, r) })
		}
	})
	return s
}

func (s *sshServer) handle(conn net.Conn, config *ssh.ServerConfig, r *repository) {
	defer conn.Close()
	_, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	for c := range channels {
		channel, requests, err := c.Accept()
		if err != nil {
			return
		}
		s.sessions.Add(1)
		for req := range requests {
			if req.Type != "exec" {
				req.Reply(false, nil)
				continue
			}
			var command struct{ Text string }
			if ssh.Unmarshal(req.Payload, &command) != nil {
				return
			}
			req.Reply(true, nil)
			s.all.Go(func() { s.run(channel, command.Text, r) })
		}
	}
}

func (s *sshServer) run(channel ssh.Channel, command string, r *repository) {
	defer channel.Close()
	path, ok := strings.CutPrefix(command, "git-upload-pack '/")
	if !ok {
		io.WriteString(channel.Stderr(), "only git-upload-pack")
		return
	}
	cmd := exec.Command("git", "upload-pack", filepath.Join(r.root, strings.TrimSuffix(path, "'")))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.root, "GIT_CONFIG_NOSYSTEM=1"}
	cmd.Stdout, cmd.Stderr = channel, channel.Stderr()
	// As cmd.Stdin the channel would be waited for even when git has ended.
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return
	}
	go func() {
		io.Copy(stdin, channel)
		stdin.Close()
	}()
	status := struct{ Code uint32 }{0}
	if cmd.Run() != nil {
		status.Code = 128
	}
	channel.SendRequest("exit-status", false, ssh.Marshal(status))
}

func (s *sshServer) url() string { return "ssh://git@" + s.address + "/team/repo.git" }

// known returns a line of known_hosts.
func (s *sshServer) known(host ssh.Signer) []byte {
	return []byte(knownhosts.Line([]string{knownhosts.Normalize(s.address)}, host.PublicKey()) + "\n")
}

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

func TestGitOverSSHChecksBothSides(t *testing.T) {
	r := newRepository(t)
	r.commit(map[string]string{"main.tf": "1"})
	identity, client := privateKey(t, "")
	stranger, _ := privateKey(t, "")
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
		})
	}
	if got := s.sessions.Load(); got != 0 {
		t.Errorf("%d sessions were opened, want 0", got)
	}
}
