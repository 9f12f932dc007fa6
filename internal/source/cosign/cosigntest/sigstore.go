package cosigntest

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/digitorus/timestamp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/sigstore/rekor/pkg/util"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore/pkg/signature"
)

// Sigstore is a certificate authority, whose certificates are valid for ten minutes, a
// transparency log, and an authority for timestamps.
type Sigstore struct {
	authority, stamps, stamping       *x509.Certificate
	authorityKey, stampingKey, logKey *ecdsa.PrivateKey
}

// NewSigstore makes one.
func NewSigstore(tb testing.TB) Sigstore {
	tb.Helper()
	var s Sigstore
	s.authorityKey, s.stampingKey, s.logKey = p256(tb), p256(tb), p256(tb)
	s.authority = issued(tb, authority("authority", x509.ExtKeyUsageCodeSigning), nil, &s.authorityKey.PublicKey, s.authorityKey)
	stampsKey := p256(tb)
	s.stamps = issued(tb, authority("timestamps", x509.ExtKeyUsageTimeStamping), nil, &stampsKey.PublicKey, stampsKey)
	critical, err := asn1.Marshal([]asn1.ObjectIdentifier{{1, 3, 6, 1, 5, 5, 7, 3, 8}}) // timestamping
	if err != nil {
		tb.Fatal(err)
	}
	s.stamping = issued(tb, &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 37}, Critical: true, Value: critical}},
	}, s.stamps, &s.stampingKey.PublicKey, stampsKey)
	return s
}

func p256(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return k
}

func authority(of string, use x509.ExtKeyUsage) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: of, Organization: []string{"example.com"}},
		NotBefore: time.Now().Add(-5 * time.Hour), NotAfter: time.Now().Add(5 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{use}, BasicConstraintsValid: true, IsCA: true,
	}
}

// issued is a certificate of an authority, of its own if there is no parent.
func issued(tb testing.TB, template, parent *x509.Certificate, of crypto.PublicKey, by crypto.Signer) *x509.Certificate {
	tb.Helper()
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, of, by)
	if err != nil {
		tb.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return cert
}

// leaf is a key, and a certificate for it of an identity, as Fulcio has them.
func (s Sigstore) leaf(tb testing.TB, issuer, subject string) (Key, []byte) {
	tb.Helper()
	k := Key{Signer: p256(tb)}
	cert := issued(tb, &x509.Certificate{
		SerialNumber: big.NewInt(3), EmailAddresses: []string{subject}, NotBefore: time.Now(), NotAfter: time.Now().Add(10 * time.Minute),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 1}, Value: []byte(issuer)}},
	}, s.authority, k.Signer.Public(), s.authorityKey)
	return k, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
}

// Parts say what a trusted root has besides the certificate authority.
type Parts struct{ Log, CertificateLog, Timestamps bool }

// logName is where the log says that it is.
const logName = "rekor.example.com"

// Root is its trusted root, as a file trusted_root.json.
func (s Sigstore) Root(tb testing.TB, has Parts) []byte {
	tb.Helper()
	from, to := time.Now().Add(-5*time.Hour), time.Now().Add(5*time.Hour)
	logOf := func() map[string]*root.TransparencyLog {
		return map[string]*root.TransparencyLog{hex.EncodeToString(s.logID(tb)): {
			BaseURL: "https://" + logName, ID: s.logID(tb), ValidityPeriodStart: from, ValidityPeriodEnd: to,
			HashFunc: crypto.SHA256, PublicKey: s.logKey.Public(), SignatureHashFunc: crypto.SHA256,
		}}
	}
	var stamps []root.TimestampingAuthority
	var logs, certificates map[string]*root.TransparencyLog
	if has.Log {
		logs = logOf()
	}
	if has.CertificateLog {
		certificates = logOf()
	}
	if has.Timestamps {
		stamps = []root.TimestampingAuthority{&root.SigstoreTimestampingAuthority{Root: s.stamps, Leaf: s.stamping, ValidityPeriodStart: from, ValidityPeriodEnd: to}}
	}
	r, err := root.NewTrustedRoot(root.TrustedRootMediaType01, []root.CertificateAuthority{
		&root.FulcioCertificateAuthority{Root: s.authority, ValidityPeriodStart: from, ValidityPeriodEnd: to},
	}, certificates, stamps, logs)
	if err != nil {
		tb.Fatal(err)
	}
	b, err := r.MarshalJSON()
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func (s Sigstore) logID(tb testing.TB) []byte {
	tb.Helper()
	der, err := x509.MarshalPKIXPublicKey(s.logKey.Public())
	if err != nil {
		tb.Fatal(err)
	}
	sum := sha256.Sum256(der)
	return sum[:]
}

// entry is what the log has of a signature, and has signed. Its fields are in the order of
// their canonical form.
type entry struct {
	Body           []byte `json:"body"`
	IntegratedTime int64  `json:"integratedTime"`
	LogID          string `json:"logID"`
	LogIndex       int64  `json:"logIndex"`
}

// logged is an entry of the log, and its signature on it.
func (s Sigstore) logged(tb testing.TB, body any, at time.Time) (entry, []byte) {
	tb.Helper()
	e := entry{bytes.TrimSpace(encoded(tb, body)), at.Unix(), hex.EncodeToString(s.logID(tb)), 0}
	canonical, err := json.Marshal(e)
	if err != nil {
		tb.Fatal(err)
	}
	return e, Key{Signer: s.logKey}.over(tb, canonical)
}

// Signing is how an artifact is signed. The zero value is a signature that counts.
type Signing struct {
	Payload []byte        // if it is not the one of the artifact
	After   time.Duration // between the certificate and the entry in the log; 5 minutes if zero
	NoLog   bool          // there is no entry in the log
	Stamp   bool          // there is a timestamp of the authority
	Edit    func(notes map[string]string)
}

// Sign adds a signature by an identity to those beside the artifact.
func (s Sigstore) Sign(tb testing.TB, at name.Digest, issuer, subject string, how Signing) {
	tb.Helper()
	payload := how.Payload
	if payload == nil {
		payload = Payload(at, at.DigestStr())
	}
	if how.After == 0 {
		how.After = 5 * time.Minute
	}
	key, cert := s.leaf(tb, issuer, subject)
	sig, sum := key.over(tb, payload), sha256.Sum256(payload)
	notes := map[string]string{
		"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(sig),
		"dev.sigstore.cosign/certificate":    string(cert),
	}
	if !how.NoLog {
		e, set := s.logged(tb, map[string]any{"apiVersion": "0.0.1", "kind": "hashedrekord", "spec": map[string]any{
			"data":      map[string]any{"hash": map[string]any{"algorithm": "sha256", "value": hex.EncodeToString(sum[:])}},
			"signature": map[string]any{"content": sig, "publicKey": map[string]any{"content": cert}},
		}}, time.Now().Add(how.After))
		notes["dev.sigstore.cosign/bundle"] = string(encoded(tb, map[string]any{"SignedEntryTimestamp": set, "Payload": e}))
	}
	if how.Stamp {
		notes["dev.sigstore.cosign/rfc3161timestamp"] = string(encoded(tb, map[string]any{"SignedRFC3161Timestamp": s.stamp(tb, sig)}))
	}
	if how.Edit != nil {
		how.Edit(notes)
	}
	Attach(tb, at, payload, notes)
}

// stamp says that a signature was there by now.
func (s Sigstore) stamp(tb testing.TB, sig []byte) []byte {
	tb.Helper()
	sum := sha256.Sum256(sig)
	t := timestamp.Timestamp{HashAlgorithm: crypto.SHA256, HashedMessage: sum[:], Time: time.Now(), Policy: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 2}}
	b, err := t.CreateResponseWithOpts(s.stamping, s.stampingKey, crypto.SHA256)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// Bundle is a statement, signed by an identity, with its entry in the log.
func (s Sigstore) Bundle(tb testing.TB, issuer, subject string, statement []byte) []byte {
	tb.Helper()
	key, cert := s.leaf(tb, issuer, subject)
	block, _ := pem.Decode(cert)
	sig, sum := key.over(tb, preAuthenticated(statement)), sha256.Sum256(statement)
	envelope := map[string]any{"payload": statement, "payloadType": statementType, "signatures": []any{map[string]any{"sig": sig}}}
	whole := sha256.Sum256(encoded(tb, envelope))
	e, set := s.logged(tb, map[string]any{"apiVersion": "0.0.1", "kind": "dsse", "spec": map[string]any{
		"envelopeHash": map[string]any{"algorithm": "sha256", "value": hex.EncodeToString(whole[:])},
		"payloadHash":  map[string]any{"algorithm": "sha256", "value": hex.EncodeToString(sum[:])},
		"signatures":   []any{map[string]any{"signature": base64.StdEncoding.EncodeToString(sig), "verifier": cert}},
	}}, time.Now().Add(5*time.Minute))
	leaf := sha256.Sum256(append([]byte{0}, e.Body...)) // the only one of the log
	return encoded(tb, map[string]any{
		"mediaType": BundleType,
		"verificationMaterial": map[string]any{
			"certificate": map[string]any{"rawBytes": block.Bytes},
			"tlogEntries": []any{map[string]any{
				"logIndex": "0", "logId": map[string]any{"keyId": s.logID(tb)}, "kindVersion": map[string]any{"kind": "dsse", "version": "0.0.1"},
				"integratedTime": e.IntegratedTime, "inclusionPromise": map[string]any{"signedEntryTimestamp": set}, "canonicalizedBody": e.Body,
				"inclusionProof": map[string]any{
					"logIndex": "0", "treeSize": "1", "rootHash": leaf[:], "checkpoint": map[string]any{"envelope": s.checkpoint(tb, leaf[:])},
				},
			}},
		},
		"dsseEnvelope": envelope,
	})
}

// checkpoint is what the log says of itself: that it has one entry.
func (s Sigstore) checkpoint(tb testing.TB, hash []byte) string {
	tb.Helper()
	signer, err := signature.LoadECDSASignerVerifier(s.logKey, crypto.SHA256)
	if err != nil {
		tb.Fatal(err)
	}
	b, err := util.CreateAndSignCheckpoint(tb.Context(), logName, 1, 1, hash, signer)
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

// Without returns an edit that removes an annotation.
func Without(name string) func(map[string]string) {
	return func(notes map[string]string) { delete(notes, name) }
}
