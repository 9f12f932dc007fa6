package cosign

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"
	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/terrier-iac/terrier/internal/source"
)

// candidate is a signature that was found, and that may not count.
type candidate struct {
	payload []byte // what is signed in the form of simple signing; nil of a bundle
	// bundle makes the signature a bundle of Sigstore, to be verified with a key or with the
	// certificate that is in it.
	bundle func(keyed bool) (*bundle.Bundle, error)
}

// signPredicate is the type of the statements that cosign sign makes. An attestation of
// another type says something about an artifact, as which packages are in it, and is no
// signature of it.
const signPredicate = "https://sigstore.dev/cosign/sign/v1"

// way verifies a signature on the manifest with this digest in one way.
type way func(c candidate, b *bundle.Bundle, of string) (source.Signature, error)

// best verifies candidates one after another, each read once. Of several signatures the one of
// the first key counts, and not the one that was made first. The zero Signature says that none
// counts.
func (v *Verifier) best(ctx context.Context, found iter.Seq2[candidate, error], of string, t *tally) (by source.Signature, err error) {
	ways, err := v.ways()
	if err != nil {
		return source.Signature{}, err
	}
	for c, err := range found {
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return source.Signature{}, err
		}
		t.seen++
		b, err := c.read(len(v.keys) > 0, of)
		if err != nil {
			t.refuse(err)
			continue
		}
		for i, with := range ways {
			if err := ctx.Err(); err != nil {
				return source.Signature{}, err
			}
			one, err := careful(func() (source.Signature, error) { return with(c, b, of) })
			if err != nil {
				t.refuse(err)
				continue
			}
			by, ways = one, ways[:i] // only those before it are better
			break
		}
		if len(ways) == 0 {
			break
		}
	}
	return by, nil
}

// ways are those in which a signature may count: with each key, or with its certificate.
func (v *Verifier) ways() ([]way, error) {
	if len(v.keys) == 0 {
		with, err := v.withCertificate()
		return []way{with}, err
	}
	var out []way
	for _, k := range v.keys {
		with, err := k.way()
		if err != nil {
			return nil, err
		}
		out = append(out, with)
	}
	return out, nil
}

// careful makes a panic an error: any user who may push writes what is parsed and verified, and
// a library of others does that.
func careful[T any](do func() (T, error)) (v T, err error) {
	defer func() {
		if broken := recover(); broken != nil {
			var none T
			v, err = none, fmt.Errorf("it is malformed: %v", broken)
		}
	}()
	return do()
}

// read checks what is signed before a signature is verified: a signature of another manifest,
// moved to this one, does not count.
func (c candidate) read(keyed bool, of string) (*bundle.Bundle, error) {
	return careful(func() (*bundle.Bundle, error) {
		if c.payload != nil {
			if err := claims(c.payload, of); err != nil {
				return nil, err
			}
		}
		return c.bundle(keyed)
	})
}

// way verifies signatures with the key.
func (k key) way() (way, error) {
	verifier, err := verify.NewVerifier(k.material(), verify.WithNoObserverTimestamps())
	if err != nil {
		return nil, err
	}
	return func(c candidate, b *bundle.Bundle, of string) (source.Signature, error) {
		if _, err := c.verified(verifier, b, of, verify.WithKey()); err != nil {
			return source.Signature{}, fmt.Errorf("with the key %s: %w", k.of, err)
		}
		return source.Signature{Kind: source.SignedCosign, By: k.of}, nil
	}, nil
}

// withCertificate verifies signatures with the certificates that are in them.
func (v *Verifier) withCertificate() (way, error) {
	verifier, err := verify.NewVerifier(v.root, v.options...)
	if err != nil {
		return nil, err
	}
	var policy []verify.PolicyOption
	for _, id := range v.identities {
		one, err := verify.NewShortCertificateIdentity("", id.issuer.String(), "", id.subject.String())
		if err != nil {
			return nil, err
		}
		policy = append(policy, verify.WithCertificateIdentity(one))
	}
	return func(c candidate, b *bundle.Bundle, of string) (source.Signature, error) {
		result, err := c.verified(verifier, b, of, policy...)
		if err != nil {
			return source.Signature{}, err
		}
		by := result.Signature.Certificate
		return source.Signature{Kind: source.SignedKeyless, By: by.SubjectAlternativeName, Issuer: by.Issuer, Root: v.of}, nil
	}, nil
}

// verified verifies the signature over the payload, or the statement in the bundle, which has
// to be one that the artifact is signed.
func (c candidate) verified(verifier *verify.Verifier, b *bundle.Bundle, of string, policy ...verify.PolicyOption) (*verify.VerificationResult, error) {
	if c.payload != nil {
		return verifier.Verify(b, verify.NewPolicy(verify.WithArtifact(bytes.NewReader(c.payload)), policy...))
	}
	sum, err := hex.DecodeString(strings.TrimPrefix(of, "sha256:"))
	if err != nil {
		return nil, fmt.Errorf("reading the digest: %w", err)
	}
	if b.GetDsseEnvelope() == nil {
		return nil, errors.New("the bundle has no statement that the artifact is signed")
	}
	result, err := verifier.Verify(b, verify.NewPolicy(verify.WithArtifactDigest("sha256", sum), policy...))
	if err != nil {
		return nil, err
	}
	if kind := result.Statement.GetPredicateType(); kind != signPredicate {
		return nil, fmt.Errorf("it is an attestation of the type %.200q, and no signature", kind)
	}
	return result, nil
}

// material makes the key all that a signature may lead to.
func (k key) material() root.TrustedMaterial {
	return root.NewTrustedPublicKeyMaterial(func(string) (root.TimeConstrainedVerifier, error) {
		v, err := signature.LoadVerifier(k.public, crypto.SHA256)
		return always{v}, err
	})
}

// always is a key without an end.
type always struct{ signature.Verifier }

func (always) ValidAtTime(time.Time) bool { return true }
