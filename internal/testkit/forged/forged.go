// Package forged makes tokens that say anything, and that no API server has signed.
//
// Start reading at New.
package forged

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Tokens are signed by one key.
type Tokens struct{ by jose.Signer }

// New makes a key.
func New(t testing.TB) Tokens {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	by, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return Tokens{by}
}

// Token is a token with these claims.
func (f Tokens) Token(t testing.TB, claims map[string]any) string {
	t.Helper()
	token, err := jwt.Signed(f.by).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}
