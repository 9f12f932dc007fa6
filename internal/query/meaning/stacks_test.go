package meaning

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/stack/stacktest"
)

func TestEveryReasonIsExplained(t *testing.T) {
	all := stacktest.Reasons(t, "../../stack")
	if len(all) < 30 {
		t.Fatalf("only %d reasons were found in the source", len(all))
	}
	for _, r := range all {
		if s := situations[r]; !strings.HasSuffix(s.Means, ".") || strings.Contains(s.Means, "{") {
			t.Errorf("%s means %q, want a sentence that names no field", r, s.Means)
		}
	}
	for r := range situations {
		if !slices.Contains(all, r) {
			t.Errorf("%s is explained and is no reason", r)
		}
	}
}

// An explanation before the first pass says that it is too early.
func TestAStackBeforeItsFirstPassIsExplained(t *testing.T) {
	got := Of("", stack.Words{})
	if !strings.Contains(got.Means, "not reconciled the stack yet") || !strings.Contains(got.Do, "terrier up") {
		t.Errorf("Of() = %+v, want that it is too early, and what to do if it stays", got)
	}
}

func TestEveryRuleHasItsText(t *testing.T) {
	var got []string
	for _, r := range Rules() {
		got = append(got, r.Rule)
		if !strings.HasSuffix(r.Why, ".") && r.Why != "{pause}" {
			t.Errorf("%q: why is %q, want sentences", r.Rule, r.Why)
		}
	}
	if diff := cmp.Diff(got, stack.Rules()); diff != "" {
		t.Errorf("rules (-texts +rules):\n%s", diff)
	}
}

// enough draws meet every rule, the rarest of which fires once in some thousand.
const enough = 50_000

// What is said of a rule is what it does, whatever is observed. Observations are
// drawn at random, to find unexpected ones, and from fixed seeds, which meet every
// rule each time. All seeds are tried, so that a rule is met in more than one situation.
func TestRulesDoWhatIsSaidOfThem(t *testing.T) {
	texts := map[string]Rule{}
	for _, r := range Rules() {
		texts[r.Rule] = r
	}
	check := func(t interface{ Fatalf(string, ...any) }, d stack.Decision) {
		said := texts[d.Rule]
		if does := Action(d.Action); !strings.Contains(said.Does, does) {
			t.Fatalf("%q does %q, the text says %q", d.Rule, does, said.Does)
		}
		if said.Reasons != nil && !slices.Contains(said.Reasons, d.Reason) {
			t.Fatalf("%q shows itself as %s, the text says %v", d.Rule, d.Reason, said.Reasons)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		for range 200 {
			check(t, stack.Decide(stacktest.Observation(t)))
		}
	})
	unmet := maps.Clone(texts)
	observations := rapid.Custom(stacktest.Observation)
	for seed := range enough {
		d := stack.Decide(observations.Example(seed))
		check(t, d)
		delete(unmet, d.Rule)
	}
	for rule := range unmet {
		t.Errorf("the rule %q was not met", rule)
	}
}
