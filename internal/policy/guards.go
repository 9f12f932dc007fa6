package policy

import (
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/plural"
)

// Guards are the limits of one policy. A guard that is not set limits nothing. Names of
// their fields in objects and annotations are those of the constants below.
type Guards struct {
	MaxDestroys        *int          `json:"maxDestroys,omitempty"` // replacements count too, unless MaxReplaces is set
	MaxReplaces        *int          `json:"maxReplaces,omitempty"`
	MaxDestroyedShare  *int          `json:"maxDestroyedShare,omitempty"` // percent of the resources in the state before
	MaxDestroysPerHour *int          `json:"maxDestroysPerHour,omitempty"`
	Protected          []Protected   `json:"protected,omitempty"`
	SignedSource       *SignedSource `json:"requireSignedSource,omitempty"`
	Effect             Effect        `json:"effect,omitempty"` // of their findings: Hold, unless it is Deny
}

// Names of guards, and so the rules of their findings.
const (
	MaxDestroys        = "maxDestroys"
	MaxReplaces        = "maxReplaces"
	MaxDestroyedShare  = "maxDestroyedShare"
	MaxDestroysPerHour = "maxDestroysPerHour"
	ProtectedGuard     = "protected"
	SignedSourceGuard  = "requireSignedSource"
	WindowsGuard       = "windows"
	FreezesGuard       = "freezes"
	MinSourceAge       = "minSourceAge"
	MaxPlanAge         = "maxPlanAge"
)

// OwnGuards is how findings call the guards that a stack has in its annotations, in the place
// of the name of a policy. It is part of verdicts.
const OwnGuards = "the annotations of the stack"

// Protected are resources that no plan destroys, replaces or forgets.
type Protected struct {
	Types      []string `json:"types,omitempty"`      // patterns; any type if empty
	Addresses  []string `json:"addresses,omitempty"`  // patterns; any address if empty
	Attributes []string `json:"attributes,omitempty"` // patterns of attributes that are protected from updates in place as well
}

// Judges reports whether the guards say anything of plans.
func (g Guards) Judges() bool {
	return g.MaxDestroys != nil || g.MaxReplaces != nil || g.MaxDestroyedShare != nil || g.MaxDestroysPerHour != nil || len(g.Protected) > 0 || g.SignedSource != nil
}

// Covers reports whether the protection is for a resource of this type and address.
func (p Protected) Covers(typ, address string) bool {
	return matches(p.Types, typ) && matches(p.Addresses, address)
}

// CoversAttribute reports whether the protection is for the attribute at a path, as
// rule[0].port: a pattern names it, what it is in, or what is in it.
func (p Protected) CoversAttribute(path string) bool {
	plain := withoutIndexes(path)
	return slices.ContainsFunc(p.Attributes, func(pattern string) bool {
		return Glob(pattern, plain) || Glob(pattern+".*", plain) || Glob(plain+".*", pattern)
	})
}

// withoutIndexes is the path of an attribute without the numbers and keys in it:
// rule[0].port is rule.port.
func withoutIndexes(path string) string {
	var b strings.Builder
	depth := 0
	for _, r := range path {
		switch {
		case r == '[':
			depth++
		case r == ']':
			depth = max(0, depth-1)
		case depth == 0:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func matches(patterns []string, s string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool { return Glob(p, s) })
}

// Glob reports whether a pattern matches the whole of s. A star stands for any text, and
// everything else for itself: addresses of resources have brackets and question marks.
func Glob(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == s
	}
	s, ok := strings.CutPrefix(s, parts[0])
	if !ok {
		return false
	}
	for _, part := range parts[1 : len(parts)-1] {
		_, rest, found := strings.Cut(s, part)
		if !found {
			return false
		}
		s = rest
	}
	return strings.HasSuffix(s, parts[len(parts)-1])
}

// Count is a number of things in words: 1 resource, 2 resources.
func Count(n int, noun string) string { return plural.Count(n, noun) }
