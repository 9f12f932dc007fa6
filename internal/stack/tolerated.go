package stack

import (
	"fmt"
	"time"

	"github.com/terrier-iac/terrier/internal/plural"
)

// Attributes may drift where a rule of a policy, or of the stack, says so. Package drift judges
// which attributes of a plan do.

// ToleratedDrift are attributes that differ from the configuration, where rules allow it. It has
// no time, so that a drift check that finds the same again changes nothing.
type ToleratedDrift struct {
	Resources  int                  `json:"resources"`
	Attributes int                  `json:"attributes"`
	Of         []ToleratedAttribute `json:"of,omitempty"` // the first of them, at most ToleratedKept

	// Ended are attributes that a rule would name which has ended, at most ToleratedKept: they
	// are drift, and are counted in neither number.
	Ended []ToleratedAttribute `json:"ended,omitempty"`
}

// ToleratedKept bounds how many attributes a status names.
const ToleratedKept = 20

// ToleratedAttribute is one attribute that may drift, and the rule that says so.
type ToleratedAttribute struct {
	Address   string    `json:"address"`
	Attribute string    `json:"attribute"` // its path: tags["a"], rule[0].port
	Policy    string    `json:"policy"`    // ClusterPolicy/production, or the annotation of the stack
	Reason    string    `json:"reason"`
	Until     time.Time `json:"until,omitzero"` // when the rule ends; zero if it has no end
}

// String is the attribute, its rule and the end of the rule.
func (a ToleratedAttribute) String() string {
	s := fmt.Sprintf("%s of %s, by %s: %s", a.Attribute, a.Address, a.Policy, a.Reason)
	if !a.Until.IsZero() {
		s += " (until " + a.Until.UTC().Format(time.RFC3339) + ")"
	}
	return s
}

// String counts the attributes: 2 attributes of 1 resource.
func (t ToleratedDrift) String() string {
	return plural.Count(t.Attributes, "attribute") + " of " + plural.Count(t.Resources, "resource")
}

// Total is how many attributes may drift and do; nil has none.
func (t *ToleratedDrift) Total() int {
	if t == nil {
		return 0
	}
	return t.Attributes
}

// NextEnd is when the first of the rules that are named ends; zero if none does.
func (t *ToleratedDrift) NextEnd() time.Time {
	var next time.Time
	if t == nil {
		return next
	}
	for _, a := range t.Of {
		if !a.Until.IsZero() && (next.IsZero() || a.Until.Before(next)) {
			next = a.Until
		}
	}
	return next
}

// alsoResets is the sentence for what a plan changes besides drift that counts.
func alsoResets(p *Plan) string {
	if p == nil || p.Tolerated == nil {
		return ""
	}
	out := ""
	if t := p.Tolerated; t.Attributes > 0 {
		out = fmt.Sprintf(" The plan also resets %s that may drift, as %s of %s.", t, t.Of[0].Attribute, t.Of[0].Address)
	}
	for i, e := range p.Tolerated.Ended {
		if i == 0 {
			out += fmt.Sprintf(" The rule of %s by which %s of %s could drift ended at %s.", e.Policy, e.Attribute, e.Address, e.Until.UTC().Format(time.RFC3339))
		}
	}
	return out
}
