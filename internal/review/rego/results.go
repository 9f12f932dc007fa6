package rego

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/terrier-iac/terrier/internal/policy"
)

// Bounds of what one policy says of one plan.
const (
	findingsMost = 500
	messageBytes = 2 << 10
	nameBytes    = 512
	linkBytes    = 1 << 10
	groupsMost   = 50
	approvalsMax = 20
)

// findings reads what some rules gave.
func (s *Set) findings(name string, rules []rule, answer ast.Object) []policy.Finding {
	var out []policy.Finding
	for _, r := range rules {
		if s.source.Format == Conftest && s.excepted(r, answer) {
			continue
		}
		value := only(answer, r.ref)
		if value == nil {
			continue // undefined
		}
		if s.source.Format == Weave {
			for _, f := range s.weaveGiven(r, value) {
				f.Policy = name
				out = append(out, f)
			}
			continue
		}
		out = append(out, s.given(name, r, value)...)
	}
	return out
}

// only is the value of a rule, nil if it is undefined.
func only(answer ast.Object, key string) *ast.Term {
	t := answer.Get(ast.StringTerm(key))
	if t == nil {
		return nil
	}
	values, ok := t.Value.(*ast.Array)
	if !ok || values.Len() == 0 {
		return nil
	}
	return values.Elem(0)
}

// given reads what one rule gave: a set or a list of texts and objects.
func (s *Set) given(name string, r rule, value *ast.Term) []policy.Finding {
	var out []policy.Finding
	left := findingsMost + 1 // bounded says that there are more
	item := func(t *ast.Term) {
		if left == 0 {
			return
		}
		left--
		f, err := s.finding(r, t)
		if err != nil {
			f = policy.Failed("", r.name, unable(fmt.Errorf("the rule %s gives %w", strings.TrimPrefix(r.ref, "data."), err)))
		}
		f.Policy = name
		out = append(out, f)
	}
	switch v := value.Value.(type) {
	case ast.Set:
		v.Foreach(item)
	case *ast.Array:
		v.Foreach(item)
	default:
		if b, ok := v.(ast.Boolean); ok && !bool(b) {
			return nil // a rule that did not fire
		}
		return []policy.Finding{policy.Failed(name, r.name, unable(fmt.Errorf("the rule %s gives %s, where a set of texts or objects is wanted: %s contains message if { … }",
			strings.TrimPrefix(r.ref, "data."), kind(value), r.name)))}
	}
	return out
}

// bounded cuts findings to as many as one policy may give, the strictest first.
func (s *Set) bounded(name string, findings []policy.Finding) []policy.Finding {
	policy.Sort(findings)
	if len(findings) <= findingsMost {
		return findings
	}
	more := policy.Failed(name, evaluation, fmt.Sprintf("the policy gives more than %d findings; the others are not kept", findingsMost))
	findings = append(findings[:findingsMost-1], more)
	policy.Sort(findings)
	return findings
}

// finding reads one result.
func (s *Set) finding(r rule, t *ast.Term) (policy.Finding, error) {
	f := policy.Finding{Rule: r.name, Effect: r.effect, Severity: s.source.Severity}
	switch v := t.Value.(type) {
	case ast.String:
		f.Message = text(string(v))
	case ast.Object:
		if err := s.fields(&f, v); err != nil {
			return f, err
		}
	default:
		return f, fmt.Errorf("%s, where a text or an object is wanted", kind(t))
	}
	if strings.TrimSpace(f.Message) == "" {
		return f, fmt.Errorf("no message: an object needs the field msg")
	}
	return f, nil
}

// fields reads a result that is an object. In the format of Terrier a field that is not
// known is an error: a misspelt approval would ask for none.
func (s *Set) fields(f *policy.Finding, o ast.Object) error {
	var failed error
	var addresses []string
	o.Foreach(func(k, v *ast.Term) {
		if failed != nil {
			return
		}
		key, _ := k.Value.(ast.String)
		strict := s.source.Format == Terrier
		switch string(key) {
		case "msg", "message":
			failed = take(&f.Message, string(key), v, text)
		case "rule", "id":
			if strict || isText(v) {
				failed = take(&f.Rule, string(key), v, name)
			}
		case "severity":
			if strict || isText(v) {
				failed = take(&f.Severity, string(key), v, strings.ToLower)
			}
			if failed == nil && !slices.Contains(policy.Severities(), f.Severity) {
				f.Severity, failed = "", fmt.Errorf("the severity %.40q, which is none of low, medium, high and critical", f.Severity)
			}
			if !strict {
				failed = nil
			}
		case "link":
			failed = take(&f.Link, "link", v, func(s string) string { return s })
			if u, err := url.Parse(f.Link); failed == nil && (err != nil || u.Scheme != "https" && u.Scheme != "http" || len(f.Link) > linkBytes) {
				f.Link, failed = "", fmt.Errorf("a link that is no URL with https")
			}
			if !strict {
				failed = nil
			}
		case "address":
			if strict || isText(v) {
				var one string
				failed = take(&one, "address", v, name)
				addresses = append(addresses, one)
			}
		case "addresses":
			all, err := texts(v, "addresses")
			if addresses = append(addresses, all...); strict {
				failed = err
			}
		case "approval":
			if strict {
				f.Approval, failed = approval(v)
			}
		case "details", "metadata": // of the author, for tests
		default:
			if strict {
				failed = fmt.Errorf("the field %.60q, which is none of msg, rule, severity, link, address, addresses, approval and details", string(key))
			}
		}
	})
	if failed == nil && f.Approval != nil && f.Effect != policy.Hold {
		failed = fmt.Errorf("an approval, which only a hold has")
	}
	if len(addresses) > 0 {
		slices.Sort(addresses)
		*f = f.At(slices.Compact(addresses)...)
	}
	return failed
}

// approval reads who has to approve.
func approval(t *ast.Term) (*policy.Approval, error) {
	o, ok := t.Value.(ast.Object)
	if !ok {
		return nil, fmt.Errorf("an approval that is %s, not an object", kind(t))
	}
	a := &policy.Approval{}
	var failed error
	o.Foreach(func(k, v *ast.Term) {
		key, _ := k.Value.(ast.String)
		if failed != nil {
			return
		}
		switch string(key) {
		case "count":
			n, ok := v.Value.(ast.Number)
			i, whole := n.Int()
			if !ok || !whole || i < 1 || i > approvalsMax {
				failed = fmt.Errorf("an approval whose count is no number from 1 to %d", approvalsMax)
			}
			a.Count = i
		case "groups":
			a.Groups, failed = texts(v, "groups")
		case "users":
			a.Users, failed = texts(v, "users")
		case "not_requester":
			b, ok := v.Value.(ast.Boolean)
			if a.NotRequester = bool(b); !ok {
				failed = fmt.Errorf("an approval whose not_requester is %s, not true or false", kind(v))
			}
		case "expires":
			d, err := time.ParseDuration(strings.Trim(v.String(), `"`))
			if a.Expires = policy.Duration(d); err != nil || d <= 0 {
				failed = fmt.Errorf("an approval whose expires is no duration such as \"24h\"")
			}
		default:
			failed = fmt.Errorf("an approval with the field %.60q, which is none of count, groups, users, not_requester and expires", string(key))
		}
	})
	return a, failed
}

func isText(t *ast.Term) bool {
	_, ok := t.Value.(ast.String)
	return ok
}

func take(to *string, field string, t *ast.Term, clean func(string) string) error {
	s, ok := t.Value.(ast.String)
	if !ok {
		return fmt.Errorf("the field %s that is %s, not a text", field, kind(t))
	}
	*to = clean(string(s))
	return nil
}

// texts reads a list or a set of texts.
func texts(t *ast.Term, field string) ([]string, error) {
	var out []string
	ok, n := true, 0
	visit := func(t *ast.Term) {
		s, isText := t.Value.(ast.String)
		ok = ok && isText
		if n++; n <= 100*groupsMost {
			out = append(out, name(string(s)))
		}
	}
	switch v := t.Value.(type) {
	case *ast.Array:
		v.Foreach(visit)
	case ast.Set:
		v.Foreach(visit)
	default:
		ok = false
	}
	if !ok || field != "addresses" && (n == 0 || n > groupsMost) {
		return nil, fmt.Errorf("the field %s that is no list of texts", field)
	}
	return out, nil
}

func kind(t *ast.Term) string {
	switch t.Value.(type) {
	case ast.Null:
		return "null"
	case ast.Boolean:
		return "true or false"
	case ast.Number:
		return "a number"
	case ast.String:
		return "a text"
	case *ast.Array:
		return "a list"
	case ast.Set:
		return "a set"
	case ast.Object:
		return "an object"
	default:
		return "something else"
	}
}

// text is a message of a policy: of one size, and without what would move a terminal's
// cursor.
func text(s string) string { return cut(clean(s), messageBytes) }

// name is a text that is one line.
func name(s string) string {
	return cut(strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return r
	}, clean(s)), nameBytes)
}

func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
