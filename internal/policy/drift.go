package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Drift is what policies, and the annotation of a stack, say of its drift.
type Drift struct {
	Tolerate []Tolerance
	Pace     Pace
	Budgets  []Budget
}

// Budget bounds how often drift is checked in an hour, and what CPU that takes: of all stacks of a
// tenant together, or of all stacks that use a provider.
type Budget struct {
	Policy   string        // that has it
	Field    string        // its place in the policy: spec.drift.budgets[0]
	Per      BudgetPer     // who shares it
	Provider string        // pattern of the sources of providers; of PerProvider alone
	Checks   int           // in an hour; 0 if they are not counted
	CPU      time.Duration // in an hour; 0 if it is not counted
	MaxDelay time.Duration // of a check because of this budget
}

// MaxDelay is how long a budget delays a check at most, unless its policy says it.
const MaxDelay = 24 * time.Hour

// BudgetPer is who shares a budget.
type BudgetPer string

const (
	PerTenant   BudgetPer = "Tenant"   // each tenant has one, as the queue knows tenants
	PerProvider BudgetPer = "Provider" // each provider has one
)

// Of reports whether a provider has this budget.
func (b Budget) Of(provider string) bool {
	return b.Per == PerProvider && (b.Provider == "" || Glob(b.Provider, provider))
}

// For names the budget of one tenant, or of one provider, as users read it.
func (b Budget) For(who string) string {
	return fmt.Sprintf("the %s %s, which %s of %s has", strings.ToLower(string(b.Per)), who, b.Field, b.Policy)
}

// Pace bounds the pauses between the drift checks of a stack, which follow from how long nothing
// has happened to it. The zero value leaves each pause at the interval of the stack.
type Pace struct {
	Policy   string        // that says it; of several all
	Min, Max time.Duration // the interval of the stack if 0
}

// On reports whether pauses follow from what happened.
func (p Pace) On() bool { return p.Min > 0 || p.Max > 0 }

// And is the pace of two policies: the one that checks oftener counts, for each bound.
func (p Pace) And(q Pace) Pace {
	if !p.On() {
		return q
	}
	least := func(a, b time.Duration) time.Duration {
		if a == 0 || b == 0 {
			return max(a, b)
		}
		return min(a, b)
	}
	names := p.Policy
	if q.On() && q.Policy != p.Policy {
		names += " and " + q.Policy
	}
	return Pace{Policy: names, Min: least(p.Min, q.Min), Max: least(p.Max, q.Max)}
}

// Tolerance is a rule for attributes that may drift: a difference in nothing else is no drift.
// It is for updates in place alone.
type Tolerance struct {
	Policy     string    `json:"policy"`              // ClusterPolicy/production, or the annotation of the stack
	Types      []string  `json:"types,omitempty"`     // patterns; any type if empty
	Addresses  []string  `json:"addresses,omitempty"` // patterns; any address if empty
	Attributes []string  `json:"attributes"`          // patterns
	Reason     string    `json:"reason"`
	Until      time.Time `json:"until,omitzero"` // zero if the rule has no end
}

// DriftAnnotation is how users read that the rules of a stack's own say something, in the place
// of the name of a policy.
const DriftAnnotation = "the annotation of the stack"

// Covers reports whether the rule is for a resource of this type and address.
func (t Tolerance) Covers(typ, address string) bool {
	return matches(t.Types, typ) && matches(t.Addresses, address)
}

// Names reports whether the rule is for the attribute at a path, as rule[0].port: a pattern names
// the attribute, or what the attribute is in. A pattern of something in the attribute is not
// enough, since the rest of the attribute may differ as well. The numbers of lists may be left
// out of a pattern; keys of maps may not.
func (t Tolerance) Names(path string) bool {
	return slices.ContainsFunc(t.Attributes, func(pattern string) bool {
		return within(pattern, path) || within(pattern, withoutNumbers(path))
	})
}

// within reports whether a pattern names the path, or the beginning of it up to a step.
func within(pattern, path string) bool {
	if pattern == "" || path == "" {
		return false
	}
	return slices.ContainsFunc([]string{"", ".*", "[*", "(json)*"}, func(rest string) bool { return Glob(pattern+rest, path) })
}

// withoutNumbers is the path of an attribute without the numbers of lists: rule[0].port is
// rule.port, and tags["a"] stays.
func withoutNumbers(path string) string {
	var b strings.Builder
	for {
		open := strings.IndexByte(path, '[')
		if open < 0 {
			break
		}
		end := open + 1
		if end < len(path) && path[end] == '"' {
			for end++; end < len(path) && path[end] != '"'; end++ {
				if path[end] == '\\' {
					end++
				}
			}
			end = min(end+1, len(path))
			b.WriteString(path[:end])
			path = path[end:]
			continue
		}
		b.WriteString(path[:open])
		shut := strings.IndexByte(path[open:], ']')
		if shut < 0 {
			return b.String() + path[open:]
		}
		path = path[open+shut+1:]
	}
	return b.String() + path
}

// Ended reports whether the rule counts no more.
func (t Tolerance) Ended(now time.Time) bool { return !t.Until.IsZero() && !now.Before(t.Until) }

// EndsWithin is how long before the end of a rule users are told of it.
const EndsWithin = 7 * 24 * time.Hour

// Ends reports whether the rule ends soon, so that users are told.
func (t Tolerance) Ends(now time.Time) bool {
	return !t.Until.IsZero() && now.Before(t.Until) && !now.Before(t.Until.Add(-EndsWithin))
}

// Endings says which rules have ended, and which end soon: sentences without the last full stop.
// It is empty if there are none.
func (d Drift) Endings(now time.Time) string {
	var all []string
	for i, t := range d.Tolerate {
		at := t.Until.UTC().Format(time.RFC3339)
		switch {
		case t.Ended(now):
			all = append(all, fmt.Sprintf("spec.drift.tolerate[%d] ended at %s and counts no more", i, at))
		case t.Ends(now):
			all = append(all, fmt.Sprintf("spec.drift.tolerate[%d] ends at %s: from then on its attributes are drift", i, at))
		}
	}
	return strings.Join(all, ". ")
}

// NextTold is when Endings says another thing next; zero if it never does.
func (d Drift) NextTold(now time.Time) time.Time {
	var next time.Time
	for _, t := range d.Tolerate {
		if t.Until.IsZero() {
			continue
		}
		for _, at := range []time.Time{t.Until.Add(-EndsWithin), t.Until} {
			if now.Before(at) && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
	}
	return next
}
