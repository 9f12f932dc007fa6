package provenance

import (
	"strings"
	"testing"

	"github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/source"
)

const (
	revision = "main@sha1:3f2c0d5c9e2177a40b3f0d5c9e2177a40b3f0d5c"
	artifact = "sha256:aaaa"
	pgpKey   = "0B3F0D5C9E2177A4"
)

func repository(verify bool, conditions ...metav1.Condition) *sourcev1.GitRepository {
	o := &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "net"}}
	o.Status.Artifact = &meta.Artifact{Revision: revision, Digest: artifact}
	o.Status.Conditions = conditions
	if verify {
		o.Spec.Verification = &sourcev1.GitRepositoryVerification{Mode: sourcev1.ModeGitHEAD}
	}
	return o
}

func flux(message string) metav1.Condition {
	return metav1.Condition{Type: sourcev1.SourceVerifiedCondition, Status: metav1.ConditionTrue, Reason: "Succeeded", Message: message}
}

// fluxSays is the message of Flux for a commit.
const fluxSays = "verified signature of\n\t- commit '3f2c0d5c9e2177a40b3f0d5c9e2177a40b3f0d5c' with key '" + pgpKey + "'"

func TestOf(t *testing.T) {
	key := Key{secret.New("key")}
	signed := source.Signature{Kind: source.SignedOpenPGP, By: "F00"}
	ours := key.Signed(repository(true), artifact, signed)
	elsewhere := repository(true)
	elsewhere.Namespace = "team-b"
	yes := policy.Signature{Verified: true, Kind: source.SignedOpenPGP, By: "F00"}
	const not, unasked = "see the condition SourceVerified of the GitRepository", "set spec.verify of the GitRepository"
	for name, tt := range map[string]struct {
		obj    Source
		own    bool
		at     string // the artifact that was planned; the present one if empty
		want   policy.Signature
		reason string
	}{
		"verified":                               {obj: repository(true, ours), own: true, want: yes},
		"verified, and a later revision was not": {obj: repository(true, ours, metav1.Condition{Type: sourcev1.SourceVerifiedCondition, Status: metav1.ConditionFalse}), own: true, want: yes},
		"verified, of another artifact":          {obj: repository(true, ours), own: true, at: "sha256:bbbb", reason: not},
		"verified in another namespace":          {obj: repository(true, key.Signed(elsewhere, artifact, signed)), own: true, reason: not},
		"written with another key":               {obj: repository(true, Key{secret.New("guess")}.Signed(repository(true), artifact, signed)), own: true, reason: not},
		"verified once, and not asked for":       {obj: repository(false, ours), own: true, reason: unasked},
		"not verified":                           {obj: repository(true), own: true, reason: not},
		"Flux says so, where Terrier serves":     {obj: repository(true, flux(fluxSays)), own: true, reason: not},
		"Flux says so":                           {obj: repository(true, flux(fluxSays)), want: policy.Signature{Verified: true, Kind: source.SignedOpenPGP, By: pgpKey}},
		"Flux says so of another revision":       {obj: repository(true, flux(strings.ReplaceAll(fluxSays, "3f2c", "4f2c"))), reason: not},
		"Flux says so, and the plan is older":    {obj: repository(true, flux(fluxSays)), at: "sha256:bbbb", reason: not},
		"Flux says so, and it is not asked for":  {obj: repository(false, flux(fluxSays)), reason: unasked},
		"Flux says so of a tag and its commit":   {obj: repository(true, flux("verified signature of\n\t- tag 'v1@3f2c' with key 'T'\n\t- commit '3f2c0d5c9e2177a40b3f0d5c9e2177a40b3f0d5c' with key 'SHA256:C'")), want: policy.Signature{Verified: true, Kind: source.SignedSSH, By: "SHA256:C", TagBy: "T"}},
		"a Bucket":                               {obj: &sourcev1.Bucket{}, own: true, reason: "a Bucket has no signatures"},
		"an OCIRepository that asks for none":    {obj: &sourcev1.OCIRepository{}, own: true, reason: "set spec.verify of the OCIRepository"},
	} {
		t.Run(name, func(t *testing.T) {
			at := artifact
			if tt.at != "" {
				at = tt.at
			}
			got := Reader{Key: key, Own: tt.own}.Of(tt.obj, revision, at)
			if tt.reason != "" {
				if got.Verified || !strings.Contains(got.Reason, tt.reason) {
					t.Errorf("Of() = %+v, want a reason with %q", got, tt.reason)
				}
				return
			}
			if d := cmp.Diff(got, tt.want); d != "" {
				t.Error(d)
			}
		})
	}
}

// An OCIRepository of Flux is verified without a word of whom.
func TestOCIOfFlux(t *testing.T) {
	o := &sourcev1.OCIRepository{}
	o.Spec.Verify = &sourcev1.OCIRepositoryVerification{Provider: "cosign", MatchOIDCIdentity: []sourcev1.OIDCIdentityMatch{{}}}
	o.Status.Artifact = &meta.Artifact{Revision: "1@sha256:cc", Digest: artifact}
	o.Status.Conditions = []metav1.Condition{flux("verified signature of revision 1@sha256:cc")}
	if got, want := (Reader{}).Of(o, "1@sha256:cc", artifact), (policy.Signature{Verified: true, Kind: source.SignedKeyless}); got != want {
		t.Errorf("Of() = %+v, want %+v", got, want)
	}
}
