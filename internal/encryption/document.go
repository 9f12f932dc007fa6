// Package encryption is the form in which OpenTofu encrypts states, so that Terrier writes
// states that the plain engine reads with their key, and reads what that engine writes.
//
// A key belongs to one place of a state. Where keys come from is not decided here, and no key
// is written anywhere. Start reading at Encrypt and Decrypt.
package encryption

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/terrier-iac/terrier/internal/fault"
)

// Annotation is by which a stack asks for its state to be encrypted.
const Annotation = "terrier.dev/encryption"

// Platform is its value: with a key of the platform.
const Platform = "platform"

// KeyBytes is the length of a key, of AES-256.
const KeyBytes = 32

// Key encrypts the states of one place.
type Key struct {
	ID    string // of the platform's key that this one is derived from; no secret
	Bytes []byte
}

// Format prints the ID for every verb.
func (k Key) Format(s fmt.State, _ rune) { fmt.Fprintf(s, "key %s", k.ID) }

// ReasonKey is the reason of a state that no known key opens.
const ReasonKey = "StateKeyUnknown"

// version is that of the form. OpenTofu knows no other.
const version = "v0"

// provider is the address of the key provider in whose name metadata are written. With a
// provider of this address the plain engine reads what Terrier wrote, and the other way round.
const provider = "key_provider.external." + providerName

const providerName = "terrier"

// document is an encrypted state, as internal/encryption/state.go of OpenTofu has it. Serial
// and lineage are legible, and those in the encrypted state have to be the same.
type document struct {
	Serial    json.RawMessage   `json:"serial"`
	Lineage   string            `json:"lineage"`
	Meta      map[string][]byte `json:"meta"`
	Encrypted []byte            `json:"encrypted_data"`
	Version   string            `json:"encryption_version"`
}

// metadata is what a key provider of the type external leaves beside what it encrypted.
type metadata struct {
	External struct {
		Key string `json:"key"`
	} `json:"external_data"`
}

// Encrypt encrypts a state.
func Encrypt(state []byte, k Key) ([]byte, error) {
	var d document
	if err := json.Unmarshal(state, &d); err != nil {
		return nil, fmt.Errorf("encrypting the state: it is no state: %w", err)
	}
	var m metadata
	m.External.Key = k.ID
	meta, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	d.Version, d.Meta = version, map[string][]byte{provider: meta}
	if d.Encrypted, err = Seal(state, k); err != nil {
		return nil, err
	}
	return json.Marshal(d)
}

// Encrypted reports whether b is a state that was encrypted with a key of a platform, by
// Terrier or by an engine that was configured for it.
func Encrypted(b []byte) bool {
	_, ok := read(b)
	return ok
}

// read reads an encrypted state. It does not parse what is obviously a plain one.
func read(b []byte) (document, bool) {
	if !bytes.Contains(b, []byte(`"encrypted_data"`)) || !bytes.Contains(b, []byte(provider)) {
		return document{}, false
	}
	var d document
	if json.Unmarshal(b, &d) != nil || d.Version == "" {
		return document{}, false
	}
	_, ours := d.Meta[provider]
	return d, ours
}

// KeyOf is the ID of the key that encrypted b; empty if b is not encrypted, or does not say.
func KeyOf(b []byte) string {
	d, _ := read(b)
	var m metadata
	if json.Unmarshal(d.Meta[provider], &m) != nil {
		return ""
	}
	return m.External.Key
}

// Decrypt decrypts a state with one of the keys, and returns the ID of that one. The fault is
// Broken with ReasonKey if none of them opens it, or if it was changed.
func Decrypt(b []byte, keys ...Key) (state []byte, id string, err error) {
	d, ok := read(b)
	if !ok {
		return nil, "", unopened(errors.New("it is not encrypted with a key of a platform"))
	}
	if d.Version != version {
		return nil, "", unopened(fmt.Errorf("its form is %.20q, and only %s is known", d.Version, version))
	}
	for _, k := range keys {
		if state, err = Open(d.Encrypted, k); err == nil {
			return state, k.ID, d.agrees(state)
		}
	}
	return nil, "", unopened(errors.New("it was changed, or is encrypted with another key, or for another place"))
}

// agrees reports a state whose legible identity is not its own.
func (d document) agrees(state []byte) error {
	var s document
	if err := json.Unmarshal(state, &s); err != nil {
		return unopened(fmt.Errorf("what was encrypted is no state: %w", err))
	}
	if !bytes.Equal(s.Serial, d.Serial) || s.Lineage != d.Lineage {
		return unopened(errors.New("its serial or its lineage is not that of the state in it"))
	}
	return nil
}

func unopened(err error) error {
	return fault.New(fault.Broken, ReasonKey, fmt.Errorf("decrypting the state: %w", err))
}

// Seal encrypts bytes as the method aes_gcm of OpenTofu does: the nonce, and what was
// encrypted with its tag.
func Seal(plain []byte, k Key) ([]byte, error) {
	gcm, err := k.gcm()
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, gcm.NonceSize(), gcm.NonceSize()+len(plain)+gcm.Overhead())
	if _, err := rand.Read(nonce); err != nil {
		return nil, fmt.Errorf("encrypting the state: %w", err)
	}
	return gcm.Seal(nonce, nonce, plain, nil), nil
}

// Open decrypts what Seal returned.
func Open(sealed []byte, k Key) ([]byte, error) {
	gcm, err := k.gcm()
	if err != nil {
		return nil, err
	}
	if len(sealed) < gcm.NonceSize() {
		return nil, unopened(errors.New("it is cut off"))
	}
	plain, err := gcm.Open(nil, sealed[:gcm.NonceSize()], sealed[gcm.NonceSize():], nil)
	if err != nil {
		return nil, unopened(fmt.Errorf("with the %v: %w", k, err))
	}
	return plain, nil
}

func (k Key) gcm() (cipher.AEAD, error) {
	if len(k.Bytes) != KeyBytes {
		return nil, fault.New(fault.Broken, ReasonKey, fmt.Errorf("the %v has %d bytes, and not %d", k, len(k.Bytes), KeyBytes))
	}
	block, err := aes.NewCipher(k.Bytes)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// Payload is what was encrypted of a state that an engine encrypted without a key provider, as
// one does whose supervisor has the keys.
func Payload(b []byte) ([]byte, error) {
	var d document
	if err := json.Unmarshal(b, &d); err != nil {
		return nil, fmt.Errorf("reading the encrypted state: %w", err)
	}
	if d.Version != version || len(d.Encrypted) == 0 {
		return nil, unopened(errors.New("it is not encrypted"))
	}
	return d.Encrypted, nil
}
