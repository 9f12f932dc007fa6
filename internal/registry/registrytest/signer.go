package registrytest

import (
	"bytes"
	"io"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/terrier-iac/terrier/internal/registry/signature"
)

// Signer signs the releases of providers, with a key that is made for the test.
type Signer struct{ entity *openpgp.Entity }

// Option changes the key of a Signer.
type Option func(*packet.Config)

// Expiring makes a key that expires after d.
func Expiring(d time.Duration) Option {
	return func(c *packet.Config) { c.KeyLifetimeSecs = uint32(d / time.Second) }
}

// NewSigner makes a key.
func NewSigner(t T, options ...Option) *Signer {
	t.Helper()
	config := &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA} // fast to make
	for _, o := range options {
		o(config)
	}
	entity, err := openpgp.NewEntity("Publisher", "of a test", "publisher@example.com", config)
	if err != nil {
		t.Fatal(err)
	}
	return &Signer{entity}
}

// Key is the public key.
func (s *Signer) Key(t T) signature.Key {
	t.Helper()
	return signature.Key{ID: s.entity.PrimaryKey.KeyIdString(), Armor: armored(t, openpgp.PublicKeyType, s.entity.Serialize)}
}

// Revoke revokes the key. Key has the revocation from now on.
func (s *Signer) Revoke(t T) {
	t.Helper()
	if err := s.entity.RevokeKey(packet.KeyCompromised, "it was stolen", nil); err != nil {
		t.Fatal(err)
	}
}

// Private is the text of the private key, which no registry may be given.
func (s *Signer) Private(t T) string {
	t.Helper()
	return armored(t, openpgp.PrivateKeyType, func(w io.Writer) error { return s.entity.SerializePrivate(w, nil) })
}

// Sign makes the detached signature of a text.
func (s *Signer) Sign(t T, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := openpgp.DetachSign(&b, s.entity, bytes.NewReader(text), nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func armored(t T, kind string, write func(io.Writer) error) string {
	t.Helper()
	var b bytes.Buffer
	w, err := armor.Encode(&b, kind, nil)
	if err == nil {
		err = write(w)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
