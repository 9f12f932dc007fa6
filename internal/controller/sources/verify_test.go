package sources

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/internal/controller/provenance"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/source/cosign/cosigntest"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// at is where an artifact of the registry is.
func (s *stage) at(digest string) name.Digest {
	s.t.Helper()
	at, err := name.NewDigest(s.registry + "/net@" + digest)
	if err != nil {
		s.t.Fatal(err)
	}
	return at
}

// signature is what is known of the signature on the artifact that the source has.
func (s *stage) signature(obj provenance.Source) policy.Signature {
	s.t.Helper()
	a := obj.GetArtifact()
	if a == nil {
		s.t.Fatal("there is no artifact")
	}
	return provenance.Reader{Key: provenance.Key{Text: s.options.Key}, Own: true}.Of(obj, a.Revision, a.Digest)
}

func (s *stage) setSecret(name string, data map[string]string) {
	s.t.Helper()
	var obj corev1.Secret
	if err := s.Client.Get(s.t.Context(), types.NamespacedName{Namespace: s.Namespace, Name: name}, &obj); err != nil {
		s.t.Fatal(err)
	}
	obj.Data, obj.StringData = nil, data
	if err := s.Client.Update(s.t.Context(), &obj); err != nil {
		s.t.Fatal(err)
	}
}

// An artifact makes an artifact of the source only while it has a signature of one of the
// keys, and the one before stays.
func TestSignedArtifacts(t *testing.T) {
	s := newStage(t)
	key, other := cosigntest.NewKey(t, cosigntest.ECDSA), cosigntest.NewKey(t, cosigntest.ECDSA)
	keys := s.secret("keys", map[string]string{"cosign.pub": string(key.Public)})
	s.repository(func(spec *sourcev1.OCIRepositorySpec) {
		spec.Reference = &sourcev1.OCIRepositoryRef{Tag: "1"}
		spec.Verify = &sourcev1.OCIRepositoryVerification{Provider: "cosign", SecretRef: keys}
	})
	r := s.reconciler(ociKind())
	first := s.push("1", "first")
	if again := s.reconcile(r); again.RequeueAfter >= time.Hour {
		t.Errorf("what is not signed yet is looked at again after %s, want soon: it may be signed in a moment", again.RequeueAfter)
	}
	obj := s.get()
	if got := conditions(obj.Status.Conditions); obj.Status.Artifact != nil || got["SourceVerified"] != "False VerificationError" || got["Ready"] != "False VerificationError" {
		t.Fatalf("without a signature the artifact is %v and the conditions are %v", obj.Status.Artifact, got)
	}
	other.Sign(t, s.at(first))
	s.reconcile(r)
	obj = s.get()
	if got := conditions(obj.Status.Conditions); obj.Status.Artifact != nil || got["Stalled"] != "True VerificationError" {
		t.Fatalf("with a signature of another key the artifact is %v and the conditions are %v", obj.Status.Artifact, got)
	}
	key.Sign(t, s.at(first))
	s.reconcile(r)
	obj = s.get()
	got := conditions(obj.Status.Conditions)
	if obj.Status.Artifact == nil || s.file(obj.Status.Artifact) != "first" || got["SourceVerified"] != "True Succeeded" || got["Ready"] != "True Succeeded" {
		t.Fatalf("with a signature the artifact is %v and the conditions are %v", obj.Status.Artifact, got)
	}
	if m, want := message(obj.Status.Conditions, "SourceVerified"), "verified signature of revision '1@"+first+"' by the key "+key.Fingerprint; m != want {
		t.Errorf("the message is %q, want %q", m, want)
	}
	want := policy.Signature{Verified: true, Kind: source.SignedCosign, By: key.Fingerprint}
	if d := cmp.Diff(s.signature(obj), want); d != "" {
		t.Errorf("signature of the artifact:\n%s", d)
	}

	t.Run("a tag that moves to what is not signed", func(t *testing.T) {
		s.push("1", "second")
		s.reconcile(r)
		obj := s.get()
		got := conditions(obj.Status.Conditions)
		if s.file(obj.Status.Artifact) != "first" || got["SourceVerified"] != "False VerificationError" || got["Ready"] != "False VerificationError" {
			t.Errorf("the artifact is %v and the conditions are %v, want the artifact before", obj.Status.Artifact, got)
		}
		if d := cmp.Diff(s.signature(obj), want); d != "" {
			t.Errorf("signature of the artifact before:\n%s", d)
		}
	})
	t.Run("the tag moves back, and its signature is gone", func(t *testing.T) {
		if err := remote.Delete(cosigntest.Beside(s.at(first))); err != nil {
			t.Fatal(err)
		}
		s.push("1", "first")
		s.reconcile(r)
		obj := s.get()
		if got := conditions(obj.Status.Conditions); s.file(obj.Status.Artifact) != "first" || got["SourceVerified"] != "True Succeeded" || got["Ready"] != "True Succeeded" {
			t.Errorf("the conditions are %v: what was verified stays verified", got)
		}
	})
	t.Run("another key is asked for", func(t *testing.T) {
		s.setSecret("keys", map[string]string{"cosign.pub": string(other.Public)})
		s.reconcile(r)
		obj := s.get()
		got := conditions(obj.Status.Conditions)
		if s.file(obj.Status.Artifact) != "first" || got["SourceVerified"] != "False VerificationError" || got[provenance.ArtifactSigned] != "False NotVerified" || s.signature(obj).Verified {
			t.Errorf("the conditions are %v, and the signature is %+v", got, s.signature(obj))
		}
	})
	t.Run("no signature is asked for", func(t *testing.T) {
		s.edit(func(o *sourcev1.OCIRepository) { o.Spec.Verify = nil })
		s.reconcile(r)
		obj := s.get()
		got := conditions(obj.Status.Conditions)
		if got["Ready"] != "True Succeeded" || got["SourceVerified"] != "" || got[provenance.ArtifactSigned] != "" || s.signature(obj).Verified {
			t.Errorf("the conditions are %v, and the signature is %+v", got, s.signature(obj))
		}
	})
}

// A user who may write the status, and one who may push, cannot say that an artifact is signed.
func TestForgedSignatures(t *testing.T) {
	s := newStage(t)
	key := cosigntest.NewKey(t, cosigntest.ECDSA)
	s.repository(func(spec *sourcev1.OCIRepositorySpec) { spec.Reference = &sourcev1.OCIRepositoryRef{Tag: "1"} })
	s.push("1", "first")
	r := s.reconciler(ociKind())
	s.reconcile(r)
	obj := s.get()
	forger := provenance.Key{Text: secret.New("guessed")}
	c := forger.Signed(obj, obj.Status.Artifact.Digest, source.Signature{Kind: source.SignedCosign, By: key.Fingerprint})
	c.LastTransitionTime = metav1.Now()
	obj.Status.Conditions = append(obj.Status.Conditions, c, metav1.Condition{
		Type: "SourceVerified", Status: metav1.ConditionTrue, Reason: "Succeeded", Message: "verified signature of revision " + obj.Status.Artifact.Revision, LastTransitionTime: metav1.Now(),
	})
	obj.Spec.Verify = &sourcev1.OCIRepositoryVerification{Provider: "cosign", SecretRef: s.secret("keys", map[string]string{"cosign.pub": string(key.Public)})}
	if by := s.signature(obj); by.Verified {
		t.Errorf("a condition that was written without the key of the installation says %+v", by)
	}
	if flux := (provenance.Reader{Key: forger}).Of(obj, obj.Status.Artifact.Revision, obj.Status.Artifact.Digest); !flux.Verified {
		t.Errorf("with its own key it says %+v, so that the test shows nothing", flux)
	}
	if err := s.Client.Status().Update(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	s.edit(func(o *sourcev1.OCIRepository) {
		o.Spec.Verify = &sourcev1.OCIRepositoryVerification{Provider: "cosign", SecretRef: &meta.LocalObjectReference{Name: "keys"}}
	})
	s.reconcile(r)
	if got := conditions(s.get().Status.Conditions); got["SourceVerified"] != "False VerificationError" || got[provenance.ArtifactSigned] != "False NotVerified" {
		t.Errorf("after a reconcile the conditions are %v", got)
	}
}

// A trusted root comes from a Secret, or else from the operator. What cannot be verified is
// refused with the field.
func TestTrustedRoots(t *testing.T) {
	ours := cosigntest.NewSigstore(t)
	root := ours.Root(t, cosigntest.Parts{Log: true})
	file := filepath.Join(t.TempDir(), "trusted_root.json")
	if err := os.WriteFile(file, root, 0o600); err != nil {
		t.Fatal(err)
	}
	ids := []sourcev1.OIDCIdentityMatch{{Issuer: "https://token.example.com", Subject: "ci@team.*"}}
	for name, tt := range map[string]struct {
		file   string
		verify func(s *stage) *sourcev1.OCIRepositoryVerification
		want   string // of the message; empty if it is verified
		root   string
	}{
		"of the operator": {file, func(*stage) *sourcev1.OCIRepositoryVerification {
			return &sourcev1.OCIRepositoryVerification{Provider: "cosign", MatchOIDCIdentity: ids}
		}, "", source.RootOfOperator},
		"of a Secret": {"", func(s *stage) *sourcev1.OCIRepositoryVerification {
			return &sourcev1.OCIRepositoryVerification{Provider: "cosign", MatchOIDCIdentity: ids, TrustedRootSecretRef: s.secret("root", map[string]string{"trusted_root.json": string(root)})}
		}, "", "sha256:"},
		"none": {"", func(*stage) *sourcev1.OCIRepositoryVerification {
			return &sourcev1.OCIRepositoryVerification{Provider: "cosign", MatchOIDCIdentity: ids}
		}, "add spec.verify.trustedRootSecretRef, or have the operator set --sigstore-trusted-root", ""},
		"a Secret without one": {file, func(s *stage) *sourcev1.OCIRepositoryVerification {
			return &sourcev1.OCIRepositoryVerification{Provider: "cosign", MatchOIDCIdentity: ids, TrustedRootSecretRef: s.secret("root", nil)}
		}, `the Secret "root" of spec.verify.trustedRootSecretRef has no trusted_root.json`, ""},
		"no identities": {file, func(*stage) *sourcev1.OCIRepositoryVerification {
			return &sourcev1.OCIRepositoryVerification{Provider: "cosign"}
		}, "spec.verify.matchOIDCIdentity is empty", ""},
		"identities and keys": {file, func(s *stage) *sourcev1.OCIRepositoryVerification {
			return &sourcev1.OCIRepositoryVerification{Provider: "cosign", MatchOIDCIdentity: ids, SecretRef: s.secret("keys", nil)}
		}, "remove secretRef, or the others", ""},
		"no keys": {file, func(s *stage) *sourcev1.OCIRepositoryVerification {
			return &sourcev1.OCIRepositoryVerification{Provider: "cosign", SecretRef: s.secret("keys", map[string]string{"note": "x"})}
		}, "there is no public key to verify signatures with", ""},
		"another provider": {file, func(s *stage) *sourcev1.OCIRepositoryVerification {
			return &sourcev1.OCIRepositoryVerification{Provider: "notation", SecretRef: s.secret("keys", nil)}
		}, "not supported: spec.verify.provider notation", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.options.TrustedRoot = tt.file
			ours.Sign(t, s.at(s.push("1", "signed")), "https://token.example.com", "ci@team.example.com", cosigntest.Signing{})
			s.repository(func(spec *sourcev1.OCIRepositorySpec) {
				spec.Reference, spec.Verify = &sourcev1.OCIRepositoryRef{Tag: "1"}, tt.verify(s)
			})
			s.reconcile(s.reconciler(ociKind()))
			obj := s.get()
			if tt.want != "" {
				if m := message(obj.Status.Conditions, "Ready"); obj.Status.Artifact != nil || !strings.Contains(m, tt.want) {
					t.Errorf("the message is %q, want one with %q and no artifact", m, tt.want)
				}
				return
			}
			if by := s.signature(obj); !by.Verified || by.Kind != source.SignedKeyless || by.By != "ci@team.example.com" || !strings.HasPrefix(by.Root, tt.root) {
				t.Errorf("the signature is %+v, want one with the root %s", by, tt.root)
			}
		})
	}
}

// Commits and tags that are signed by SSH count as those by OpenPGP do.
func TestSignedBySSH(t *testing.T) {
	s, g := newStage(t), testkit.NewGit(t)
	ours, others := sshKey(t), sshKey(t)
	sign := func(key string, args ...string) {
		g.Do(append([]string{"-c", "gpg.format=ssh", "-c", "user.signingkey=" + key}, args...)...)
		g.Do("push", "--quiet", "--force", "--tags", "origin", "main")
	}
	public, err := os.ReadFile(ours + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	g.Commit(map[string]string{"main.tf": "first"})
	obj := &sourcev1.GitRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "net"},
		Spec: sourcev1.GitRepositorySpec{URL: g.URL, Interval: metav1.Duration{Duration: time.Hour},
			Reference: &sourcev1.GitRepositoryRef{Branch: "main"}, SecretRef: s.secret("git", map[string]string{"username": g.Username, "password": g.Password}),
			Verification: &sourcev1.GitRepositoryVerification{Mode: sourcev1.ModeGitHEAD, SecretRef: *s.secret("keys", map[string]string{"ci.sshpub": string(public)})}},
	}
	if err := s.Client.Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	r := s.reconciler(gitKind())
	refused := func(name, want string) {
		t.Helper()
		s.reconcile(r)
		s.read(obj)
		if m := message(obj.Status.Conditions, "SourceVerified"); !strings.Contains(m, want) || obj.Status.Artifact != nil && s.signature(obj).Verified && obj.Generation == 1 {
			t.Errorf("%s: the message is %q, want one with %q", name, m, want)
		}
	}
	refused("a commit without a signature", "is not signed")
	sign(others, "commit", "--quiet", "--allow-empty", "--gpg-sign", "--message=by another")
	refused("a commit signed by another key", "is signed by none of the 1 keys of SSH")
	sign(ours, "commit", "--quiet", "--allow-empty", "--gpg-sign", "--message=by us")
	s.reconcile(r)
	s.read(obj)
	by := s.signature(obj)
	if !by.Verified || by.Kind != source.SignedSSH || !strings.HasPrefix(by.By, "SHA256:") {
		t.Fatalf("the signature is %+v, and the conditions are %v", by, conditions(obj.Status.Conditions))
	}

	obj.Spec.Reference, obj.Spec.Verification.Mode = &sourcev1.GitRepositoryRef{Tag: "v1"}, sourcev1.ModeGitTagAndHEAD
	if err := s.Client.Update(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	g.Do("tag", "--annotate", "--message=v1", "v1")
	g.Do("push", "--quiet", "--tags", "origin", "main")
	refused("a tag without a signature", "the tag v1 is not signed")
	sign(ours, "tag", "--force", "--sign", "--message=v1", "v1")
	s.reconcile(r)
	s.read(obj)
	if tagged := s.signature(obj); !tagged.Verified || tagged.By != by.By || tagged.TagBy != by.By || !strings.HasPrefix(obj.Status.Artifact.Revision, "v1@") {
		t.Errorf("the signature of %s is %+v", obj.Status.Artifact.Revision, tagged)
	}
}

// sshKey makes a key with the real ssh-keygen.
func sshKey(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("ssh-keygen is not installed")
	}
	path := filepath.Join(t.TempDir(), "key")
	if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v: %s", err, out)
	}
	return path
}
