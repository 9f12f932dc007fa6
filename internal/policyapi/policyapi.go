// Package policyapi maps the objects of policy.terrier.dev to the words of package policy:
// the guards of a policy, who approves what it holds, and which stacks it selects. Its
// errors name the field. It reads no cluster, and judges nothing.
//
// Start reading at Guards and SelectorOf.
package policyapi

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/terrier-iac/terrier/api/policy/v1alpha1"
	"github.com/terrier-iac/terrier/internal/policy"
)

// Guards are the limits of a policy that judge plans. Its times are no part of them.
func Guards(g *v1alpha1.Guards) (policy.Guards, error) {
	number := func(n *int32) *int {
		if n == nil {
			return nil
		}
		return new(int(*n))
	}
	out := policy.Guards{
		MaxDestroys: number(g.MaxDestroys), MaxReplaces: number(g.MaxReplaces), MaxDestroysPerHour: number(g.MaxDestroysPerHour), Effect: policy.Hold,
	}
	if g.Effect == v1alpha1.Deny {
		out.Effect = policy.Deny
	}
	for _, p := range g.Protected {
		out.Protected = append(out.Protected, policy.Protected{Types: p.Types, Addresses: p.Addresses, Attributes: p.Attributes})
	}
	if g.MaxDestroyedShare != "" {
		n, err := Percent(g.MaxDestroyedShare)
		if err != nil {
			return out, fmt.Errorf("spec.guards.maxDestroyedShare: %w", err)
		}
		out.MaxDestroyedShare = &n
	}
	if g.RequireSignedSource != nil {
		var err error
		if out.SignedSource, err = signedSource(*g.RequireSignedSource); err != nil {
			return out, fmt.Errorf("spec.guards.requireSignedSource.%w", err)
		}
	}
	return out, nil
}

func signedSource(s v1alpha1.SignedSource) (*policy.SignedSource, error) {
	out := &policy.SignedSource{}
	for i, text := range s.Keys {
		key, ok := policy.Fingerprint(text)
		if !ok {
			return nil, fmt.Errorf("keys[%d]: is %.100q, and may be the whole fingerprint of a key: sha256:… of one of cosign, SHA256:… of one of SSH, 40 hexadecimal digits of one of OpenPGP", i, text)
		}
		out.Keys = append(out.Keys, key)
	}
	for i, id := range s.Identities {
		if id.TrustedRoot != "" {
			if _, ok := policy.Fingerprint(id.TrustedRoot); !ok || !strings.HasPrefix(id.TrustedRoot, "sha256:") {
				return nil, fmt.Errorf("identities[%d].trustedRoot: is %.100q, and may be sha256: and 64 hexadecimal digits", i, id.TrustedRoot)
			}
		}
		out.Identities = append(out.Identities, policy.Signer{Issuer: id.Issuer, Subject: id.Subject, Root: id.TrustedRoot})
	}
	return out, nil
}

// Override is who may have a plan applied outside of the windows of a policy, and in its
// freezes; nil if no user may. Where the policy wants no approval of a requester, it wants no
// override of one either.
func Override(spec *v1alpha1.PolicySpec) *policy.Approval {
	if spec.Guards == nil {
		return nil
	}
	a := Approval(spec.Guards.WindowOverride)
	if a != nil && spec.Approval != nil && spec.Approval.NotRequester {
		a.NotRequester = true
	}
	return a
}

// Percent reads a share, as 20%.
func Percent(s string) (int, error) {
	digits, ok := strings.CutSuffix(s, "%")
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 0 || n > 100 {
		return 0, fmt.Errorf("is %.40q, and may be a share from 0%% to 100%%, as 20%%", s)
	}
	return n, nil
}

// Approval is who approves what a policy holds, nil if the policy does not say it.
func Approval(a *v1alpha1.Approval) *policy.Approval {
	if a == nil {
		return nil
	}
	out := &policy.Approval{Groups: a.Groups, Users: a.Users, NotRequester: a.NotRequester}
	if a.Count > 1 {
		out.Count = int(a.Count)
	}
	if a.Expires != nil {
		out.Expires = policy.Duration(a.Expires.Duration)
	}
	return out
}
