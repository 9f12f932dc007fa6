package rego

import (
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/terrier-iac/terrier/internal/policy"
)

// namespaces are the packages of conftest whose rules count.
func namespaces(given []string) []string {
	if len(given) == 0 {
		return []string{"main"}
	}
	return given
}

// conftestRules are the rules that conftest calls failures and warnings: deny, deny_x,
// violation, violation_x, warn and warn_x.
func conftestRules(modules map[string]*ast.Module, given []string) []rule {
	want := namespaces(given)
	var out []rule
	for _, m := range modules {
		pkg := m.Package.Path.String()
		ns := strings.TrimPrefix(pkg, "data.")
		if !slices.Contains(want, "*") && !slices.Contains(want, ns) {
			continue
		}
		for _, r := range m.Rules {
			name := headName(r.Head)
			effect, except, ok := conftestRule(name)
			if !ok || slices.ContainsFunc(out, func(o rule) bool { return o.ref == pkg+"."+name }) {
				continue
			}
			shown := name
			if ns != "main" {
				shown = ns + "." + name
			}
			out = append(out, rule{name: shown, ref: pkg + "." + name, effect: effect, except: except, ns: pkg})
		}
	}
	slices.SortFunc(out, func(a, b rule) int { return strings.Compare(a.ref, b.ref) })
	return out
}

// conftestRule reports what a rule of this name means, and by which name exceptions
// call it.
func conftestRule(name string) (effect policy.Effect, except string, ok bool) {
	for prefix, e := range map[string]policy.Effect{"deny": policy.Deny, "violation": policy.Deny, "warn": policy.Warn} {
		rest, found := strings.CutPrefix(name, prefix)
		switch {
		case found && rest == "":
			return e, "", true
		case found && len(rest) > 1 && rest[0] == '_':
			return e, rest[1:], true
		}
	}
	return "", "", false
}

// excepts reports whether a package has exceptions.
func (s *Set) excepts(pkg string) bool {
	for _, m := range s.modules {
		if m.Package.Path.String() == pkg && slices.ContainsFunc(m.Rules, func(r *ast.Rule) bool { return headName(r.Head) == "exception" }) {
			return true
		}
	}
	return false
}

// excepted reports whether an exception of its package names the rule. Exceptions are
// lists of names.
func (s *Set) excepted(r rule, answer ast.Object) bool {
	lists := only(answer, r.ns+".exception")
	if lists == nil {
		return false
	}
	found := false
	each(lists, func(names *ast.Term) bool {
		each(names, func(name *ast.Term) bool {
			text, ok := name.Value.(ast.String)
			found = found || ok && string(text) == r.except
			return !found
		})
		return !found
	})
	return found
}
