package sources

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/internal/location"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/testkit/sshgit"
)

// clonedGit makes a bare repository root/team/net.git with one commit.
func clonedGit(t *testing.T) (root, commit string) {
	t.Helper()
	root, work := t.TempDir(), t.TempDir()
	git := func(args ...string) string {
		cmd := exec.Command("git", args...)
		cmd.Dir = work
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + root, "GIT_CONFIG_NOSYSTEM=1",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com"}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	if err := os.WriteFile(filepath.Join(work, "main.tf"), []byte("over ssh"), 0o644); err != nil {
		t.Fatal(err)
	}
	git("init", "--quiet", "--initial-branch=main", ".")
	git("add", "--all")
	git("commit", "--quiet", "--message=one")
	git("clone", "--quiet", "--bare", ".", filepath.Join(root, "team", "net.git"))
	return root, git("rev-parse", "HEAD")
}

// The key is under the name that an annotation says, the host is known to the operator,
// and the server says where the repository ends. No text that a user can read has the
// key in it.
func TestGitRepositoryOverSSHWithANamedKeyAndADirectory(t *testing.T) {
	s := newStage(t)
	root, commit := clonedGit(t)
	identity, client := sshgit.NewIdentity(t, "")
	host, _ := sshgit.NewSigner(t, "ed25519")
	server := sshgit.Serve(t, root, client, host)
	s.options.KnownHosts = filepath.Join(t.TempDir(), "known_hosts")
	if err := os.WriteFile(s.options.KnownHosts, server.Known(host), 0o600); err != nil {
		t.Fatal(err)
	}
	login := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "login"}, Type: corev1.SecretTypeSSHAuth,
		StringData: map[string]string{corev1.SSHAuthPrivateKey: identity, "deploy-key": identity},
	}
	if err := s.Client.Create(t.Context(), login); err != nil {
		t.Fatal(err)
	}
	at, err := location.ParseGit("ssh://git@" + server.Address + "/team/net/terraform/prod")
	if err != nil {
		t.Fatal(err)
	}
	obj := &sourcev1.GitRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "net", Annotations: map[string]string{
			location.SearchAnnotation: "true", location.SSHKeyAnnotation: "gone",
		}},
		Spec: sourcev1.GitRepositorySpec{URL: at.Repository, Interval: metav1.Duration{Duration: time.Hour},
			Reference: &sourcev1.GitRepositoryRef{Branch: "main"}, SecretRef: &meta.LocalObjectReference{Name: "login"}},
	}
	if err := s.Client.Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	r := s.reconciler(gitKind())
	s.reconcile(r)
	s.read(obj)
	if got := message(obj.Status.Conditions, "Ready"); got != `the Secret "login" has no key "gone": add the private key there` {
		t.Errorf("with a key that is not there, the message is %q", got)
	}

	annotate := func(key string) {
		t.Helper()
		obj.Annotations[location.SSHKeyAnnotation] = key
		if err := s.Client.Update(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
		s.reconcile(r)
		s.read(obj)
	}
	annotate("deploy-key")
	a := obj.Status.Artifact
	if a == nil || a.Revision != "main@sha1:"+commit || a.Metadata[source.DirectoryFound] != "terraform/prod" || s.file(a) != "over ssh" {
		t.Fatalf("the artifact is %+v (%s), want commit %s and the directory terraform/prod", a, message(obj.Status.Conditions, "Ready"), commit)
	}
	asked := server.Sessions.Load()
	annotate("") // and the usual key of a Secret of its type
	if got := server.Sessions.Load() - asked; got != 1 || obj.Status.Artifact.Digest != a.Digest {
		t.Errorf("a repository that was found was asked for %d times, want once and the same artifact", got)
	}

	// Another directory of the same commit is another place.
	obj.Spec.URL = strings.TrimSuffix(obj.Spec.URL, "prod") + "test"
	annotate("deploy-key")
	if got := obj.Status.Artifact.Metadata[source.DirectoryFound]; got != "terraform/test" {
		t.Errorf("the directory is %q after the URL was edited, want terraform/test", got)
	}
	shown, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	if line := strings.Split(identity, "\n")[1]; strings.Contains(string(shown), line) {
		t.Error("the object shows the private key")
	}
}
