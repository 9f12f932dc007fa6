package planview

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

func TestAttributes(t *testing.T) {
	text := func(n int, change string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "line %d\n", i)
			if i == n/2 {
				b.WriteString(change)
			}
		}
		return b.String()
	}
	for name, tt := range map[string]struct {
		in   plan.Diff
		want Attribute
	}{
		"added":               {plan.Diff{Path: "a", After: "x"}, Attribute{Path: "a", Tone: ui.ToneOK, Mark: "+", Word: "added", After: &Value{Text: `"x"`}}},
		"removed":             {plan.Diff{Path: "a", Before: json.Number("1")}, Attribute{Path: "a", Tone: ui.ToneBad, Mark: "-", Word: "removed", Before: &Value{Text: "1"}}},
		"changed":             {plan.Diff{Path: "a", Before: true, After: false, ForcesReplacement: true}, Attribute{Path: "a", Tone: ui.ToneWarn, Mark: "~", Word: "changed", Before: &Value{Text: "true"}, After: &Value{Text: "false"}, Forces: true}},
		"known later":         {plan.Diff{Path: "a", Before: "x", Unknown: true}, Attribute{Path: "a", Tone: ui.ToneWarn, Mark: "~", Word: "changed", Before: &Value{Text: `"x"`}, After: &Value{knownLater, true}}},
		"a secret changes":    {plan.Diff{Path: "a", Before: plan.Mask, After: plan.Mask, Sensitive: true}, Attribute{Path: "a", Tone: ui.ToneWarn, Mark: "~", Word: "changed", Hidden: true, Before: &Value{masked, true}, After: &Value{masked, true}}},
		"a secret is added":   {plan.Diff{Path: "a", After: plan.Mask, Sensitive: true}, Attribute{Path: "a", Tone: ui.ToneOK, Mark: "+", Word: "added", After: &Value{masked, true}}},
		"a text that says so": {plan.Diff{Path: "a", After: plan.Mask}, Attribute{Path: "a", Tone: ui.ToneOK, Mark: "+", Word: "added", After: &Value{Text: `"(sensitive)"`}}},
		"what does not print": {plan.Diff{Path: "a\u202e", After: "\x1b[31m\u202e"}, Attribute{Path: `a\u202e`, Tone: ui.ToneOK, Mark: "+", Word: "added", After: &Value{Text: `"\x1b[31m\u202e"`}}},
		"a list":              {plan.Diff{Path: "a", After: []any{"<b>", json.Number("2")}}, Attribute{Path: "a", Tone: ui.ToneOK, Mark: "+", Word: "added", After: &Value{Text: `["<b>",2]`}}},
		"lines": {plan.Diff{Path: "a", Before: "one\ntwo\n", After: "one\n2\n"}, Attribute{Path: "a", Tone: ui.ToneWarn, Mark: "~", Word: "changed",
			Blocks: []Block{{Lines: []Line{{"", " ", "one"}, {ui.ToneBad, "-", "two"}, {ui.ToneOK, "+", "2"}}}}}},
		"lines far apart": {plan.Diff{Path: "a", Before: text(20, ""), After: text(20, "new\n")}, Attribute{Path: "a", Tone: ui.ToneWarn, Mark: "~", Word: "changed", Blocks: []Block{
			{Fold: 8, Lines: same(strings.Split("line 0,line 1,line 2,line 3,line 4,line 5,line 6,line 7", ","))},
			{Lines: append(append(same([]string{"line 8", "line 9", "line 10"}), Line{ui.ToneOK, "+", "new"}), same([]string{"line 11", "line 12", "line 13"})...)},
			{Fold: 6, Lines: same([]string{"line 14", "line 15", "line 16", "line 17", "line 18", "line 19"})},
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(AttributeOf(tt.in), tt.want); diff != "" {
				t.Errorf("attributeOf():\n%s", diff)
			}
		})
	}
}

// Every line of both texts is shown once, in order, whatever the texts are.
func FuzzCompare(f *testing.F) {
	f.Add("a\nb\nc", "a\nc\nd")
	f.Add("", "x")
	f.Add("a\na\na", "a\na")
	f.Fuzz(func(t *testing.T, before, after string) {
		b, a := strings.Split(before, "\n"), strings.Split(after, "\n")
		var left, right []string
		for _, l := range compare(b, a) {
			if l.Mark != "+" {
				left = append(left, l.Text)
			}
			if l.Mark != "-" {
				right = append(right, l.Text)
			}
		}
		if !cmp.Equal(left, b) || !cmp.Equal(right, a) {
			t.Errorf("compare(%q, %q) shows %q and %q", b, a, left, right)
		}
	})
}

func TestLongTextsAreBounded(t *testing.T) {
	before, after := strings.Repeat("x\n", 5000), strings.Repeat("y\n", 5000)
	a := AttributeOf(plan.Diff{Path: "a", Before: before, After: after})
	n := 0
	for _, b := range a.Blocks {
		n += len(b.Lines)
	}
	if n != valueLines || a.Left != 10000-valueLines {
		t.Errorf("%d lines are shown and %d left out, want %d and %d", n, a.Left, valueLines, 10000-valueLines)
	}
}

// same are lines that both texts have.
func same(texts []string) []Line {
	var out []Line
	for _, t := range texts {
		out = append(out, Line{"", " ", t})
	}
	return out
}
