// Package cosigntest signs artifacts of registries in the forms in which the program cosign
// does, for tests. It makes keys, and a certificate authority with a transparency log.
//
// Start reading at Key.Sign and Sigstore.Sign.
package cosigntest

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Key is a key that signs.
type Key struct {
	crypto.Signer
	Public      []byte // PEM, as cosign.pub
	Fingerprint string
}

// The kinds of keys that NewKey makes.
const (
	ECDSA   = "ecdsa"
	RSA     = "rsa"
	Ed25519 = "ed25519"
)

// NewKey makes a key.
func NewKey(tb testing.TB, kind string) Key {
	tb.Helper()
	var k Key
	var err error
	switch kind {
	case ECDSA:
		k.Signer, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case RSA:
		k.Signer, err = rsa.GenerateKey(rand.Reader, 2048)
	case Ed25519:
		_, k.Signer, err = ed25519.GenerateKey(rand.Reader)
	default:
		tb.Fatalf("%q is no kind of keys", kind)
	}
	if err != nil {
		tb.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(k.Signer.Public())
	if err != nil {
		tb.Fatal(err)
	}
	sum := sha256.Sum256(der)
	k.Public = pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	k.Fingerprint = "sha256:" + hex.EncodeToString(sum[:])
	return k
}

// over signs a message, as cosign does with a key of its kind.
func (k Key) over(tb testing.TB, message []byte) []byte {
	tb.Helper()
	sum := sha256.Sum256(message)
	var opts crypto.SignerOpts = crypto.SHA256
	digest := sum[:]
	if _, ok := k.Signer.(ed25519.PrivateKey); ok {
		opts, digest = crypto.Hash(0), message
	}
	sig, err := k.Signer.Sign(rand.Reader, digest, opts)
	if err != nil {
		tb.Fatal(err)
	}
	return sig
}

// Payload is what cosign signs for the artifact with this digest.
func Payload(at name.Digest, digest string) []byte {
	return fmt.Appendf(nil, `{"critical":{"identity":{"docker-reference":%q},"image":{"docker-manifest-digest":%q},"type":"cosign container image signature"},"optional":null}`,
		at.Context().Name(), digest)
}

// Sign adds a signature on the artifact to those beside it.
func (k Key) Sign(tb testing.TB, at name.Digest) {
	tb.Helper()
	k.SignPayload(tb, at, Payload(at, at.DigestStr()))
}

// SignPayload adds a signature on any payload to those beside the artifact.
func (k Key) SignPayload(tb testing.TB, at name.Digest, payload []byte) {
	tb.Helper()
	Attach(tb, at, payload, map[string]string{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(k.over(tb, payload))})
}

// Beside is the tag where the signatures of an artifact are.
func Beside(at name.Digest) name.Tag {
	return at.Context().Tag(strings.Replace(at.DigestStr(), ":", "-", 1) + ".sig")
}

// Attach adds a payload with annotations to the signatures beside an artifact.
func Attach(tb testing.TB, at name.Digest, payload []byte, notes map[string]string) {
	tb.Helper()
	image, err := remote.Image(Beside(at))
	if answer, ok := err.(*transport.Error); ok && answer.StatusCode == http.StatusNotFound { //nolint:errorlint // as it is returned
		image, err = mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), nil
	}
	if err != nil {
		tb.Fatal(err)
	}
	image, err = mutate.Append(image, mutate.Addendum{
		Layer: static.NewLayer(payload, "application/vnd.dev.cosign.simplesigning.v1+json"), Annotations: notes,
	})
	if err != nil {
		tb.Fatal(err)
	}
	if err := remote.Write(Beside(at), image); err != nil {
		tb.Fatal(err)
	}
}

// BundleType is the media type of the bundles that cosign writes.
const BundleType = "application/vnd.dev.sigstore.bundle.v0.3+json"

// Refer adds a bundle as a manifest that refers to the artifact.
func Refer(tb testing.TB, at name.Digest, bundle []byte, predicate string) {
	tb.Helper()
	of, err := remote.Head(at)
	if err != nil {
		tb.Fatal(err)
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), BundleType)
	image, err = mutate.AppendLayers(image, static.NewLayer(bundle, BundleType))
	if err != nil {
		tb.Fatal(err)
	}
	image = mutate.Annotations(image, map[string]string{"dev.sigstore.bundle.content": "dsse-envelope", "dev.sigstore.bundle.predicateType": predicate}).(v1.Image)
	image = mutate.Subject(image, *of).(v1.Image)
	digest, err := image.Digest()
	if err != nil {
		tb.Fatal(err)
	}
	if err := remote.Write(at.Context().Digest(digest.String()), image); err != nil {
		tb.Fatal(err)
	}
}

// SignPredicate is the type of the statement that cosign sign makes.
const SignPredicate = "https://sigstore.dev/cosign/sign/v1"

// Statement says something of the type predicate about the artifact with this digest.
func Statement(digest, predicate string) []byte {
	return fmt.Appendf(nil, `{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{"sha256":%q}}],"predicateType":%q,"predicate":{}}`,
		strings.TrimPrefix(digest, "sha256:"), predicate)
}

// Bundle is a statement, signed with the key.
func (k Key) Bundle(tb testing.TB, statement []byte) []byte {
	tb.Helper()
	return encoded(tb, map[string]any{
		"mediaType":            BundleType,
		"verificationMaterial": map[string]any{"publicKey": map[string]any{"hint": k.Fingerprint}},
		"dsseEnvelope": map[string]any{
			"payload": statement, "payloadType": statementType, "signatures": []any{map[string]any{"sig": k.over(tb, preAuthenticated(statement))}},
		},
	})
}

const statementType = "application/vnd.in-toto+json"

// preAuthenticated is what is signed of a statement.
func preAuthenticated(statement []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(statementType), statementType, len(statement), statement)
}

func encoded(tb testing.TB, v any) []byte {
	tb.Helper()
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(v); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}
