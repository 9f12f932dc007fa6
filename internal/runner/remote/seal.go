package remote

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/terrier-iac/terrier/internal/runner"
)

// sealed is what a place keeps about its run, so that a controller without the
// directory of the run knows it.
type sealed struct {
	First    runner.Report `json:"first"`              // the first report: it names the run, and has its note
	Archive  string        `json:"archive,omitempty"`  // digest
	LogBytes int64         `json:"logBytes,omitempty"` // as in the job
	Prepared string        `json:"prepared,omitempty"` // the PreparedKey of the job, if the run may leave what it prepared
}

// signer makes and checks what only a controller with the key can make.
type signer struct{ key []byte }

const keySize = 32

func newSigner(key []byte) (signer, error) {
	if len(key) != keySize {
		return signer{}, fmt.Errorf("the key that signs places has %d bytes, want %d", len(key), keySize)
	}
	return signer{key}, nil
}

// mac authenticates parts, for one purpose.
func (s signer) mac(purpose string, parts ...string) []byte {
	h := hmac.New(sha256.New, s.key)
	// Each part with its length: no two lists of parts are the same text.
	for _, p := range append([]string{purpose}, parts...) {
		fmt.Fprintf(h, "%d:%s,", len(p), p)
	}
	return h.Sum(nil)
}

// seal writes s so that open believes it for a place of this name.
func (s signer) seal(name string, what sealed) (string, error) {
	data, err := json.Marshal(what)
	if err != nil {
		return "", fmt.Errorf("sealing run %s: %w", what.First.ID, err)
	}
	b := base64.RawURLEncoding
	return b.EncodeToString(data) + "." + b.EncodeToString(s.mac("seal", name, string(data))), nil
}

var errSeal = errors.New("the seal of the place is not one of this installation")

// open reads the seal of a place.
func (s signer) open(p Place) (sealed, error) {
	var what sealed
	text, mac, _ := strings.Cut(p.Seal, ".")
	b := base64.RawURLEncoding
	data, err := b.DecodeString(text)
	if err != nil {
		return what, errSeal
	}
	got, err := b.DecodeString(mac)
	if err != nil || !hmac.Equal(got, s.mac("seal", p.Name, string(data))) {
		return what, errSeal
	}
	if err := json.Unmarshal(data, &what); err != nil {
		return what, fmt.Errorf("reading the seal of place %s: %w", p.Name, err)
	}
	// What is sealed names the namespace: a copy in another one is no place of the run.
	if in, _, _ := strings.Cut(what.First.Name, "/"); in != p.Namespace {
		return what, errSeal
	}
	return what, nil
}

// proof is what the agent of a place gets with its order and nothing else has.
func (s signer) proof(p Place, key, id string) string {
	return base64.RawURLEncoding.EncodeToString(s.mac("proof", p.Namespace, p.Name, p.UID, key, id))
}

func (s signer) proves(proof string, p Place, key, id string) bool {
	return hmac.Equal([]byte(proof), []byte(s.proof(p, key, id)))
}

// maxName bounds the name of a place, as a DNS label is bounded.
const maxName = 63

// placeName is the name of the place of a run. People recognise the stack and the kind
// in it; the digest at its end makes it the run's alone.
func placeName(job *runner.Job) string {
	sum := sha256.Sum256([]byte(job.Key() + "/" + job.ID))
	end := "-" + label(string(job.Kind)) + "-" + hex.EncodeToString(sum[:8])
	_, name, _ := strings.Cut(job.Name, "/")
	name = label(name)
	return strings.Trim(name[:min(len(name), maxName-len(end)-1)], "-") + "-" + strings.Trim(end, "-")
}

// label leaves of a text what may stand in a DNS label that begins with a letter.
func label(text string) string {
	safe := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			return c
		}
		return '-'
	}, strings.ToLower(text))
	if safe == "" || safe[0] < 'a' || safe[0] > 'z' {
		return "r" + safe
	}
	return safe
}
