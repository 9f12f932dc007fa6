package policy

import (
	"slices"
	"strings"
)

// Signature is what is known of the signature on the source of a plan.
type Signature struct {
	Verified bool   `json:"verified"`
	Kind     string `json:"kind,omitempty"`   // openpgp, ssh, cosign or cosign-keyless; notation if Flux has verified one
	By       string `json:"by,omitempty"`     // fingerprint of the key, or the subject of the certificate; empty if that is not known
	TagBy    string `json:"tagBy,omitempty"`  // fingerprint of the key of the tag, if By is that of the commit
	Issuer   string `json:"issuer,omitempty"` // of the identity By
	Root     string `json:"root,omitempty"`   // what the certificate leads to: operator, or the digest of another trusted root
	Reason   string `json:"reason,omitempty"` // why it is not verified, and the next step
}

// SignedSource asks that the source of a plan is signed. Without keys and identities, every
// signature counts that was verified as the source asks for.
type SignedSource struct {
	Keys       []string `json:"keys,omitempty"` // fingerprints
	Identities []Signer `json:"identities,omitempty"`
}

// Signer is an identity of a certificate.
type Signer struct {
	Issuer  string `json:"issuer"`
	Subject string `json:"subject"`        // a pattern
	Root    string `json:"root,omitempty"` // the digest of the trusted root; empty for that of the operator
}

// RootOfOperator is Signature.Root of a certificate that leads to the trusted root that the
// operator has configured.
const RootOfOperator = "operator"

// Allows reports whether a verified signature is by one of the keys and identities.
func (s SignedSource) Allows(by Signature) bool {
	if len(s.Keys) == 0 && len(s.Identities) == 0 {
		return by.Verified
	}
	if !by.Verified || by.By == "" {
		return false
	}
	if by.Issuer != "" || by.Root != "" {
		return slices.ContainsFunc(s.Identities, func(id Signer) bool {
			root := id.Root
			if root == "" {
				root = RootOfOperator
			}
			return id.Issuer == by.Issuer && Glob(id.Subject, by.By) && root == by.Root
		})
	}
	return s.hasKey(by.By) && (by.TagBy == "" || s.hasKey(by.TagBy))
}

// hasKey reports whether one of the keys has this fingerprint. Flux says no more of a key of
// OpenPGP than its ID, which is the end of the fingerprint.
func (s SignedSource) hasKey(of string) bool {
	return slices.ContainsFunc(s.Keys, func(key string) bool {
		return key == of || len(of) == keyIDLength && len(key) == 40 && strings.HasSuffix(key, of)
	})
}

const keyIDLength = 16

// Fingerprint returns the fingerprint of a key as signatures have it: sha256: and 64 digits
// of the digest of a key of cosign, SHA256: and the base64 form of a key of SSH, or the
// fingerprint of a key of OpenPGP, in which spaces and the case of letters do not matter. The
// ID of a key of OpenPGP is too short to be one.
func Fingerprint(text string) (string, bool) {
	if sum, ok := strings.CutPrefix(text, "sha256:"); ok {
		return text, len(sum) == 64 && isHex(sum) && strings.ToLower(sum) == sum
	}
	if sum, ok := strings.CutPrefix(text, "SHA256:"); ok {
		return text, len(sum) == 43
	}
	hex := strings.ToUpper(strings.ReplaceAll(text, " ", ""))
	return hex, (len(hex) == 40 || len(hex) == 64) && isHex(hex)
}

func isHex(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'f') && (r < 'A' || r > 'F')
	})
}

// Signer names in words who signed: by the key sha256:….
func (s Signature) Signer() string {
	switch {
	case s.By == "":
		return "by a key that is not known"
	case s.Issuer != "" || s.Root != "":
		return "by " + s.By + ", whose identity " + s.Issuer + " has confirmed"
	case s.TagBy != "" && s.TagBy != s.By:
		return "by the key " + s.By + ", and its tag by the key " + s.TagBy
	default:
		return "by the key " + s.By
	}
}
