package command

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestUndoingDiff(t *testing.T) {
	lines := func(s string) []string { return strings.Fields(s) }
	shown := func(list []DiffLine) string {
		var out []string
		for _, l := range list {
			out = append(out, strings.TrimSpace(string(l.Sign)+l.Text))
		}
		return strings.Join(out, " ")
	}
	for name, tt := range map[string]struct{ a, b, want string }{
		"nothing differs":            {"a b c d e f g h i", "a b c d e f g h i", "…"},
		"one line is another":        {"a b c", "a x c", "a -b +x c"},
		"far lines are left out":     {"a b c d e f g h i", "a b c d X f g h i", "… b c d -e +X f g h …"},
		"one is put in":              {"a c", "a b c", "a +b c"},
		"the end is taken off":       {"a b c", "a", "a -b -c"},
		"changes far from another":   {"1 a b c d e f g h 2", "3 a b c d e f g h 4", "-1 +3 a b c … f g h -2 +4"},
		"what moves is put in again": {"a b", "b a", "-a b +a"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := shown(folded(diffLines(lines(tt.a), lines(tt.b)))); got != tt.want {
				t.Errorf("diff = %s, want %s", got, tt.want)
			}
		})
	}
}

// Whatever two generations say: what is taken out and kept is the one, what is
// kept and put in is the other.
func TestUndoingDiffIsWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 12)
		a, b := text.Draw(t, "a"), text.Draw(t, "b")
		var was, becomes []string
		for _, l := range diffLines(slices.Clone(a), slices.Clone(b)) {
			if l.Sign != '+' {
				was = append(was, l.Text)
			}
			if l.Sign != '-' {
				becomes = append(becomes, l.Text)
			}
		}
		if !slices.Equal(was, a) || !slices.Equal(becomes, b) {
			t.Fatalf("the diff is of %v and %v, want %v and %v", was, becomes, a, b)
		}
	})
}
