package sources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/internal/controller/provenance"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/source/cosign"
)

// verifying is a fetcher that verifies signatures.
type verifying interface {
	Rules() string
	Signed() source.Signature
}

// verifiedBy is in the metadata of artifacts whose signature was verified: a digest of what
// was asked for. An artifact that was verified by other keys is verified again.
const verifiedBy = "terrier.dev/verified-by"

// rules is a digest of the signatures that are asked for now, empty if none are.
func (p *pass) rules() string {
	if v, ok := p.fetcher.(verifying); ok {
		return v.Rules()
	}
	return ""
}

// signed reports whether the artifact has the signature that is asked for.
func (p *pass) signed(key secret.Text) bool {
	rules, a := p.rules(), *p.fields.artifact
	if rules == "" {
		return true
	}
	// Others may have changed the condition or removed it.
	return a != nil && a.Metadata[verifiedBy] == rules && provenance.Key{Text: key}.Holds(p.obj, a.Digest)
}

// sign writes down whose signature the new artifact has.
func (p *pass) sign(key secret.Text) {
	rules := p.rules()
	if rules == "" {
		return
	}
	a := *p.fields.artifact
	if a.Metadata == nil {
		a.Metadata = map[string]string{}
	}
	a.Metadata[verifiedBy] = rules
	c := provenance.Key{Text: key}.Signed(p.obj, a.Digest, p.fetcher.(verifying).Signed())
	set(p, c.Type, c.Status, c.Reason, c.Message)
}

// verified says that the signature of the artifact is the one that is asked for.
func (p *pass) verified() {
	if !p.adapter.verifies() {
		remove(p, sourcev1.SourceVerifiedCondition, provenance.ArtifactSigned)
		return
	}
	set(p, sourcev1.SourceVerifiedCondition, metav1.ConditionTrue, meta.SucceededReason,
		fmt.Sprintf("verified signature of revision '%s'%s", (*p.fields.artifact).Revision, provenance.By(condition(p, provenance.ArtifactSigned))))
}

// refused says that a signature is missing or wrong. What was verified of the artifact in the
// status stays true, unless other signatures are asked for by now.
func (p *pass) refused(o observation, err error) {
	if !p.adapter.verifies() {
		remove(p, sourcev1.SourceVerifiedCondition, provenance.ArtifactSigned)
		return
	}
	reason := fault.Reason(err, "")
	if reason == source.ReasonSignature || reason == source.ReasonVerification {
		set(p, sourcev1.SourceVerifiedCondition, metav1.ConditionFalse, reason, source.Message(err))
	}
	// Without a fetcher it is not known what is asked for. What passes by itself changes
	// nothing.
	other := p.fetcher != nil && o.unsigned || p.fetcher == nil && stalled(err)
	switch {
	case *p.fields.artifact == nil:
		remove(p, provenance.ArtifactSigned)
	case other:
		set(p, provenance.ArtifactSigned, metav1.ConditionFalse, "NotVerified", "the artifact was not verified by what spec.verify says now")
	}
}

// verifier reads what signatures an OCIRepository asks for; nil if for none.
func (o oci) verifier(ctx context.Context, in inputs) (source.OCIVerifier, error) {
	v := o.Spec.Verify
	if v == nil {
		return nil, nil
	}
	if err := unsupported(map[string]bool{"spec.verify.provider " + v.Provider: v.Provider != "" && v.Provider != "cosign"}); err != nil {
		return nil, err
	}
	if v.SecretRef != nil {
		if len(v.MatchOIDCIdentity) > 0 || v.TrustedRootSecretRef != nil {
			return nil, fault.New(fault.Invalid, source.ReasonVerification, errors.New(
				"spec.verify has keys in secretRef, and identities in matchOIDCIdentity or trustedRootSecretRef: remove secretRef, or the others"))
		}
		keys, err := in.secret(ctx, v.SecretRef)
		if err != nil {
			return nil, err
		}
		return orNil(cosign.WithKeys(keys))
	}
	root, ofOperator, err := in.root(ctx, v.TrustedRootSecretRef)
	if err != nil {
		return nil, err
	}
	var all []cosign.Identity
	for _, id := range v.MatchOIDCIdentity {
		all = append(all, cosign.Identity{Issuer: id.Issuer, Subject: id.Subject})
	}
	return orNil(cosign.Keyless(root, ofOperator, all))
}

// orNil keeps a nil pointer from becoming an interface that is not nil.
func orNil(v *cosign.Verifier, err error) (source.OCIVerifier, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

// rootBytes bounds a trusted root.
const rootBytes = 1 << 20

// root is the trusted root in a Secret, or else that of the operator.
func (in inputs) root(ctx context.Context, ref *meta.LocalObjectReference) (content []byte, ofOperator bool, err error) {
	if ref != nil {
		data, err := in.secret(ctx, ref)
		if err == nil && len(data[cosign.RootFile]) == 0 {
			err = fault.New(fault.Missing, source.ReasonVerification, fmt.Errorf("the Secret %q of spec.verify.trustedRootSecretRef has no %s: add it", ref.Name, cosign.RootFile))
		}
		return data[cosign.RootFile], false, err
	}
	if in.trusted == "" {
		return nil, true, fault.New(fault.Invalid, source.ReasonVerification, errors.New(
			"spec.verify has no secretRef with keys, and there is no trusted root for certificates: add spec.verify.trustedRootSecretRef, or have the operator set --sigstore-trusted-root"))
	}
	f, err := os.Open(in.trusted)
	if err == nil {
		content, err = io.ReadAll(io.LimitReader(f, rootBytes+1))
		err = errors.Join(err, f.Close())
	}
	if err == nil && len(content) > rootBytes {
		err = fmt.Errorf("it has more than %d bytes", rootBytes)
	}
	if err != nil {
		return nil, true, fault.New(fault.Broken, source.ReasonVerification, fmt.Errorf("reading the file of --sigstore-trusted-root: %w", err))
	}
	return content, true, nil
}
