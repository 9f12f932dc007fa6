package source

import (
	"context"
	"maps"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// ReasonVerification is the reason of the fault of an artifact of a registry that is not
// signed as its source asks. It is Flux's.
const ReasonVerification = "VerificationError"

// Signature is a signature that was verified, and by whom it is.
type Signature struct {
	Kind   string // one of the kinds below
	By     string // fingerprint of the key, or the subject of the certificate; of a commit, or else of the tag
	TagBy  string // fingerprint of the key of the tag, if By is that of the commit
	Issuer string // of the identity that the certificate is of
	Root   string // what the certificate leads to: RootOfOperator, or the digest of another trusted root
}

// The kinds of signatures.
const (
	SignedOpenPGP = "openpgp"
	SignedSSH     = "ssh"
	SignedCosign  = "cosign"
	SignedKeyless = "cosign-keyless"
)

// RootOfOperator says in Signature.Root that the certificate leads to the trusted root that
// the operator has configured for all sources.
const RootOfOperator = "operator"

// OCIVerifier verifies signatures on artifacts of a registry.
type OCIVerifier interface {
	// Verify finds a signature on the manifest with this digest in the repository. The
	// error is Missing if there is none, and Invalid if none of them counts.
	Verify(ctx context.Context, repo name.Repository, digest string, options []remote.Option) (Signature, error)
	// Rules is a digest of what a signature has to be.
	Rules() string
}

// Rules is a digest of the signatures that the source asks for, empty if it asks for none.
func (o *OCI) Rules() string {
	if o.Verify == nil {
		return ""
	}
	return o.Verify.Rules()
}

// Signed is the signature that the last Fetch has verified, the zero Signature if it has
// verified none.
func (o *OCI) Signed() Signature { return o.signed }

// Rules is a digest of the signatures that the source asks for, empty if it asks for none.
func (g *Git) Rules() string { return g.Verify.rules() }

// Signed is the signature that the last Fetch has verified, the zero Signature if it has
// verified none.
func (g *Git) Signed() Signature { return g.signed }

// reservedPrefix begins the names of metadata that Terrier writes itself.
const reservedPrefix = "terrier.dev/"

// declared are the annotations of a manifest as metadata. The user who pushes an artifact
// writes them, so that those of Terrier are left out.
func declared(annotations map[string]string) map[string]string {
	out := maps.Clone(annotations)
	maps.DeleteFunc(out, func(name, _ string) bool { return strings.HasPrefix(name, reservedPrefix) })
	return out
}
