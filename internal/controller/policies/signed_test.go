package policies

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/api/policy/v1alpha1"
	"github.com/terrier-iac/terrier/internal/controller/provenance"
	"github.com/terrier-iac/terrier/internal/review"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/source"
)

const signedArtifact = "sha256:aaaa"

// sourced is a stack with a source.
func sourced(t *testing.T, kind, name string, notes map[string]string) client.Object {
	t.Helper()
	obj := stackOf("shop", "net", nil, notes).(*v1alpha2.Terraform)
	if kind != "" {
		obj.Spec.SourceRef = &v1alpha2.SourceRef{Kind: kind, Name: name}
	}
	return obj
}

func TestSignedSources(t *testing.T) {
	key := provenance.Key{Text: secret.New("key")}
	repository := func(name string, asks bool) *sourcev1.GitRepository {
		o := &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
		o.Status.Artifact = &meta.Artifact{Revision: "main@sha1:1", Digest: signedArtifact}
		if asks {
			o.Spec.Verification = &sourcev1.GitRepositoryVerification{}
		}
		return o
	}
	by := strings.Repeat("AB12", 10)
	verified := repository("signed", true)
	verified.Status.Conditions = []metav1.Condition{key.Signed(verified, signedArtifact, source.Signature{Kind: source.SignedOpenPGP, By: by})}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, sourcev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(repository("plain", false), repository("asks", true), verified,
		&sourcev1.Bucket{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "bucket"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}).Build()
	requires := func(s v1alpha1.SignedSource) v1alpha1.PolicySpec {
		return v1alpha1.PolicySpec{Guards: &v1alpha1.Guards{RequireSignedSource: &s}}
	}
	for name, tt := range map[string]struct {
		spec  v1alpha1.PolicySpec
		kind  string
		of    string
		notes map[string]string
		want  string // what the finding says; empty if there is none
	}{
		"a signed source":               {requires(v1alpha1.SignedSource{}), "GitRepository", "signed", nil, ""},
		"a signed source, by this key":  {requires(v1alpha1.SignedSource{Keys: []string{strings.ToLower(by)}}), "GitRepository", "signed", nil, ""},
		"a signed source, by another":   {requires(v1alpha1.SignedSource{Keys: []string{strings.Repeat("CD34", 10)}}), "GitRepository", "signed", nil, "GitRepository shop/signed at main@sha1:1 is signed by the key " + by + ", and the policy allows others: have one of these sign it"},
		"a source that asks for none":   {requires(v1alpha1.SignedSource{}), "GitRepository", "plain", nil, "GitRepository shop/plain at main@sha1:1 has no verified signature: no signature is asked for: set spec.verify of the GitRepository"},
		"a source that is not verified": {requires(v1alpha1.SignedSource{}), "GitRepository", "asks", nil, "its signature is not verified: see the condition SourceVerified"},
		"a Bucket":                      {requires(v1alpha1.SignedSource{}), "Bucket", "bucket", nil, "a Bucket has no signatures: take the source from a GitRepository or an OCIRepository"},
		"a source that is gone":         {requires(v1alpha1.SignedSource{}), "GitRepository", "gone", nil, "the source does not exist any more"},
		"an inline module":              {requires(v1alpha1.SignedSource{}), "", "", nil, "the module is inline, and cannot be signed"},
		"a guard of the stack":          {v1alpha1.PolicySpec{Guards: noDestroys()}, "GitRepository", "plain", map[string]string{"guard.terrier.dev/requireSignedSource": "true"}, "set spec.verify"},
		"a guard about something else":  {v1alpha1.PolicySpec{Guards: noDestroys()}, "GitRepository", "plain", nil, ""},
		"a key that is no fingerprint":  {requires(v1alpha1.SignedSource{Keys: []string{"0B3F0D5C9E2177A4"}}), "GitRepository", "signed", nil, `spec.guards.requireSignedSource.keys[0]: is "0B3F0D5C9E2177A4", and may be the whole fingerprint of a key`},
		"a root that is no digest":      {requires(v1alpha1.SignedSource{Identities: []v1alpha1.Signer{{Issuer: "i", Subject: "s", TrustedRoot: "operator"}}}), "GitRepository", "signed", nil, "spec.guards.requireSignedSource.identities[0].trustedRoot: is"},
	} {
		t.Run(name, func(t *testing.T) {
			p := having(t, nil, clusterPolicy("p", tt.spec))
			p.cache, p.Signatures = reader, provenance.Reader{Key: key, Own: true}
			a := asked(t, p, sourced(t, tt.kind, tt.of, tt.notes), "unchanged.json")
			if tt.want == "" {
				if a.Outcome != review.Pass || len(a.Findings) != 0 {
					t.Errorf("Review() = %+v, want that it passes", a)
				}
				return
			}
			if a.Outcome != review.Hold || len(a.Findings) != 1 || !strings.Contains(a.Findings[0].Message, tt.want) {
				t.Errorf("Review() = %+v, want a hold that says %q", a, tt.want)
			}
		})
	}

	t.Run("code besides a signed source", func(t *testing.T) {
		p := having(t, nil, clusterPolicy("p", requires(v1alpha1.SignedSource{})))
		p.cache, p.Signatures = reader, provenance.Reader{Key: key, Own: true}
		obj := sourced(t, "GitRepository", "signed", nil).(*v1alpha2.Terraform)
		obj.Spec.FileMappings = []v1alpha2.FileMapping{{Location: "workspace", Path: "modules/net/evil.tf", SecretRef: v1alpha2.SecretKeyRef{Name: "s", Key: "k"}}}
		obj.Spec.RunnerPodTemplate.Spec.Image = "registry.example.com/evil"
		want := "GitRepository shop/signed is signed, and the runs of the stack have code besides it, by fileMappings and runnerPodTemplate.spec.image: put that into the source"
		if a := asked(t, p, obj, "unchanged.json"); a.Outcome != review.Hold || len(a.Findings) != 1 || a.Findings[0].Message != want {
			t.Errorf("Review() = %+v, want a hold that says %q", a, want)
		}
	})

	t.Run("a signature of another artifact than the plan was made from", func(t *testing.T) {
		p := having(t, nil, clusterPolicy("p", requires(v1alpha1.SignedSource{})))
		p.cache, p.Signatures = reader, provenance.Reader{Key: key, Own: true}
		set, err := p.For(t.Context(), sourced(t, "GitRepository", "signed", nil))
		if err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(filepath.Join("..", "..", "plan", "testdata", "unchanged.json"))
		if err != nil {
			t.Fatal(err)
		}
		a, err := set.Reviewer.Review(t.Context(), &review.Plan{Digest: "sha256:d", Source: "sha256:bbbb", Open: func(context.Context, review.Document) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(raw)), nil
		}})
		if err != nil || a.Outcome != review.Hold || !strings.Contains(a.Why, "the source has another artifact than the plan was made from") {
			t.Errorf("Review() = %+v, %v, want a hold", a, err)
		}
	})

	t.Run("a signature has the plan judged again", func(t *testing.T) {
		p := having(t, nil, clusterPolicy("p", requires(v1alpha1.SignedSource{})))
		p.cache, p.Signatures = reader, provenance.Reader{Key: key, Own: true}
		before, err := p.For(t.Context(), sourced(t, "GitRepository", "plain", nil))
		if err != nil {
			t.Fatal(err)
		}
		var o sourcev1.GitRepository
		if err := reader.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "plain"}, &o); err != nil {
			t.Fatal(err)
		}
		state := provenance.State(&o)
		o.Spec.Verification = &sourcev1.GitRepositoryVerification{}
		o.Status.Conditions = []metav1.Condition{key.Signed(&o, signedArtifact, source.Signature{Kind: source.SignedOpenPGP, By: by})}
		if err := reader.Update(t.Context(), &o); err != nil {
			t.Fatal(err)
		}
		after, err := p.For(t.Context(), sourced(t, "GitRepository", "plain", nil))
		if err != nil || before.Digest == after.Digest {
			t.Errorf("For() = %q, %v before and after the signature", after.Digest, err)
		}
		if provenance.State(&o) == state {
			t.Error("stacks of the source are not woken")
		}
		other, err := p.For(t.Context(), sourced(t, "GitRepository", "signed", nil))
		if err != nil || other.Digest != after.Digest {
			t.Errorf("For() = %q, %v for another source with the same signature, want %q", other.Digest, err, after.Digest)
		}
	})
}
