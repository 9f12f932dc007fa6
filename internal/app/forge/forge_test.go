package forge

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// certificate is one for loopback, and its authority, which is itself.
func certificate(t *testing.T) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, of, of, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	own := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own, nil }, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func open(t *testing.T, dir string) *Forge {
	t.Helper()
	cert, ca := certificate(t)
	f, err := Open(Options{
		Dir: dir, Certificate: cert, Authority: ca, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Listen: func(string) (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// module is what the repositories of these tests begin with.
var module = fstest.MapFS{"terraform/main.tf": {Data: []byte("# one\n")}, "terraform-modules/x.tf": {Data: []byte("# x\n")}, "README": {Data: []byte("text\n")}}

// git runs the real git as a user of the forge would, and returns what it says.
func (f *Forge) git(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "git", args...)
	c.Dir = dir
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + f.dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.com", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.com",
		"GIT_SSL_CAINFO=" + f.path(AuthorityFile),
		"GIT_SSH_COMMAND=ssh -F /dev/null -o IdentitiesOnly=yes -o BatchMode=yes -i " + f.path(IdentityFile) + " -o UserKnownHostsFile=" + f.path(KnownHostsFile)}
	out, err := c.CombinedOutput()
	return string(out), err
}

func (f *Forge) mustGit(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := f.git(t, dir, args...)
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(out)
}

// A user clones, commits, pushes and pulls with the real git. What was pushed is there
// after the next start, at which a seed changes nothing.
func TestGit(t *testing.T) {
	dir := t.TempDir()
	f := open(t, dir)
	if err := f.Seed("example/terraform-repo", module); err != nil {
		t.Fatal(err)
	}
	ssh, https := "ssh://git@"+f.Info().SSH+"/example/terraform-repo", "https://"+f.Info().HTTPS+"/example/terraform-repo"
	one, two, reading := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "two"), filepath.Join(t.TempDir(), "reading")
	f.mustGit(t, "", "clone", "--quiet", ssh, one)
	f.mustGit(t, "", "clone", "--quiet", ssh+".git", two)
	f.mustGit(t, "", "clone", "--quiet", https, reading)
	f.mustGit(t, one, "fsck", "--strict")
	for round, content := range []string{"# two\n", "# three\n"} {
		if err := os.WriteFile(filepath.Join(one, "terraform/main.tf"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		f.mustGit(t, one, "commit", "--quiet", "--all", "--message", "change")
		f.mustGit(t, one, "push", "--quiet", "origin", "main")
		for _, clone := range []string{two, reading} {
			f.mustGit(t, clone, "pull", "--quiet")
			if got, err := os.ReadFile(filepath.Join(clone, "terraform/main.tf")); err != nil || string(got) != content {
				t.Errorf("in round %d the clone has %q, %v, want %q", round, got, err, content)
			}
			f.mustGit(t, clone, "pull", "--quiet") // with nothing new
		}
	}
	f.mustGit(t, one, "push", "--quiet", "origin", "main:other")
	head := f.mustGit(t, one, "rev-parse", "HEAD")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}

	f = open(t, dir)
	if err := f.Seed("example/terraform-repo", module); err != nil {
		t.Fatal(err)
	}
	if got := f.mustGit(t, "", "ls-remote", "ssh://git@"+f.Info().SSH+"/example/terraform-repo", "main", "other"); strings.Count(got, head) != 2 {
		t.Errorf("after another start the references are\n%s\nwant both at %s", got, head)
	}
}

// The same files are the same commit.
func TestSeedsAreFixed(t *testing.T) {
	var heads []string
	for range 2 {
		f := open(t, t.TempDir())
		if err := f.Seed("a", module); err != nil {
			t.Fatal(err)
		}
		heads = append(heads, f.mustGit(t, "", "ls-remote", "https://"+f.Info().HTTPS+"/a", "HEAD"))
	}
	if heads[0] == "" || heads[0] != heads[1] {
		t.Errorf("the commits are %q", heads)
	}
}

func TestGitRefuses(t *testing.T) {
	f, stranger := open(t, t.TempDir()), open(t, t.TempDir())
	if err := f.Seed("example/repo", module); err != nil {
		t.Fatal(err)
	}
	if err := f.Seed("../outside", module); err == nil {
		t.Error("a seed was made outside")
	}
	clone := filepath.Join(t.TempDir(), "clone")
	f.mustGit(t, "", "clone", "--quiet", "https://"+f.Info().HTTPS+"/example/repo", clone)
	for name, tt := range map[string]struct {
		as   *Forge
		dir  string
		args []string
		says string
	}{
		"a repository that is none":        {f, "", []string{"ls-remote", "ssh://git@" + f.Info().SSH + "/example/other"}, "repository not found"},
		"a repository that is none, https": {f, "", []string{"ls-remote", "https://" + f.Info().HTTPS + "/example/repo/terraform"}, "not found"},
		"a path that leads out":            {f, "", []string{"ls-remote", "ssh://git@" + f.Info().SSH + "/../repositories/example/repo"}, "repository not found"},
		"another user":                     {f, "", []string{"ls-remote", "ssh://root@" + f.Info().SSH + "/example/repo"}, "Permission denied"},
		"another key":                      {stranger, "", []string{"-c", "core.sshCommand=", "ls-remote", "ssh://git@" + f.Info().SSH + "/example/repo"}, "Host key verification failed"},
		"a push over https":                {f, clone, []string{"push", "origin", "main:new"}, "403"},
	} {
		t.Run(name, func(t *testing.T) {
			if out, err := tt.as.git(t, tt.dir, tt.args...); err == nil || !strings.Contains(out, tt.says) {
				t.Errorf("git %s: %v\n%s\nwant %q", strings.Join(tt.args, " "), err, out, tt.says)
			}
		})
	}
}

// Images are for the one user alone.
func TestRegistry(t *testing.T) {
	f := open(t, t.TempDir())
	roots := x509.NewCertPool()
	ca, err := os.ReadFile(f.path(AuthorityFile))
	if err != nil || !roots.AppendCertsFromPEM(ca) {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	t.Cleanup(client.CloseIdleConnections)
	login, err := os.ReadFile(f.path(LoginFile))
	if err != nil {
		t.Fatal(err)
	}
	user, password, _ := strings.Cut(string(login), ":")
	for name, tt := range map[string]struct {
		user, password string
		status         int
	}{
		"the user":         {user, password, http.StatusOK},
		"another password": {user, password + "x", http.StatusUnauthorized},
		"no password":      {user, "", http.StatusUnauthorized},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+f.Info().HTTPS+"/v2/", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth(tt.user, tt.password)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		if resp.Body.Close() != nil || err != nil || resp.StatusCode != tt.status {
			t.Errorf("%s: %s, %v, want %d", name, resp.Status, err, tt.status)
		}
	}
}

// Only the owner may read the secrets. A file that is broken is named.
func TestKeysAreTheOwners(t *testing.T) {
	dir := t.TempDir()
	if err := open(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{IdentityFile, LoginFile, DockerFile, "host_key"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, IdentityFile), []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	cert, ca := certificate(t)
	_, err := Open(Options{Dir: dir, Certificate: cert, Authority: ca, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Listen: func(string) (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }})
	if err == nil || !strings.Contains(err.Error(), "remove the file") {
		t.Errorf("Open() = %v, want the file named", err)
	}
}
