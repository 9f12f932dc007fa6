package web

import (
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/terrier-iac/terrier/internal/secret"
)

// sealer encrypts and authenticates what a browser carries for us. Each purpose has
// a key of its own, so that a value for one purpose is invalid for another.
type sealer struct {
	aead    cipher.AEAD
	purpose []byte
}

func newSealer(key secret.Text, purpose string) (sealer, error) {
	own, err := hkdf.Key(sha256.New, []byte(key.Reveal()), nil, purpose, chacha20poly1305.KeySize)
	if err != nil {
		return sealer{}, fmt.Errorf("deriving the key of %q: %w", purpose, err)
	}
	aead, err := chacha20poly1305.NewX(own)
	return sealer{aead, []byte(purpose)}, err
}

// publicID identifies a key without revealing anything about it.
func publicID(key secret.Text) (string, error) {
	id, err := hkdf.Key(sha256.New, []byte(key.Reveal()), nil, "terrier name of cookies", 4)
	return hex.EncodeToString(id), err
}

var sealedText = base64.RawURLEncoding

// seal returns v as a text that can be the value of a cookie.
func (s sealer) seal(v any) (string, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	nonce := make([]byte, s.aead.NonceSize(), s.aead.NonceSize()+len(plain)+s.aead.Overhead())
	rand.Read(nonce) // never fails
	return sealedText.EncodeToString(s.aead.Seal(nonce, nonce, plain, s.purpose)), nil
}

var errSeal = errors.New("not sealed by this server for this purpose")

// open reads a sealed text into v.
func (s sealer) open(text string, v any) error {
	sealed, err := sealedText.DecodeString(text)
	if err != nil || len(sealed) < s.aead.NonceSize() {
		return errSeal
	}
	nonce, rest := sealed[:s.aead.NonceSize()], sealed[s.aead.NonceSize():]
	plain, err := s.aead.Open(nil, nonce, rest, s.purpose)
	if err != nil {
		return errSeal
	}
	return json.Unmarshal(plain, v)
}

// randomName is a name that cannot be guessed.
func randomName() string {
	b := make([]byte, 32)
	rand.Read(b) // never fails
	return sealedText.EncodeToString(b)
}
