// Package cosign verifies signatures on artifacts of OCI registries that the program cosign
// made, with public keys, or with certificates for identities that lead to a trusted root. It
// signs nothing, and asks no server but the registry: what a signature has to lead to is
// given by the caller, and not fetched.
//
// Start reading at Verifier.Verify: it finds signatures in the two places where cosign puts
// them (simplesigning.go, referrers.go), and check.go says which of them count.
package cosign

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/source"
)

// KeySuffix ends the names of public keys in a Secret, as Flux has it.
const KeySuffix = ".pub"

// RootFile is the name of the trusted root in a Secret, as Flux has it.
const RootFile = "trusted_root.json"

// Verifier says which signatures count. WithKeys and Keyless make one.
type Verifier struct {
	keys []key

	root       *root.TrustedRoot
	of         string // what Signature.Root says of the root
	identities []identity
	options    []verify.VerifierOption

	rules string
}

var _ source.OCIVerifier = (*Verifier)(nil)

// key is a public key and its fingerprint.
type key struct {
	public crypto.PublicKey
	of     string // sha256: and the hexadecimal digest of its DER form
}

// Identity are patterns of the identities whose certificates count. Both are regular
// expressions, and have to match the whole text.
type Identity struct {
	Issuer  string
	Subject string
}

type identity struct{ issuer, subject *regexp.Regexp }

// keysMost is how many public keys a Secret may have. Each signature is tried with each key,
// and any user who may push writes signatures.
const keysMost = 32

// WithKeys returns a Verifier for signatures of the public keys in a Secret, whose names end
// in .pub: at most 32. A Secret without any is an error: with no key, no signature could count.
func WithKeys(data map[string][]byte) (*Verifier, error) {
	v := &Verifier{}
	parts := []string{"keys"}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(data)), func(at string) bool { return !strings.HasSuffix(at, KeySuffix) })
	if len(names) > keysMost {
		return nil, invalid("the Secret has %d public keys, and at most %d are tried: remove those whose signatures no longer have to count", len(names), keysMost)
	}
	for _, at := range names {
		k, err := readKey(data[at])
		if err != nil {
			return nil, invalid("the public key %.100q cannot be read: %w: it is the file cosign.pub, which cosign generate-key-pair makes", at, err)
		}
		v.keys, parts = append(v.keys, k), append(parts, k.of)
	}
	if len(names) == 0 {
		return nil, invalid("there is no public key to verify signatures with: add the file cosign.pub to the Secret, under a name that ends in %s", KeySuffix)
	}
	v.rules = digest(parts...)
	return v, nil
}

// readKey reads a key as PEM. Keys that are too weak to count are refused.
func readKey(text []byte) (key, error) {
	block, rest := pem.Decode(text)
	if block == nil || block.Type != "PUBLIC KEY" {
		return key{}, errors.New("it is no public key in the form of PEM")
	}
	if len(strings.TrimSpace(string(rest))) > 0 {
		return key{}, errors.New("there is more than one key in it, or another text")
	}
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return key{}, err
	}
	if err := strong(public); err != nil {
		return key{}, err
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return key{}, err
	}
	sum := sha256.Sum256(der)
	return key{public, "sha256:" + hex.EncodeToString(sum[:])}, nil
}

// bitsMost bounds a key of RSA: the time of a verification grows with the square of its size.
const bitsMost = 16384

// strong refuses keys that cosign refuses: RSA of less than 2,048 bits, other curves than
// those of NIST, and other kinds of keys. It refuses RSA of more than 16,384 bits as well.
func strong(public any) error {
	switch k := public.(type) {
	case *rsa.PublicKey:
		if bits := k.N.BitLen(); bits < 2048 {
			return fmt.Errorf("it is an RSA key of %d bits, and the least is 2048", bits)
		} else if bits > bitsMost {
			return fmt.Errorf("it is an RSA key of %d bits, and the most is %d", bits, bitsMost)
		}
		return nil
	case *ecdsa.PublicKey:
		if name := k.Curve.Params().Name; name != "P-256" && name != "P-384" && name != "P-521" {
			return fmt.Errorf("it is a key of the curve %s; P-256, P-384 and P-521 count", name)
		}
		return nil
	case ed25519.PublicKey:
		return nil
	}
	return fmt.Errorf("it is a key of the kind %T; RSA, ECDSA and Ed25519 count", public)
}

// Keyless returns a Verifier for signatures with certificates of certain identities, which
// lead to the trusted root in trusted, a file trusted_root.json. Of the operator says that it
// is the root that the operator has configured. With no identity, and with a root that does
// not say when a certificate was used, no signature could count, which is an error.
func Keyless(trusted []byte, ofOperator bool, identities []Identity) (*Verifier, error) {
	v := &Verifier{of: digest(string(trusted))}
	var err error
	if v.root, err = root.NewTrustedRootFromJSON(trusted); err != nil {
		return nil, invalid("the trusted root cannot be read: %w: it is a file %s of Sigstore", err, RootFile)
	}
	if v.options, err = demands(v.root); err != nil {
		return nil, err
	}
	parts := []string{"keyless", v.of}
	if ofOperator {
		v.of = source.RootOfOperator
	}
	for i, id := range identities {
		one, err := id.compile()
		if err != nil {
			return nil, invalid("spec.verify.matchOIDCIdentity[%d].%w", i, err)
		}
		v.identities, parts = append(v.identities, one), append(parts, id.Issuer, id.Subject)
	}
	if len(v.identities) == 0 {
		return nil, invalid("spec.verify.matchOIDCIdentity is empty: without a key, name the issuer and the subject whose signatures count")
	}
	v.rules = digest(parts...)
	return v, nil
}

// demands are what a signature needs besides a certificate, by what is in the root: an entry
// of a transparency log if the root has logs, the proof that a certificate was published if it
// has logs of these, and in any case a time from a log or from a timestamp authority, at which
// the certificate has to be valid.
func demands(r *root.TrustedRoot) ([]verify.VerifierOption, error) {
	if len(r.FulcioCertificateAuthorities()) == 0 {
		return nil, invalid("the trusted root has no certificate authority")
	}
	var out []verify.VerifierOption
	switch {
	case len(r.RekorLogs()) > 0:
		out = append(out, verify.WithTransparencyLog(1), verify.WithObserverTimestamps(1))
	case len(r.TimestampingAuthorities()) > 0:
		out = append(out, verify.WithSignedTimestamps(1))
	default:
		return nil, invalid("the trusted root has neither a transparency log nor a timestamp authority, so that nothing says when a certificate was used")
	}
	if len(r.CTLogs()) > 0 {
		out = append(out, verify.WithSignedCertificateTimestamps(1))
	}
	return out, nil
}

// compile anchors the patterns: a pattern for one repository must not match the longer name
// of another.
func (id Identity) compile() (identity, error) {
	var out identity
	for _, p := range []struct {
		field, pattern string
		into           **regexp.Regexp
	}{{"issuer", id.Issuer, &out.issuer}, {"subject", id.Subject, &out.subject}} {
		if p.pattern == "" {
			return out, fmt.Errorf("%s is empty: it is a regular expression that matches the whole %s", p.field, p.field)
		}
		// The pattern has to be one alone: "a)|(?:b" is none, and would escape the anchors.
		if _, err := regexp.Compile(p.pattern); err != nil {
			return out, fmt.Errorf("%s: %w", p.field, err)
		}
		re, err := regexp.Compile(`\A(?:` + p.pattern + `)\z`)
		if err != nil {
			return out, fmt.Errorf("%s: %w", p.field, err)
		}
		*p.into = re
	}
	return out, nil
}

// Rules implements source.OCIVerifier.
func (v *Verifier) Rules() string { return v.rules }

// Verify implements source.OCIVerifier. One signature that counts suffices.
func (v *Verifier) Verify(ctx context.Context, repo name.Repository, of string, options []remote.Option) (source.Signature, error) {
	at, err := name.NewDigest(repo.Name()+"@"+of, repoOptions(repo)...)
	if err != nil {
		return source.Signature{}, invalid("%q is no digest", of)
	}
	options = append(slices.Clone(options), remote.WithContext(ctx))
	var t tally
	for _, find := range []func(name.Digest, []remote.Option, *tally) iter.Seq2[candidate, error]{simpleSignings, referrers} {
		if by, err := v.best(ctx, find(at, options, &t), at.DigestStr(), &t); err != nil || by.Kind != "" {
			return by, err
		}
	}
	if t.seen == 0 {
		return source.Signature{}, fault.New(fault.Missing, source.ReasonVerification, fmt.Errorf("there is no signature of %s in the repository: run cosign sign %s", of, at.Name()))
	}
	return source.Signature{}, invalid("none of %d signatures of %s counts%s: %w", t.seen, of, t.unseen(), t.why())
}

// tally is what became of the candidates that do not count.
type tally struct {
	seen    int
	left    int     // that were not looked at
	refused []error // the first of them
	more    int
}

// reasonsMost is how many reasons an error has why signatures do not count.
const reasonsMost = 5

func (t *tally) refuse(err error) {
	if len(t.refused) == reasonsMost {
		t.more++
		return
	}
	t.refused = append(t.refused, err)
}

func (t *tally) why() error {
	if t.more == 0 {
		return errors.Join(t.refused...)
	}
	return errors.Join(append(t.refused, fmt.Errorf("and %d more reasons", t.more))...)
}

// unseen says that a signature that counts may be hidden behind others.
func (t *tally) unseen() string {
	if t.left == 0 {
		return ""
	}
	return fmt.Sprintf(", and %d more were not looked at, because at most %d in one place are, of %d MiB in all: delete from the repository what is no signature that counts", t.left, candidatesMost, bytesMost>>20)
}

func repoOptions(repo name.Repository) []name.Option {
	if repo.Scheme() == "http" {
		return []name.Option{name.Insecure}
	}
	return nil
}

func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		_, _ = fmt.Fprintf(h, "%d %s\n", len(p), p) // a hash has no errors
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

func invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, source.ReasonVerification, fmt.Errorf(format, args...))
}
