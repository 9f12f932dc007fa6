package kube

import (
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// TokenSkew is by how much the clock of the API server may differ from the one of this process,
// where a token says from when and until when it is valid.
const TokenSkew = 5 * time.Minute

// UnprovenClaims reads what a token says, without a question to anyone. Nothing of it is proven:
// only the API server verifies tokens. It is an error if the token is no signed JWT of an
// algorithm that API servers and issuers of users have.
func UnprovenClaims(token string, into ...any) error {
	signed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{
		jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
	})
	if err != nil {
		return err
	}
	return signed.UnsafeClaimsWithoutVerification(into...)
}
