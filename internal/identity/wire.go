package identity

import "time"

// HeaderGrant is the header in which a supervisor shows its grant when it asks for tokens,
// and PathTokens where it asks.
const (
	HeaderGrant = "Terrier-Identity-Grant"
	PathTokens  = "/v1/identity/tokens"
)

// Answer is what a supervisor gets.
type Answer struct {
	Tokens []Issued `json:"tokens"`
}

// Issued is one token. Its text is in clear: it goes to the supervisor of its run and into a
// file of that run.
type Issued struct {
	Name     string    `json:"name"` // see Use
	Audience string    `json:"audience"`
	ID       string    `json:"id"`     // the claim jti
	Issued   time.Time `json:"issued"` // when the controller sent it; the times are of its clock
	Expires  time.Time `json:"expires"`
	Token    string    `json:"token"`
}

// The paths below the address of an issuer. Verifiers begin with the first one, which names
// the second one.
const (
	PathDiscovery = "/.well-known/openid-configuration"
	PathKeys      = "/.well-known/jwks.json"
)

// Documents are those paths.
func Documents() []string { return []string{PathDiscovery, PathKeys} }
