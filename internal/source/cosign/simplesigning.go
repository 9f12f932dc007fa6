package cosign

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"
)

// Signatures in the form of simple signing are layers of an image that has the tag
// sha256-….sig, beside the artifact. Each layer is a payload that names the digest of the
// artifact; its annotations have the signature, and what comes with it.
const (
	payloadType    = "application/vnd.dev.cosign.simplesigning.v1+json"
	payloadClaim   = "cosign container image signature"
	signatureNote  = "dev.cosignproject.cosign/signature"
	certNote       = "dev.sigstore.cosign/certificate"
	logNote        = "dev.sigstore.cosign/bundle"
	timestampNote  = "dev.sigstore.cosign/rfc3161timestamp"
	payloadBytes   = 1 << 20
	bundleBytes    = 4 << 20
	candidatesMost = 50       // of one artifact in one place
	bytesMost      = 32 << 20 // of all of them together, without small ones
	smallBytes     = 64 << 10 // signatures are smaller, mostly, so that large ones hide none of them
)

// simpleSignings finds the signatures of an artifact in the form of simple signing.
func simpleSignings(at name.Digest, options []remote.Option, t *tally) iter.Seq2[candidate, error] {
	return func(yield func(candidate, error) bool) {
		tag := at.Context().Tag(strings.Replace(at.DigestStr(), ":", "-", 1) + ".sig")
		image, err := remote.Image(tag, options...)
		if absent(err) {
			return
		}
		if err != nil {
			yield(candidate{}, fmt.Errorf("fetching signatures: %w", err))
			return
		}
		manifest, err := image.Manifest()
		if err != nil {
			yield(candidate{}, fmt.Errorf("reading signatures: %w", err))
			return
		}
		var payload []byte
		var last v1.Hash // what several keys have signed is one payload, mostly
		left := budget{candidatesMost, bytesMost}
		for _, l := range manifest.Layers {
			if l.MediaType != payloadType {
				continue
			}
			if !left.one() {
				t.left++
				continue
			}
			if payload == nil || l.Digest != last {
				payload, err = layerOf(image, l, payloadBytes, &left)
				if errors.Is(err, errBudget) {
					t.left++
					continue
				}
				if _, is := errors.AsType[unusable](err); is {
					payload = []byte{} // which claims nothing
				} else if err != nil {
					yield(candidate{}, fmt.Errorf("fetching what is signed: %w", err))
					return
				}
				last = l.Digest
			}
			signed := payload
			if !yield(candidate{signed, func(keyed bool) (*bundle.Bundle, error) { return simpleBundle(signed, l.Annotations, keyed) }}, nil) {
				return
			}
		}
	}
}

// budget is what may still be fetched of the candidates in one place: any user who may push
// puts some there.
type budget struct {
	candidates int
	bytes      int64
}

// one takes one candidate, if there may be one more.
func (b *budget) one() bool {
	b.candidates--
	return b.candidates >= 0
}

// errBudget is the error of a candidate that is too large beside those before it. A smaller one
// may follow.
var errBudget = errors.New("the signatures are too large together")

// absent reports whether a registry says that it does not have something.
func absent(err error) bool {
	answer, ok := errors.AsType[*transport.Error](err)
	return ok && answer.StatusCode == http.StatusNotFound
}

// layerOf reads a small layer. Its digest is compared.
func layerOf(image v1.Image, of v1.Descriptor, most int64, left *budget) (content []byte, err error) {
	if of.Size < 0 || of.Size > most {
		return nil, unusable{fmt.Errorf("it has %d bytes, and at most %d are read", of.Size, most)}
	}
	if of.Size > smallBytes {
		if of.Size > left.bytes {
			return nil, errBudget
		}
		left.bytes -= of.Size
	}
	layer, err := image.LayerByDigest(of.Digest)
	if err != nil {
		return nil, err
	}
	r, err := layer.Compressed()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return io.ReadAll(io.LimitReader(r, most+1)) // the digest is compared at the end, which is not cut off
}

// claims checks what is signed: that it is the signature of an artifact, and of this one. Where
// the artifact was when it was signed does not matter: it may have been copied.
func claims(payload []byte, of string) error {
	var p struct {
		Critical struct {
			Image struct {
				Digest string `json:"docker-manifest-digest"`
			} `json:"image"`
			Type string `json:"type"`
		} `json:"critical"`
	}
	if err := json.Unmarshal(payload, &p); err != nil {
		return fmt.Errorf("reading what is signed: %w", err)
	}
	if p.Critical.Type != payloadClaim {
		return fmt.Errorf("what is signed is of the type %.100q, and not %q", p.Critical.Type, payloadClaim)
	}
	if p.Critical.Image.Digest != of {
		return fmt.Errorf("it is the signature of another artifact, %.100q", p.Critical.Image.Digest)
	}
	return nil
}

// simpleBundle makes a bundle of a payload and the annotations of its layer. With a key, what
// is said of a certificate and of a log is left out: it has no say.
func simpleBundle(payload []byte, notes map[string]string, keyed bool) (*bundle.Bundle, error) {
	sig, err := base64.StdEncoding.DecodeString(notes[signatureNote])
	if err != nil || len(sig) == 0 {
		return nil, fmt.Errorf("the annotation %s is no signature", signatureNote)
	}
	sum := sha256.Sum256(payload)
	b := &protobundle.Bundle{
		VerificationMaterial: &protobundle.VerificationMaterial{},
		Content: &protobundle.Bundle_MessageSignature{MessageSignature: &protocommon.MessageSignature{
			MessageDigest: &protocommon.HashOutput{Algorithm: protocommon.HashAlgorithm_SHA2_256, Digest: sum[:]}, Signature: sig,
		}},
	}
	if b.MediaType, err = bundle.MediaTypeString("0.1"); err != nil {
		return nil, err
	}
	m := b.VerificationMaterial
	if keyed {
		m.Content = &protobundle.VerificationMaterial_PublicKey{PublicKey: &protocommon.PublicKeyIdentifier{}}
		return bundle.NewBundle(b)
	}
	block, _ := pem.Decode([]byte(notes[certNote]))
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("it has no certificate: it was made with a key")
	}
	m.Content = &protobundle.VerificationMaterial_X509CertificateChain{X509CertificateChain: &protocommon.X509CertificateChain{
		Certificates: []*protocommon.X509Certificate{{RawBytes: block.Bytes}},
	}}
	if note := notes[logNote]; note != "" {
		entry, err := logEntry(note)
		if err != nil {
			return nil, fmt.Errorf("reading the entry of the transparency log: %w", err)
		}
		m.TlogEntries = []*protorekor.TransparencyLogEntry{entry}
	}
	if note := notes[timestampNote]; note != "" {
		var stamp struct{ SignedRFC3161Timestamp []byte }
		if err := json.Unmarshal([]byte(note), &stamp); err != nil {
			return nil, fmt.Errorf("reading the timestamp: %w", err)
		}
		m.TimestampVerificationData = &protobundle.TimestampVerificationData{
			Rfc3161Timestamps: []*protocommon.RFC3161SignedTimestamp{{SignedTimestamp: stamp.SignedRFC3161Timestamp}},
		}
	}
	return bundle.NewBundle(b)
}

// logEntry reads an entry of a log, as the log has signed it.
func logEntry(note string) (*protorekor.TransparencyLogEntry, error) {
	var entry struct {
		SignedEntryTimestamp []byte
		Payload              struct {
			Body           []byte `json:"body"`
			IntegratedTime int64  `json:"integratedTime"`
			LogIndex       int64  `json:"logIndex"`
			LogID          string `json:"logID"`
		}
	}
	if err := json.Unmarshal([]byte(note), &entry); err != nil {
		return nil, err
	}
	id, err := hex.DecodeString(entry.Payload.LogID)
	if err != nil {
		return nil, fmt.Errorf("logID: %w", err)
	}
	var body struct{ APIVersion, Kind string }
	if err := json.Unmarshal(entry.Payload.Body, &body); err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	return &protorekor.TransparencyLogEntry{
		LogIndex: entry.Payload.LogIndex, LogId: &protocommon.LogId{KeyId: id},
		KindVersion:    &protorekor.KindVersion{Kind: body.Kind, Version: body.APIVersion},
		IntegratedTime: entry.Payload.IntegratedTime, CanonicalizedBody: entry.Payload.Body,
		InclusionPromise: &protorekor.InclusionPromise{SignedEntryTimestamp: entry.SignedEntryTimestamp},
	}, nil
}
