package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAMaskedPlanSaysTheSame(t *testing.T) {
	for _, name := range []string{"plan.json", "destroy.json", "drift.json"} {
		d := parse(t, raw(t, name))
		masked := parse(t, d.Masked())
		again := parse(t, masked.Masked())
		for what, m := range map[string]*Document{"masked": masked, "masked twice": again} {
			if diff := cmp.Diff(m.Items(), d.Items(), alike); diff != "" {
				t.Errorf("%s %s says something else of resources:\n%s", name, what, diff)
			}
			if diff := cmp.Diff(m.Outputs(), d.Outputs(), alike); diff != "" {
				t.Errorf("%s %s says something else of outputs:\n%s", name, what, diff)
			}
			if diff := cmp.Diff(m.Drift(), d.Drift(), alike); diff != "" {
				t.Errorf("%s %s says something else of drift:\n%s", name, what, diff)
			}
		}
	}
}

// alike leaves out the marks of a value that is masked whole or in part: a
// masked document does not tell the two apart.
var alike = cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Sensitive" }, cmp.Ignore())

func TestChangesThatMayNotBeSeenAreKnown(t *testing.T) {
	const document = `{"format_version":"1.2","resource_changes":[{"address":"a.b","change":{"actions":["update"],
		"before":{"secret":"first-secret","text":"one first-secret","list":["same","first-secret","same"],"policy":"{\"key\":\"first-secret\",\"other\":1}","plain":"x"},
		"after":{"secret":"other-secret","text":"one other-secret","list":["same","other-secret","same"],"policy":"{\"key\":\"other-secret\",\"other\":1}","plain":"x"},
		"before_sensitive":{"secret":true},"after_sensitive":{"secret":true}}}]}`
	d := parse(t, parse(t, []byte(document)).Masked())
	var got []string
	for _, diff := range d.Items()[0].Diffs {
		if !diff.Sensitive || !cmp.Equal(diff.Before, diff.After) {
			t.Errorf("%s differs from %v to %v (sensitive %v), want it masked", diff.Path, diff.Before, diff.After, diff.Sensitive)
		}
		got = append(got, diff.Path)
	}
	if want := []string{"list[1]", "policy", "secret", "text"}; !cmp.Equal(got, want) {
		t.Errorf("what differs is %q, want %q", got, want)
	}
	if s := string(parse(t, []byte(document)).Masked()); strings.Contains(s, "-secret\"") {
		t.Errorf("Masked() shows a secret: %s", s)
	}
}
