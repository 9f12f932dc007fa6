package identity

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Rules are what the operator allows. Without a rule that fits, nothing is allowed.
type Rules struct {
	Rules []Rule `json:"rules"`
}

// Rule allows the stacks of some namespaces to ask for some audiences, and roles at them. In
// a pattern * stands for any characters; in those of audiences, roles and servers {namespace} is
// the name of the stack's namespace.
type Rule struct {
	Namespaces    []string `json:"namespaces"`
	NamespaceUIDs []string `json:"namespaceUIDs,omitempty"` // the namespace has to be one of these as well
	Phases        []Phase  `json:"phases,omitempty"`        // both if empty
	Audiences     []string `json:"audiences"`
	Roles         []string `json:"roles,omitempty"`   // those that a request may name; it may always name none
	Servers       []string `json:"servers,omitempty"` // of kubernetes, that a request may name; this cluster alone if empty
}

// Check returns what is wrong with the rules.
func (r Rules) Check() error {
	for i, rule := range r.Rules {
		if len(rule.Namespaces) == 0 {
			return fmt.Errorf("rules[%d].namespaces is empty: name the namespaces, or \"*\" for all", i)
		}
		if len(rule.Audiences) == 0 {
			return fmt.Errorf("rules[%d].audiences is empty: name the audiences that these namespaces may ask for", i)
		}
		for _, p := range rule.Phases {
			if p != Plan && p != Apply {
				return fmt.Errorf("rules[%d].phases: %q is neither plan nor apply", i, p)
			}
		}
		for _, text := range slices.Concat(rule.Namespaces, rule.Audiences, rule.Roles, rule.Servers, rule.NamespaceUIDs) {
			if text == "" {
				return fmt.Errorf("rules[%d] has an empty pattern, which matches nothing", i)
			}
		}
	}
	return nil
}

// Allows returns why a stack of a namespace may not ask for what it asks for; nil if it may.
// Both phases count, so that a stack is refused before its first plan. Here are the addresses of
// the API server of this cluster.
func (r Rules) Allows(namespace, uid string, here []string, q Request) error {
	var errs []error
	for _, p := range phases() {
		for _, u := range q.Uses(p) {
			ruled := r.allowing(namespace, uid, p, u)
			server := ""
			if u.Name == useKubernetes {
				server = q.Kubernetes.Server
			}
			if slices.ContainsFunc(ruled, func(rule Rule) bool { return server == "" || rule.reaches(server, namespace, here) }) {
				continue
			}
			if len(ruled) > 0 {
				errs = append(errs, fmt.Errorf("%s.server: no rule that lets the namespace %s have the audience %s in runs of phase %s names the server %s. A rule without servers is for this cluster alone: add the address to the servers of the rule, or name another server", u.Name, namespace, u.Audience, p, server))
				continue
			}
			what := fmt.Sprintf("the audience %s", u.Audience)
			if u.Role != "" {
				what = fmt.Sprintf("the role %s at %s", u.Role, what)
			}
			errs = append(errs, fmt.Errorf("%s: no rule lets the namespace %s have %s in runs of phase %s", u.Name, namespace, what, p))
		}
	}
	return errors.Join(errs...)
}

// allowing are the rules that allow a use, wherever its server is.
func (r Rules) allowing(namespace, uid string, p Phase, u Use) (all []Rule) {
	for _, rule := range r.Rules {
		if fits(rule.Namespaces, namespace, "") && (len(rule.NamespaceUIDs) == 0 || slices.Contains(rule.NamespaceUIDs, uid)) &&
			(len(rule.Phases) == 0 || slices.Contains(rule.Phases, p)) &&
			fits(rule.Audiences, u.Audience, namespace) && (u.Role == "" || fits(rule.Roles, u.Role, namespace)) {
			all = append(all, rule)
		}
	}
	return all
}

// reaches reports whether a rule is for a server.
func (r Rule) reaches(server, namespace string, here []string) bool {
	if len(r.Servers) == 0 {
		return slices.ContainsFunc(here, func(own string) bool { return plainPort(own) == plainPort(server) })
	}
	return fits(r.Servers, server, namespace)
}

// plainPort is an address without the port that https has by itself.
func plainPort(address string) string {
	return strings.TrimSuffix(strings.TrimSuffix(address, "/"), ":443")
}

// fits reports whether one of the patterns matches. A name of a namespace holds no character
// that a pattern means something by.
func fits(patterns []string, text, namespace string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if namespace != "" {
			p = strings.ReplaceAll(p, "{namespace}", namespace)
		}
		return matches(p, text)
	})
}

// matches reports whether a text has the form of a pattern, in which * stands for any
// characters. It takes time in proportion to the product of both lengths.
func matches(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(text, part)
		if i < 0 {
			return false
		}
		text = text[i+len(part):]
	}
	return true
}
