package policies

import (
	"bytes"
	"cmp"
	"context"
	"errors"
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
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/policy/guard"
	"github.com/terrier-iac/terrier/internal/review"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/stack"
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

// A plan that is made from the record of an apply has the signature that was verified then: the
// source has another artifact by now, or is gone.
func TestSignaturesOfRecords(t *testing.T) {
	key, by := provenance.Key{Text: secret.New("key")}, strings.Repeat("AB12", 10)
	now := &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "net"}}
	now.Spec.Verification = &sourcev1.GitRepositoryVerification{}
	now.Status.Artifact = &meta.Artifact{Revision: "main@sha1:2", Digest: "sha256:bbbb"}
	now.Status.Conditions = []metav1.Condition{key.Signed(now, "sha256:bbbb", source.Signature{Kind: source.SignedOpenPGP, By: by})}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, sourcev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(now, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}).Build()
	signed := guard.Origin{Revision: "main@sha1:1", Artifact: signedArtifact, Signature: policy.Signature{Verified: true, Kind: source.SignedOpenPGP, By: by}}
	unsigned := guard.Origin{Revision: "main@sha1:1", Artifact: signedArtifact, Signature: policy.Signature{Reason: "no signature is asked for"}}
	inputs := stack.PlanInputs{Revision: "main@sha1:1", Source: signedArtifact}
	back := stack.Status{Plans: stack.Plans{Pending: &stack.Plan{PlanInputs: inputs}}, Recovery: stack.Recovery{Rollback: &stack.Rollback{To: stack.Revision{PlanInputs: inputs, Snapshot: "good"}}}}
	gone := stack.Status{Plans: back.Plans, Resources: stack.Resources{Snapshot: "good"}}
	const notThen = "GitRepository shop/net at main@sha1:1 has no verified signature: it was not verified when it was applied, and the signature of another revision says nothing of it. To plan what the object asks for: terrier rollback net --end"
	for name, tt := range map[string]struct {
		status  stack.Status
		record  guard.Origin // under the key good
		keys    []string
		source  string // the name of the source
		parts   bool
		deleted bool
		want    string // what the finding says; empty if there is none
	}{
		"a rollback to what was verified":        {status: back, record: signed},
		"a rollback to what this key signed":     {status: back, record: signed, keys: []string{by}},
		"a rollback to what another one signed":  {status: back, record: signed, keys: []string{strings.Repeat("CD34", 10)}, want: "GitRepository shop/net at main@sha1:1 is signed by the key " + by + ", and the policy allows others"},
		"a rollback to what was not verified":    {status: back, record: unsigned, want: notThen},
		"a rollback without the record":          {status: back, want: notThen},
		"a rollback, and the source is gone":     {status: back, record: signed, source: "gone"},
		"a rollback of a part of a source":       {status: back, record: signed, parts: true},
		"a rollback to a part without a record":  {status: back, parts: true, want: notThen},
		"a rollback to code besides the source":  {status: back, record: guard.Origin{Artifact: signedArtifact, Signature: signed.Signature, Besides: []string{"fileMappings"}}, want: "have code besides it, by fileMappings"},
		"a rollback to another artifact":         {status: back, record: guard.Origin{Artifact: "sha256:cccc", Signature: signed.Signature}, want: "the source has another artifact than the plan was made from"},
		"a deletion of what was verified":        {status: gone, record: signed, deleted: true},
		"a deletion, and the source is gone":     {status: gone, record: signed, deleted: true, source: "gone"},
		"a deletion of what was not verified":    {status: gone, record: unsigned, deleted: true, want: "its signature is not verified: see the condition SourceVerified"},
		"a deletion by what a user has changed":  {status: gone, record: guard.Origin{Artifact: "sha256:cccc", Signature: signed.Signature}, deleted: true, want: "its signature is not verified"},
		"a deletion of a part of a source":       {status: gone, record: signed, deleted: true, parts: true},
		"a deletion of a part without a record":  {status: gone, deleted: true, parts: true, want: "the source has another artifact than the plan was made from"},
		"a plan of a part of what is signed now": {status: stack.Status{Plans: back.Plans}, parts: true},
		"a plan of what the source had before":   {status: stack.Status{Plans: back.Plans, Resources: gone.Resources}, record: signed, want: "its signature is not verified"},
	} {
		t.Run(name, func(t *testing.T) {
			p := having(t, nil, clusterPolicy("p", v1alpha1.PolicySpec{Guards: &v1alpha1.Guards{RequireSignedSource: &v1alpha1.SignedSource{Keys: tt.keys}}}))
			p.cache, p.Signatures = reader, provenance.Reader{Key: key, Own: true}
			notes := map[string]string{}
			if tt.parts {
				notes[dialect.SourcePaths] = "[net]"
			}
			obj := sourced(t, "GitRepository", cmp.Or(tt.source, "net"), notes)
			p.Recorded = func(_ context.Context, uid, key string) (guard.Origin, error) {
				if uid != string(obj.GetUID()) || key != "good" {
					t.Errorf("the record %s of %s is read", key, uid)
				}
				return tt.record, nil
			}
			p.Dialects.For(obj).Encode(obj, dialect.Summary{Status: tt.status})
			if tt.deleted {
				obj.SetDeletionTimestamp(&metav1.Time{Time: p.Now()})
			}
			a := asked(t, p, obj, "unchanged.json")
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
}

// A record that cannot be read at the moment is no policy that is not compiled yet: passes say so
// once that lasts.
func TestARecordThatIsAwaySaysSo(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, sourcev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	p := having(t, nil, clusterPolicy("p", v1alpha1.PolicySpec{Guards: &v1alpha1.Guards{RequireSignedSource: &v1alpha1.SignedSource{}}}))
	p.cache = fake.NewClientBuilder().WithScheme(scheme).WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}).Build()
	obj := sourced(t, "GitRepository", "net", nil)
	p.Dialects.For(obj).Encode(obj, dialect.Summary{Status: stack.Status{Recovery: stack.Recovery{Rollback: &stack.Rollback{To: stack.Revision{Snapshot: "good"}}}}})
	for _, kind := range []fault.Kind{fault.Later, fault.Invalid, fault.Broken} {
		p.Recorded = func(context.Context, string, string) (guard.Origin, error) {
			return guard.Origin{}, fault.New(kind, "BucketAway", errors.New("the bucket does not answer"))
		}
		if _, err := p.For(t.Context(), obj); fault.Of(err) != fault.Broken || fault.Reason(err, "") != "BucketAway" || !strings.Contains(err.Error(), "the bucket does not answer") {
			t.Errorf("For() = %v: %v with a record that is %s, want Broken, and the error", fault.Of(err), err, kind)
		}
	}
}
