package cosign_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	ggcr "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/source/cosign"
	"github.com/terrier-iac/terrier/internal/source/cosign/cosigntest"
)

// registries are those of this program and of another vendor, with and without an API that
// lists what refers to a manifest.
func registries(t *testing.T) map[string]string {
	t.Helper()
	own, err := source.NewRegistry(t.TempDir(), source.RegistryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	quiet := ggcr.Logger(log.New(io.Discard, "", 0))
	out := map[string]string{}
	for name, h := range map[string]http.Handler{"own": own, "tags": ggcr.New(quiet), "referrers": ggcr.New(quiet, ggcr.WithReferrersSupport(true))} {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		out[name] = strings.TrimPrefix(s.URL, "http://")
	}
	return out
}

// push pushes an artifact and returns where it is by its digest.
func push(t *testing.T, host, content string) name.Digest {
	t.Helper()
	image, err := mutate.AppendLayers(empty.Image, static.NewLayer([]byte(content), "text/plain"))
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(host + "/team/net:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(tag, image); err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return tag.Context().Digest(digest.String())
}

func withKeys(t *testing.T, keys ...cosigntest.Key) *cosign.Verifier {
	t.Helper()
	data := map[string][]byte{"note.txt": []byte("no key")}
	for i, k := range keys {
		data[string(rune('a'+i))+".pub"] = k.Public
	}
	v, err := cosign.WithKeys(data)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func verify(t *testing.T, v *cosign.Verifier, at name.Digest) (source.Signature, error) {
	t.Helper()
	return v.Verify(t.Context(), at.Context(), at.DigestStr(), nil)
}

// Signatures with keys count in both places where cosign puts them, on all registries.
func TestKeys(t *testing.T) {
	for registry, host := range registries(t) {
		for _, kind := range []string{cosigntest.ECDSA, cosigntest.RSA, cosigntest.Ed25519} {
			for place, sign := range map[string]func(k cosigntest.Key, at name.Digest){
				"tag": func(k cosigntest.Key, at name.Digest) { k.Sign(t, at) },
				"bundle": func(k cosigntest.Key, at name.Digest) {
					cosigntest.Refer(t, at, k.Bundle(t, cosigntest.Statement(at.DigestStr(), cosigntest.SignPredicate)), cosigntest.SignPredicate)
				},
			} {
				t.Run(registry+" "+kind+" "+place, func(t *testing.T) {
					key, other := cosigntest.NewKey(t, kind), cosigntest.NewKey(t, cosigntest.ECDSA)
					at := push(t, host, registry+kind+place)
					if _, err := verify(t, withKeys(t, key), at); fault.Of(err) != fault.Missing || !strings.Contains(err.Error(), "run cosign sign "+at.Name()) {
						t.Errorf("without a signature the error is %v, want one of the kind Missing that names the command", err)
					}
					sign(other, at)
					if _, err := verify(t, withKeys(t, key), at); fault.Of(err) != fault.Invalid || fault.Reason(err, "") != source.ReasonVerification {
						t.Errorf("with a signature of another key the error is %v, want one of the kind Invalid", err)
					}
					sign(key, at)
					for name, keys := range map[string][]cosigntest.Key{"alone": {key}, "before another": {key, other}, "after one that did not sign": {cosigntest.NewKey(t, cosigntest.Ed25519), key}} {
						if by, err := verify(t, withKeys(t, keys...), at); err != nil || by.Kind != source.SignedCosign || by.By != key.Fingerprint {
							t.Errorf("%s: Verify() = %+v, %v, want a signature by %s, beside one of another key", name, by, err, key.Fingerprint)
						}
					}
				})
			}
		}
	}
}

// What a key has signed counts only if it is that this artifact is signed.
func TestWhatIsSigned(t *testing.T) {
	host := registries(t)["referrers"]
	key := cosigntest.NewKey(t, cosigntest.ECDSA)
	elsewhere := push(t, host, "another artifact")
	for name, tt := range map[string]struct {
		sign func(at name.Digest)
		want string
	}{
		"a signature of another artifact, moved here": {func(at name.Digest) { key.SignPayload(t, at, cosigntest.Payload(at, elsewhere.DigestStr())) },
			"it is the signature of another artifact"},
		"a payload of another type": {func(at name.Digest) {
			key.SignPayload(t, at, []byte(strings.Replace(string(cosigntest.Payload(at, at.DigestStr())), "cosign container image signature", "approval", 1)))
		}, `of the type "approval"`},
		"no JSON": {func(at name.Digest) { key.SignPayload(t, at, []byte(at.DigestStr())) }, "reading what is signed"},
		"a payload that was changed": {func(at name.Digest) {
			other := cosigntest.NewKey(t, cosigntest.ECDSA)
			other.SignPayload(t, at, append(cosigntest.Payload(at, at.DigestStr()), ' '))
		}, "failed to verify signature"},
		"no signature": {func(at name.Digest) {
			cosigntest.Attach(t, at, cosigntest.Payload(at, at.DigestStr()), map[string]string{"dev.cosignproject.cosign/signature": "%%%"})
		}, "is no signature"},
		"a statement about another artifact": {func(at name.Digest) {
			cosigntest.Refer(t, at, key.Bundle(t, cosigntest.Statement(elsewhere.DigestStr(), cosigntest.SignPredicate)), cosigntest.SignPredicate)
		}, "failed to verify signature"},
		"an attestation of another type": {func(at name.Digest) {
			cosigntest.Refer(t, at, key.Bundle(t, cosigntest.Statement(at.DigestStr(), "https://spdx.dev/Document")), cosigntest.SignPredicate)
		}, `it is an attestation of the type "https://spdx.dev/Document", and no signature`},
		"a bundle that is none": {func(at name.Digest) { cosigntest.Refer(t, at, []byte("{}"), cosigntest.SignPredicate) }, "reading the bundle"},
		"a bundle of parts that are missing": {func(at name.Digest) {
			cosigntest.Refer(t, at, []byte(`{"mediaType":"`+cosigntest.BundleType+`","verificationMaterial":{"tlogEntries":[{}]}}`), "")
		}, "reading the bundle"},
	} {
		t.Run(name, func(t *testing.T) {
			at := push(t, host, name)
			tt.sign(at)
			by, err := verify(t, withKeys(t, key), at)
			if fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("Verify() = %+v, %v, want an error with %q", by, err, tt.want)
			}
			key.Sign(t, at)
			if by, err = verify(t, withKeys(t, key), at); err != nil || by.By != key.Fingerprint {
				t.Errorf("beside a signature that counts Verify() = %+v, %v", by, err)
			}
		})
	}
}

const (
	issuer  = "https://token.example.com"
	subject = "ci@team.example.com"
)

func keyless(t *testing.T, root []byte, ids ...cosign.Identity) *cosign.Verifier {
	t.Helper()
	v, err := cosign.Keyless(root, true, ids)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// A certificate counts if it leads to the root, was valid when the log or an authority saw
// the signature, and is of one of the identities.
func TestCertificates(t *testing.T) {
	host := registries(t)["referrers"]
	ours, others := cosigntest.NewSigstore(t), cosigntest.NewSigstore(t)
	withLog := cosigntest.Parts{Log: true}
	exact := cosign.Identity{Issuer: issuer, Subject: subject}
	sign := func(how cosigntest.Signing) func(at name.Digest) {
		return func(at name.Digest) { ours.Sign(t, at, issuer, subject, how) }
	}
	const refused = "failed to verify"
	for name, tt := range map[string]struct {
		sign func(at name.Digest)
		has  cosigntest.Parts
		id   cosign.Identity
		want string // of the error; empty for a signature that counts
	}{
		"with an entry in the log":                {sign(cosigntest.Signing{}), withLog, exact, ""},
		"with a timestamp, where there is no log": {sign(cosigntest.Signing{NoLog: true, Stamp: true}), cosigntest.Parts{Timestamps: true}, exact, ""},
		"with both":                                 {sign(cosigntest.Signing{Stamp: true}), cosigntest.Parts{Log: true, Timestamps: true}, exact, ""},
		"patterns":                                  {sign(cosigntest.Signing{}), withLog, cosign.Identity{Issuer: "https://token[.]example[.]com", Subject: ".*@team[.]example[.]com"}, ""},
		"anchored patterns":                         {sign(cosigntest.Signing{}), withLog, cosign.Identity{Issuer: "^https://token.example.com$", Subject: "^ci@team.*$"}, ""},
		"another subject":                           {sign(cosigntest.Signing{}), withLog, cosign.Identity{Issuer: issuer, Subject: "cd@team.example.com"}, "identity"},
		"another issuer":                            {sign(cosigntest.Signing{}), withLog, cosign.Identity{Issuer: "https://login.example.com", Subject: subject}, "identity"},
		"a pattern of the beginning":                {sign(cosigntest.Signing{}), withLog, cosign.Identity{Issuer: issuer, Subject: "ci@team"}, "identity"},
		"a pattern of the end":                      {sign(cosigntest.Signing{}), withLog, cosign.Identity{Issuer: "token.example.com", Subject: subject}, "identity"},
		"a pattern of lines":                        {sign(cosigntest.Signing{}), withLog, cosign.Identity{Issuer: issuer, Subject: "(?m)^ci@team$"}, "identity"},
		"a certificate of another authority":        {func(at name.Digest) { others.Sign(t, at, issuer, subject, cosigntest.Signing{}) }, withLog, exact, refused},
		"a certificate that had expired by then":    {sign(cosigntest.Signing{After: 20 * time.Minute}), withLog, exact, "integrated time outside certificate validity"},
		"a certificate that was not valid by then":  {sign(cosigntest.Signing{After: -20 * time.Minute}), withLog, exact, "integrated time outside certificate validity"},
		"no entry in the log":                       {sign(cosigntest.Signing{NoLog: true}), withLog, exact, "log"},
		"a timestamp where a log is asked for":      {sign(cosigntest.Signing{NoLog: true, Stamp: true}), cosigntest.Parts{Log: true, Timestamps: true}, exact, "log"},
		"a log where a timestamp is asked for":      {sign(cosigntest.Signing{}), cosigntest.Parts{Timestamps: true}, exact, "timestamp"},
		"a certificate that was not published":      {sign(cosigntest.Signing{}), cosigntest.Parts{Log: true, CertificateLog: true}, exact, "signed certificate timestamp"},
		"no certificate":                            {sign(cosigntest.Signing{Edit: cosigntest.Without("dev.sigstore.cosign/certificate")}), withLog, exact, "it has no certificate"},
		"a signature with a key":                    {func(at name.Digest) { cosigntest.NewKey(t, cosigntest.ECDSA).Sign(t, at) }, withLog, exact, "it has no certificate"},
		"an entry of the log that is no JSON":       {sign(cosigntest.Signing{Edit: func(n map[string]string) { n["dev.sigstore.cosign/bundle"] = "{" }}), withLog, exact, "entry of the transparency log"},
		"an entry of another time than the log saw": {sign(cosigntest.Signing{After: 20 * time.Minute, Edit: earlier}), withLog, exact, "log"},
		"an entry of another signature": {func(at name.Digest) {
			var entry string
			ours.Sign(t, at, issuer, subject, cosigntest.Signing{Payload: append(cosigntest.Payload(at, at.DigestStr()), ' '), After: time.Minute,
				Edit: func(n map[string]string) {
					entry, n["dev.sigstore.cosign/bundle"] = n["dev.sigstore.cosign/bundle"], ""
				}})
			ours.Sign(t, at, issuer, subject, cosigntest.Signing{Edit: func(n map[string]string) { n["dev.sigstore.cosign/bundle"] = entry }})
		}, withLog, exact, "transparency log signature does not match"},
		"a bundle": {func(at name.Digest) {
			cosigntest.Refer(t, at, ours.Bundle(t, issuer, subject, cosigntest.Statement(at.DigestStr(), cosigntest.SignPredicate)), cosigntest.SignPredicate)
		}, withLog, exact, ""},
		"a bundle about another artifact": {func(at name.Digest) {
			cosigntest.Refer(t, at, ours.Bundle(t, issuer, subject, cosigntest.Statement("sha256:"+strings.Repeat("0", 64), cosigntest.SignPredicate)), cosigntest.SignPredicate)
		}, withLog, exact, refused},
		"a bundle of another type": {func(at name.Digest) {
			cosigntest.Refer(t, at, ours.Bundle(t, issuer, subject, cosigntest.Statement(at.DigestStr(), "https://slsa.dev/provenance/v1")), cosigntest.SignPredicate)
		}, withLog, exact, "it is an attestation"},
		"a bundle of another authority": {func(at name.Digest) {
			cosigntest.Refer(t, at, others.Bundle(t, issuer, subject, cosigntest.Statement(at.DigestStr(), cosigntest.SignPredicate)), cosigntest.SignPredicate)
		}, withLog, exact, refused},
		"a bundle with a key": {func(at name.Digest) {
			k := cosigntest.NewKey(t, cosigntest.ECDSA)
			cosigntest.Refer(t, at, k.Bundle(t, cosigntest.Statement(at.DigestStr(), cosigntest.SignPredicate)), cosigntest.SignPredicate)
		}, withLog, exact, refused},
	} {
		t.Run(name, func(t *testing.T) {
			at := push(t, host, name)
			tt.sign(at)
			by, err := verify(t, keyless(t, ours.Root(t, tt.has), tt.id), at)
			if tt.want != "" {
				if fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("Verify() = %+v, %v, want an error with %q", by, err, tt.want)
				}
				return
			}
			if want := (source.Signature{Kind: source.SignedKeyless, By: subject, Issuer: issuer, Root: source.RootOfOperator}); err != nil || by != want {
				t.Errorf("Verify() = %+v, %v, want %+v", by, err, want)
			}
		})
	}
}

// earlier makes an entry of the log say that the signature was there earlier.
func earlier(notes map[string]string) {
	const field = `"integratedTime":`
	before, after, _ := strings.Cut(notes["dev.sigstore.cosign/bundle"], field)
	_, after, _ = strings.Cut(after, ",")
	notes["dev.sigstore.cosign/bundle"] = before + field + fmt.Sprint(time.Now().Add(5*time.Minute).Unix()) + "," + after
}

// A root of the namespace is named by its digest, so that a policy can tell it from that of
// the operator.
func TestRootOfANamespace(t *testing.T) {
	host := registries(t)["tags"]
	ours := cosigntest.NewSigstore(t)
	at := push(t, host, "net")
	ours.Sign(t, at, issuer, subject, cosigntest.Signing{})
	v, err := cosign.Keyless(ours.Root(t, cosigntest.Parts{Log: true}), false, []cosign.Identity{{Issuer: issuer, Subject: subject}})
	if err != nil {
		t.Fatal(err)
	}
	if by, err := verify(t, v, at); err != nil || !strings.HasPrefix(by.Root, "sha256:") {
		t.Errorf("Verify() = %+v, %v, want the digest of the root", by, err)
	}
}

// What could let no signature count, or any, is an error.
func inPEM(t *testing.T, public any) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func TestRefusedSettings(t *testing.T) {
	ours, key := cosigntest.NewSigstore(t), cosigntest.NewKey(t, cosigntest.ECDSA)
	id := []cosign.Identity{{Issuer: issuer, Subject: subject}}
	withLog := ours.Root(t, cosigntest.Parts{Log: true})
	for name, tt := range map[string]struct {
		make func() (*cosign.Verifier, error)
		want string
	}{
		"no key":  {func() (*cosign.Verifier, error) { return cosign.WithKeys(nil) }, "there is no public key"},
		"no .pub": {func() (*cosign.Verifier, error) { return cosign.WithKeys(map[string][]byte{"cosign.key": key.Public}) }, "there is no public key"},
		"no PEM":  {func() (*cosign.Verifier, error) { return cosign.WithKeys(map[string][]byte{"a.pub": []byte("x")}) }, `the public key "a.pub" cannot be read`},
		"an empty key": {func() (*cosign.Verifier, error) {
			return cosign.WithKeys(map[string][]byte{"a.pub": key.Public, "b.pub": nil})
		}, `the public key "b.pub" cannot be read`},
		"two keys in one": {func() (*cosign.Verifier, error) {
			return cosign.WithKeys(map[string][]byte{"a.pub": append(key.Public, key.Public...)})
		}, "more than one key"},
		"a short key": {func() (*cosign.Verifier, error) {
			short, err := rsa.GenerateKey(rand.Reader, 1024)
			if err != nil {
				return nil, err
			}
			return cosign.WithKeys(map[string][]byte{"a.pub": inPEM(t, short.Public())})
		}, "an RSA key of 1024 bits"},
		"a key of a small curve": {func() (*cosign.Verifier, error) {
			small, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
			if err != nil {
				return nil, err
			}
			return cosign.WithKeys(map[string][]byte{"a.pub": inPEM(t, small.Public())})
		}, "a key of the curve P-224"},
		"no identity": {func() (*cosign.Verifier, error) { return cosign.Keyless(withLog, true, nil) }, "spec.verify.matchOIDCIdentity is empty"},
		"no subject": {func() (*cosign.Verifier, error) {
			return cosign.Keyless(withLog, true, []cosign.Identity{{Issuer: issuer}})
		}, "matchOIDCIdentity[0].subject is empty"},
		"no issuer": {func() (*cosign.Verifier, error) {
			return cosign.Keyless(withLog, true, []cosign.Identity{{Subject: subject}})
		}, "matchOIDCIdentity[0].issuer is empty"},
		"no pattern": {func() (*cosign.Verifier, error) {
			return cosign.Keyless(withLog, true, []cosign.Identity{{Issuer: issuer, Subject: "("}})
		}, "matchOIDCIdentity[0].subject: "},
		"half a pattern": {func() (*cosign.Verifier, error) {
			return cosign.Keyless(withLog, true, []cosign.Identity{{Issuer: issuer, Subject: "a)|(?:.*"}})
		}, "matchOIDCIdentity[0].subject: "},
		"no root":         {func() (*cosign.Verifier, error) { return cosign.Keyless([]byte("{}"), true, id) }, "the trusted root cannot be read"},
		"root of no time": {func() (*cosign.Verifier, error) { return cosign.Keyless(ours.Root(t, cosigntest.Parts{}), true, id) }, "neither a transparency log nor a timestamp authority"},
	} {
		t.Run(name, func(t *testing.T) {
			if v, err := tt.make(); v != nil || fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the error is %v, want one with %q", err, tt.want)
			}
		})
	}
}

// The rules change with the keys and the identities, and with nothing else.
func TestRules(t *testing.T) {
	a, b := cosigntest.NewKey(t, cosigntest.ECDSA), cosigntest.NewKey(t, cosigntest.ECDSA)
	root := cosigntest.NewSigstore(t).Root(t, cosigntest.Parts{Log: true})
	same := withKeys(t, a).Rules()
	if again := withKeys(t, a).Rules(); again != same || same == "" {
		t.Errorf("Rules() = %q and %q for one key", same, again)
	}
	seen := map[string]bool{same: true}
	for _, v := range []*cosign.Verifier{
		withKeys(t, b), withKeys(t, a, b), keyless(t, root, cosign.Identity{Issuer: issuer, Subject: subject}),
		keyless(t, root, cosign.Identity{Issuer: issuer, Subject: subject}, cosign.Identity{Issuer: issuer, Subject: "x"}),
	} {
		if seen[v.Rules()] {
			t.Errorf("Rules() = %q for other keys and identities", v.Rules())
		}
		seen[v.Rules()] = true
	}
}
