package policy

import (
	"testing"
	"time"
)

// A pattern names an attribute and what is in it, and nothing that the attribute is in.
func TestToleranceNames(t *testing.T) {
	for _, tt := range []struct {
		pattern, path string
		want          bool
	}{
		{"size", "size", true},
		{"size", "sizes", false},
		{"size", "disk.size", false},
		{"tags", "tags.env", true},
		{"tags", `tags["a b"]`, true},
		{"tags.env", "tags", false},
		{"tags.env", `tags["a b"]`, false},
		{`tags["a b"]`, `tags["a b"]`, true},
		{`tags["a b"]`, `tags["a c"]`, false},
		{"rule.port", "rule[0].port", true},
		{"rule[0].port", "rule[0].port", true},
		{"rule[0].port", "rule[1].port", false},
		{"rule", "rule[0].port", true},
		{"rule.*.port", "rule[0].port", false},
		{`m["x]y"].a`, `m["x]y"].a`, true},
		{"m.a", `m["x]y"].a`, false},
		{"m.a", `m["x\"]y"].a`, false},
		{"policy", "policy(json).Statement[0].Action", true},
		{"*", "anything[0].at.all", true},
		{"desired_*", "desired_capacity", true},
		{"", "size", false},
		{"size", "", false},
		{"a", "a[0", true},
	} {
		if got := (Tolerance{Attributes: []string{tt.pattern}}).Names(tt.path); got != tt.want {
			t.Errorf("%q names %q: %v, want %v", tt.pattern, tt.path, got, tt.want)
		}
	}
}

// A rule says that it ends a week before, and that it has ended; in between nothing is told.
func TestEndings(t *testing.T) {
	end := time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC)
	d := Drift{Tolerate: []Tolerance{{Attributes: []string{"a"}}, {Attributes: []string{"b"}, Until: end}}}
	for _, tt := range []struct {
		now  time.Time
		says string
		next time.Time
	}{
		{end.Add(-30 * 24 * time.Hour), "", end.Add(-EndsWithin)},
		{end.Add(-EndsWithin), "spec.drift.tolerate[1] ends at 2027-03-01T00:00:00Z: from then on its attributes are drift", end},
		{end.Add(-time.Second), "spec.drift.tolerate[1] ends at 2027-03-01T00:00:00Z: from then on its attributes are drift", end},
		{end, "spec.drift.tolerate[1] ended at 2027-03-01T00:00:00Z and counts no more", time.Time{}},
	} {
		if got := d.Endings(tt.now); got != tt.says {
			t.Errorf("Endings(%v) = %q, want %q", tt.now, got, tt.says)
		}
		if got := d.NextTold(tt.now); !got.Equal(tt.next) {
			t.Errorf("NextTold(%v) = %v, want %v", tt.now, got, tt.next)
		}
	}
}
