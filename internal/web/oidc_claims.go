package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/terrier-iac/terrier/internal/fault"
)

// identity reads the user from a signed token of the issuer.
func (i *issuer) identity(id *oidc.IDToken) (issued, error) {
	var claims map[string]json.RawMessage
	if err := id.Claims(&claims); err != nil {
		return issued{}, errors.Join(errIDToken, err)
	}
	// A token for several clients is valid here only if it was issued to this one.
	if azp, err := text(claims, "azp"); err == nil && azp != "" && azp != i.ClientID || len(id.Audience) > 1 && azp == "" {
		return issued{}, errIDToken
	}
	name, err := i.username(claims)
	if err != nil {
		return issued{}, err
	}
	groups, err := i.groups(claims)
	if err != nil {
		return issued{}, err
	}
	return issued{Name: name, Groups: groups, Subject: id.Subject}, nil
}

func (i *issuer) username(claims map[string]json.RawMessage) (string, error) {
	name, err := text(claims, i.UsernameClaim)
	if err != nil {
		return "", err
	}
	if name == "" {
		return "", claimFault("the issuer sent no claim %q, which is the name of the user", i.UsernameClaim)
	}
	if i.UsernameClaim == "email" && !verified(claims["email_verified"]) {
		return "", claimFault("the issuer has not verified the e-mail address %.200q", name)
	}
	name = i.UsernamePrefix + name
	return name, usable("name", name)
}

// verified reports whether a claim is true; some issuers send a string.
func verified(claim json.RawMessage) bool {
	return string(claim) == "true" || string(claim) == `"true"`
}

// groups are a list of strings, or one string.
func (i *issuer) groups(claims map[string]json.RawMessage) ([]string, error) {
	raw, ok := claims[i.GroupsClaim]
	if i.GroupsClaim == "" || !ok || string(raw) == "null" {
		return nil, nil
	}
	var groups []string
	if json.Unmarshal(raw, &groups) != nil {
		one, err := text(claims, i.GroupsClaim)
		if err != nil {
			return nil, err
		}
		groups = []string{one}
	}
	for n, g := range groups {
		groups[n] = i.GroupsPrefix + g
		if err := usable("group", groups[n]); err != nil {
			return nil, err
		}
	}
	return groups, nil
}

func text(claims map[string]json.RawMessage, name string) (string, error) {
	raw, ok := claims[name]
	if !ok {
		return "", nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", claimFault("the claim %q is not a string", name)
	}
	return s, nil
}

// usable refuses names that Kubernetes reserves: an issuer must not make a user
// part of the system.
func usable(what, s string) error {
	odd := func(r rune) bool { return unicode.IsControl(r) || !unicode.IsGraphic(r) }
	switch {
	case s == "" || len(s) > 1024 || !utf8.ValidString(s) || strings.ContainsFunc(s, odd):
		return claimFault("%.200q cannot be the %s of a user", s, what)
	case strings.HasPrefix(s, "system:"):
		return claimFault("the issuer may not use the %s %.200q: Kubernetes reserves system:", what, s)
	}
	return nil
}

func claimFault(format string, args ...any) error {
	return fault.New(fault.Denied, "IssuerInvalid", fmt.Errorf(format, args...))
}
