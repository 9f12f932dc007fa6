package policy

import (
	"strings"
	"testing"
)

func TestAllows(t *testing.T) {
	pgp := strings.Repeat("AB12", 10)
	cosign := "sha256:" + strings.Repeat("ab12", 16)
	keys := SignedSource{Keys: []string{pgp, cosign}}
	ids := SignedSource{Identities: []Signer{{Issuer: "https://i", Subject: "https://git/acme/*"}, {Issuer: "https://i", Subject: "ci", Root: "sha256:r"}}}
	for name, tt := range map[string]struct {
		of   SignedSource
		by   Signature
		want bool
	}{
		"any signature":                        {SignedSource{}, Signature{Verified: true}, true},
		"no signature":                         {SignedSource{}, Signature{By: pgp}, false},
		"one of the keys":                      {keys, Signature{Verified: true, By: cosign}, true},
		"one of the keys, not verified":        {keys, Signature{By: cosign}, false},
		"another key":                          {keys, Signature{Verified: true, By: "sha256:" + strings.Repeat("ff", 32)}, false},
		"a key that is not known":              {keys, Signature{Verified: true}, false},
		"the ID of a key, as Flux has it":      {keys, Signature{Verified: true, By: pgp[24:]}, true},
		"the end of an ID":                     {keys, Signature{Verified: true, By: pgp[32:]}, false},
		"the ID of another key":                {keys, Signature{Verified: true, By: "0" + pgp[25:]}, false},
		"the end of a fingerprint of cosign":   {keys, Signature{Verified: true, By: cosign[len(cosign)-16:]}, false},
		"both keys of a tag and its commit":    {keys, Signature{Verified: true, By: pgp, TagBy: cosign}, true},
		"a tag by another key":                 {keys, Signature{Verified: true, By: pgp, TagBy: "SHA256:x"}, false},
		"an identity":                          {ids, Signature{Verified: true, By: "https://git/acme/net", Issuer: "https://i", Root: RootOfOperator}, true},
		"another subject":                      {ids, Signature{Verified: true, By: "https://git/acme-evil/net", Issuer: "https://i", Root: RootOfOperator}, false},
		"another issuer":                       {ids, Signature{Verified: true, By: "https://git/acme/net", Issuer: "https://i.evil", Root: RootOfOperator}, false},
		"an identity by a root of a namespace": {ids, Signature{Verified: true, By: "https://git/acme/net", Issuer: "https://i", Root: "sha256:r"}, false},
		"a root that the policy names":         {ids, Signature{Verified: true, By: "ci", Issuer: "https://i", Root: "sha256:r"}, true},
		"a key where identities are asked for": {ids, Signature{Verified: true, By: "ci"}, false},
		"an identity that is named as a key":   {SignedSource{Keys: []string{"ci"}}, Signature{Verified: true, By: "ci", Issuer: "https://i", Root: RootOfOperator}, false},
	} {
		if got := tt.of.Allows(tt.by); got != tt.want {
			t.Errorf("%s: Allows() = %t, want %t", name, got, tt.want)
		}
	}
}

func TestFingerprint(t *testing.T) {
	sum := strings.Repeat("ab12", 16)
	for text, want := range map[string]string{
		"sha256:" + sum: "sha256:" + sum,
		"SHA256:mVPwvezndPv/ARoIadVY98vAC0g+P/5633yTC4d/wXE": "SHA256:mVPwvezndPv/ARoIadVY98vAC0g+P/5633yTC4d/wXE",
		"ab12 AB12 ab12 AB12 ab12  AB12 ab12 AB12 ab12 AB12": strings.Repeat("AB12", 10),
		"0B3F0D5C9E2177A4":                "", // an ID
		"sha256:" + strings.ToUpper(sum):  "",
		"sha256:" + sum[:62]:              "",
		"SHA256:short":                    "",
		strings.Repeat("AB1G", 10):        "",
		"":                                "",
		"https://example.com/cosign.pub":  "",
		strings.Repeat("AB12", 10) + "\n": "",
	} {
		got, ok := Fingerprint(text)
		if ok != (want != "") || ok && got != want {
			t.Errorf("Fingerprint(%q) = %q, %t, want %q", text, got, ok, want)
		}
	}
}
