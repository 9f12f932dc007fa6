package mirror

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/fault"
)

// ReasonDenied is the reason of the fault of a provider that the rules deny.
const ReasonDenied = "ProviderDenied"

// rules decide what tenants may install.
type rules []Rule

// verdict is what the rules say to one tenant about the versions of one provider. The
// constraints in them are read once, however many versions there are.
type verdict struct {
	tenant      string
	provider    address.Provider
	limited     bool // there is an allow list
	allow, deny []terms
}

// of are the rules for a tenant and a provider.
func (all rules) of(tenant string, p address.Provider) verdict {
	said := verdict{tenant: tenant, provider: p}
	add := func(to []terms, patterns []Pattern) []terms {
		for _, x := range patterns {
			if constraint, err := x.terms(); err == nil && x.provider(p) {
				to = append(to, constraint)
			}
		}
		return to
	}
	for _, r := range all {
		if r.concerns(tenant) {
			said.limited = said.limited || len(r.Allow) > 0
			said.allow, said.deny = add(said.allow, r.Allow), add(said.deny, r.Deny)
		}
	}
	return said
}

// group is the same for all tenants to whom the rules say the same about every provider: those
// whom the same rules concern.
func (all rules) group(tenant string) string {
	concern := make([]byte, len(all))
	for i, r := range all {
		concern[i] = '0'
		if r.concerns(tenant) {
			concern[i] = '1'
		}
	}
	return string(concern)
}

// version is nil if the tenant may install a version, and says why if not.
func (said verdict) version(v address.Version) error {
	if !said.limited && len(said.deny) == 0 {
		return nil
	}
	parsed, err := semver.StrictNewVersion(string(v))
	if err != nil {
		return err // no version of an index is so
	}
	for _, d := range said.deny {
		if d.have(parsed) {
			return denied("%s %s is denied to the tenant %s: %s", said.provider, v, said.tenant, d.reason())
		}
	}
	if said.limited && !slices.ContainsFunc(said.allow, func(a terms) bool { return a.have(parsed) }) {
		return denied("%s %s is on no allow list of the tenant %s: ask the operator of the mirror to add it", said.provider, v, said.tenant)
	}
	return nil
}

// provider is nil if there can be a version that a tenant may install.
func (all rules) provider(tenant string, p address.Provider) error {
	limited, allowed := false, false
	for _, r := range all {
		if !r.concerns(tenant) {
			continue
		}
		for _, d := range r.Deny {
			if d.provider(p) && d.Versions == "" {
				return denied("%s is denied to the tenant %s: %s", p, tenant, d.reason())
			}
		}
		limited = limited || len(r.Allow) > 0
		allowed = allowed || slices.ContainsFunc(r.Allow, func(a Pattern) bool { return a.provider(p) })
	}
	if limited && !allowed {
		return denied("%s is on no allow list of the tenant %s: ask the operator of the mirror to add it", p, tenant)
	}
	return nil
}

func (r Rule) concerns(tenant string) bool {
	return len(r.Tenants) == 0 || slices.ContainsFunc(r.Tenants, func(pattern string) bool { return matches(pattern, tenant) })
}

// matches reports whether a text has the form of a pattern, in which * stands for any
// characters.
func matches(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	last := len(parts) - 1
	rest, ok := strings.CutPrefix(text, parts[0])
	if last == 0 {
		return ok && rest == ""
	}
	for _, part := range parts[1:last] {
		at := strings.Index(rest, part)
		if at < 0 {
			return false
		}
		rest = rest[at+len(part):]
	}
	return ok && strings.HasSuffix(rest, parts[last])
}

func (p Pattern) provider(of address.Provider) bool {
	parts := strings.Split(p.Provider, "/")
	return len(parts) == 3 && matches(parts[0], of.Host) && matches(parts[1], of.Namespace) && matches(parts[2], of.Type)
}

// terms are a pattern whose constraint was read.
type terms struct {
	Pattern
	all []term
}

func (p Pattern) terms() (terms, error) {
	all, err := parseConstraint(p.Versions)
	return terms{p, all}, err
}

// have reports whether all terms have a version.
func (t terms) have(v *semver.Version) bool {
	return !slices.ContainsFunc(t.all, func(one term) bool { return !one.has(v) })
}

func (p Pattern) version(v address.Version) bool {
	constraint, err := p.terms()
	parsed, errVersion := semver.StrictNewVersion(string(v))
	return err == nil && errVersion == nil && constraint.have(parsed)
}

// term is a part of a constraint, as configurations have it: ">= 5.0.0". Unlike in a
// configuration, pre-releases are in the order of all versions.
type term struct {
	operator string
	version  *semver.Version
	numbers  int // that were written of the version
}

var termForm = regexp.MustCompile(`^(~>|>=|<=|!=|=|>|<|)\s*(\d+(?:\.\d+){0,2}(?:-[0-9A-Za-z.-]+)?)$`)

// parseConstraint reads terms between commas. An empty text has none.
func parseConstraint(text string) ([]term, error) {
	if text == "" {
		return nil, nil
	}
	var all []term
	for part := range strings.SplitSeq(text, ",") {
		form := termForm.FindStringSubmatch(strings.TrimSpace(part))
		if form == nil {
			return nil, fmt.Errorf("%.80q is no constraint: write it as \">= 5.0.0, < 6.0.0\" or \"~> 5.0\"", text)
		}
		v, err := semver.NewVersion(form[2])
		if err != nil {
			return nil, fmt.Errorf("%.80q is no constraint: %.80q is no version", text, form[2])
		}
		core, _, _ := strings.Cut(form[2], "-")
		t := term{operator: cmp.Or(form[1], "="), version: v, numbers: 1 + strings.Count(core, ".")}
		if t.operator == "~>" && t.numbers < 2 {
			return nil, fmt.Errorf("%.80q is no constraint: ~> needs two or three numbers, as \"~> 5.0\"", text)
		}
		all = append(all, t)
	}
	return all, nil
}

func (t term) has(v *semver.Version) bool {
	order := v.Compare(t.version)
	switch t.operator {
	case "=":
		return order == 0
	case "!=":
		return order != 0
	case ">":
		return order > 0
	case ">=":
		return order >= 0
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	default: // ~>: only the last number that was written may be larger
		return order >= 0 && v.Major() == t.version.Major() && (t.numbers == 2 || v.Minor() == t.version.Minor())
	}
}

func (p Pattern) reason() string {
	return cmp.Or(p.Reason, "a rule of the mirror denies "+p.Provider)
}

func denied(format string, args ...any) error {
	return fault.New(fault.Denied, ReasonDenied, fmt.Errorf(format, args...))
}
