// Package signature verifies the release of a provider: the signature on its list of
// checksums, SHA256SUMS, and the list itself.
//
// It accepts the signatures that engines accept, and no others: detached, binary,
// OpenPGP. It fetches and stores nothing, and trusts no key by itself: callers bring
// the keys. Start reading at Verify.
package signature

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// maxArmor bounds the text of one key. Keys with many signatures have some 100 KiB.
const maxArmor = 1 << 20

// Key is a public key as registries name it.
type Key struct {
	ID    string `json:"key_id"`
	Armor string `json:"ascii_armor"`
}

// ParseKey reads the ASCII armour of one public key.
func ParseKey(armor string) (Key, error) {
	ring, err := read(armor)
	if err != nil {
		return Key{}, err
	}
	if len(ring) != 1 {
		return Key{}, fmt.Errorf("the text holds %d keys, and one is expected: export them one by one, with gpg --armor --export KEY", len(ring))
	}
	if ring[0].PrivateKey != nil {
		return Key{}, errors.New("the text holds a private key: export the public one, with gpg --armor --export KEY")
	}
	return Key{ID: ring[0].PrimaryKey.KeyIdString(), Armor: armor}, nil
}

func read(armor string) (openpgp.EntityList, error) {
	if len(armor) > maxArmor {
		return nil, fmt.Errorf("the key has %d bytes, and %d are allowed", len(armor), maxArmor)
	}
	ring, err := openpgp.ReadArmoredKeyRing(strings.NewReader(armor))
	if err != nil {
		return nil, fmt.Errorf("reading the ASCII armour of an OpenPGP key: %w", err)
	}
	return ring, nil
}

// Signer is the key that made a signature.
type Signer struct {
	KeyID   string
	Expired bool // the key or the signature is past its time; engines accept it with a warning
}

// ErrUnknown means that none of the keys made the signature.
var ErrUnknown = errors.New("none of the keys made the signature")

// Verify finds the key that signed a list of checksums. Like engines, it prefers a key
// that has not expired, and refuses a key that was revoked.
func Verify(sums, signature []byte, keys []Key, now time.Time) (Signer, error) {
	config := &packet.Config{Time: func() time.Time { return now }}
	var expired Signer
	for _, key := range keys {
		ring, err := read(key.Armor)
		if err != nil {
			return Signer{}, err
		}
		entity, err := openpgp.CheckDetachedSignature(ring, bytes.NewReader(sums), bytes.NewReader(signature), config)
		switch {
		case err == nil:
			return Signer{KeyID: entity.PrimaryKey.KeyIdString()}, nil
		case errors.Is(err, pgperrors.ErrUnknownIssuer):
		case errors.Is(err, pgperrors.ErrKeyExpired), errors.Is(err, pgperrors.ErrSignatureExpired):
			if entity != nil && expired.KeyID == "" {
				expired = Signer{KeyID: entity.PrimaryKey.KeyIdString(), Expired: true}
			}
		default:
			return Signer{}, fmt.Errorf("checking the signature on SHA256SUMS: %w", err)
		}
	}
	if expired.KeyID == "" {
		return Signer{}, ErrUnknown
	}
	return expired, nil
}
