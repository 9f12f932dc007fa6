// Package provenance says whether the artifact of a source is signed, and by whom: what
// Terrier's controller of sources has verified, or Flux's. It verifies nothing.
//
// Start reading at Reader.Of.
package provenance

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/source"
)

// Source is a source of any kind.
type Source interface {
	client.Object
	sourcev1.Source
}

// ArtifactSigned is the condition by which Terrier's controller of sources says whose
// signature the artifact in the status has. SourceVerified, which is Flux's, is about the
// revision that was found last, and says nothing of the artifact once that revision was
// refused.
const ArtifactSigned = "terrier.dev/ArtifactSigned"

// record is the message of ArtifactSigned. Its MAC keeps users who may change the status of a
// source from writing one.
type record struct {
	Artifact string `json:"artifact"` // digest of the archive
	policy.Signature
	MAC string `json:"mac"`
}

// Key authenticates what the controller of sources has verified. All controllers of an
// installation share it.
type Key struct{ secret.Text }

func (k Key) mac(of client.Object, r record) string {
	r.MAC = ""
	b, err := json.Marshal(r)
	if err != nil {
		panic("provenance: encoding a signature: " + err.Error()) // texts
	}
	mac := hmac.New(sha256.New, []byte(k.Reveal()))
	// The key serves other purposes too.
	_, _ = fmt.Fprintf(mac, "signature\x00%s\x00%s\x00%s\x00", kindOf(of), of.GetNamespace(), of.GetName()) // a hash has no errors
	mac.Write(b)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:18])
}

// Signed is the condition of an artifact whose signature was verified.
func (k Key) Signed(of client.Object, artifact string, s source.Signature) metav1.Condition {
	r := record{Artifact: artifact, Signature: policy.Signature{Verified: true, Kind: s.Kind, By: s.By, TagBy: s.TagBy, Issuer: s.Issuer, Root: s.Root}}
	r.MAC = k.mac(of, r)
	b, err := json.Marshal(r)
	if err != nil {
		panic("provenance: encoding a signature: " + err.Error())
	}
	return metav1.Condition{Type: ArtifactSigned, Status: metav1.ConditionTrue, Reason: "Verified", Message: string(b)}
}

// read returns what the controller of sources has verified; false if nothing.
func (k Key) read(of client.Object, all []metav1.Condition) (record, bool) {
	var r record
	c := meta.FindStatusCondition(all, ArtifactSigned)
	if c == nil || c.Status != metav1.ConditionTrue || json.Unmarshal([]byte(c.Message), &r) != nil {
		return record{}, false
	}
	return r, r.Verified && hmac.Equal([]byte(r.MAC), []byte(k.mac(of, r)))
}

// Holds reports whether the controller of sources says of a source that it has verified the
// signature of this artifact.
func (k Key) Holds(of client.Object, artifact string) bool {
	_, _, all := asked(of)
	r, ok := k.read(of, all)
	return ok && r.Artifact == artifact
}

// Reader reads what is known of signatures.
type Reader struct {
	Key Key
	Own bool // Terrier's controller serves the sources: what another one says does not count
}

// Of returns what is known of the signature on an artifact that a source has or had: its
// revision, and the digest of its archive. A reason is the same as long as the next step is.
func (r Reader) Of(obj Source, revision, digest string) policy.Signature {
	asks, kind, all := asked(obj)
	name := kindOf(obj)
	switch {
	case kind == "":
		return policy.Signature{Reason: fmt.Sprintf("a %s has no signatures: take the source from a GitRepository or an OCIRepository", name)}
	case !asks:
		return policy.Signature{Reason: fmt.Sprintf("no signature is asked for: set spec.verify of the %s, with the public keys in a Secret", name)}
	}
	if seen, ok := r.Key.read(obj, all); ok && seen.Artifact == digest {
		return seen.Signature
	}
	not := policy.Signature{Kind: kind, Reason: fmt.Sprintf("its signature is not verified: see the condition %s of the %s", sourcev1.SourceVerifiedCondition, name)}
	c := meta.FindStatusCondition(all, sourcev1.SourceVerifiedCondition)
	if r.Own || c == nil || c.Status != metav1.ConditionTrue {
		return not
	}
	// What the source has now may be newer than what was planned, and what was verified last
	// newer than what it has.
	a := obj.GetArtifact()
	_, sum, _ := strings.Cut(revision, ":")
	if a == nil || a.Revision != revision || a.Digest != digest || sum == "" || !strings.Contains(c.Message, sum) {
		return not
	}
	return fromFlux(kind, c.Message)
}

// fluxKey is how Flux names the key of a commit or a tag.
var fluxKey = regexp.MustCompile(`- (tag|commit) '[^']*' with key '([^']*)'`)

// fromFlux is what Flux says of a signature. It names the keys of git, and no others.
func fromFlux(kind, message string) policy.Signature {
	out := policy.Signature{Verified: true, Kind: kind}
	if kind != source.SignedOpenPGP {
		return out
	}
	for _, m := range fluxKey.FindAllStringSubmatch(message, -1) {
		if strings.HasPrefix(m[2], "SHA256:") {
			out.Kind = source.SignedSSH
		}
		if m[1] == "tag" {
			out.TagBy = m[2]
		} else {
			out.By = m[2]
		}
	}
	if out.By == "" {
		out.By, out.TagBy = out.TagBy, ""
	}
	return out
}

// asked says whether a source asks for signatures, of which kind they are, and what its
// conditions are. The kind is empty for sources without any.
func asked(obj client.Object) (asks bool, kind string, all []metav1.Condition) {
	switch o := obj.(type) {
	case *sourcev1.GitRepository:
		return o.Spec.Verification != nil, source.SignedOpenPGP, o.Status.Conditions
	case *sourcev1.OCIRepository:
		v := o.Spec.Verify
		switch {
		case v == nil:
			return false, source.SignedCosign, o.Status.Conditions
		case v.Provider != "" && v.Provider != "cosign":
			return true, v.Provider, o.Status.Conditions
		case v.SecretRef == nil:
			return true, source.SignedKeyless, o.Status.Conditions
		default:
			return true, source.SignedCosign, o.Status.Conditions
		}
	default:
		return false, "", nil
	}
}

func kindOf(obj client.Object) string {
	switch obj.(type) {
	case *sourcev1.GitRepository:
		return sourcev1.GitRepositoryKind
	case *sourcev1.OCIRepository:
		return sourcev1.OCIRepositoryKind
	case *sourcev1.Bucket:
		return sourcev1.BucketKind
	default:
		return "source"
	}
}

// State is all of a source that Of depends on besides its artifact and its spec: if it
// changes, plans may have to be judged again.
func State(obj client.Object) string {
	asks, kind, all := asked(obj)
	out := fmt.Sprintf("%t %s", asks, kind)
	for _, t := range []string{sourcev1.SourceVerifiedCondition, ArtifactSigned} {
		if c := meta.FindStatusCondition(all, t); c != nil {
			out += fmt.Sprintf(" %s %s", c.Status, c.Message)
		}
	}
	return out
}

// By names, for a message, whose signature a condition ArtifactSigned says an artifact has:
// "by the key sha256:…".
func By(c metav1.Condition) string {
	var r record
	if c.Status != metav1.ConditionTrue || json.Unmarshal([]byte(c.Message), &r) != nil {
		return ""
	}
	return " " + r.Signer()
}
