package policy

import (
	"testing"
	"time"
)

func TestGlob(t *testing.T) {
	for _, tt := range []struct {
		pattern, s string
		want       bool
	}{
		{"aws_db_instance", "aws_db_instance", true},
		{"aws_db_instance", "aws_db_instance_role", false},
		{"aws_db_*", "aws_db_instance", true},
		{"*", "anything at all", true},
		{`module.*.aws_s3_bucket.b["a?"]`, `module.x["y"].aws_s3_bucket.b["a?"]`, true},
		{`module.*.aws_s3_bucket.b["a?"]`, `module.x.aws_s3_bucket.b["ab"]`, false},
		{"a*a", "a", false},
		{"a*b*c", "a-b-b-c", true},
		{"a*b*c", "a-c", false},
	} {
		if got := Glob(tt.pattern, tt.s); got != tt.want {
			t.Errorf("Glob(%q, %q) = %v, want %v", tt.pattern, tt.s, got, tt.want)
		}
	}
}

func TestCoversAttribute(t *testing.T) {
	p := Protected{Attributes: []string{"engine_version", "versioning.enabled", "tags.*"}}
	for path, want := range map[string]bool{
		"engine_version": true, "engine": false, "versioning[0].enabled": true, "versioning[0].mfa": false,
		"versioning": true, // all of it changes
		`tags["a"]`:  true, "tags.owner": true, "engine_version.minor": true,
	} {
		if got := p.CoversAttribute(path); got != want {
			t.Errorf("CoversAttribute(%q) = %v, want %v", path, got, want)
		}
	}
}

func TestWithhold(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip("no time zones on this machine:", err)
	}
	office := Windows{"ClusterPolicy/office", []Window{{
		Days: []time.Weekday{time.Monday, time.Tuesday, time.Wednesday, time.Thursday, time.Friday}, From: 8 * time.Hour, To: 18*time.Hour + 30*time.Minute, Location: berlin,
	}}, nil}
	night := Windows{"ClusterPolicy/night", []Window{{From: 22 * time.Hour, To: 24 * time.Hour}, {To: 6 * time.Hour}}, nil}
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	xmas := Freeze{"ClusterPolicy/xmas", at("2026-12-23T00:00:00Z"), at("2027-01-04T00:00:00Z"), "holidays.", nil}
	for name, tt := range map[string]struct {
		times       Times
		now, source string
		rule, until string
	}{
		"no times":                      {Times{}, "2026-11-30T12:00:00Z", "", "", ""},
		"in the window":                 {Times{Windows: []Windows{office}}, "2026-11-30T07:00:00Z", "", "", ""},
		"before it":                     {Times{Windows: []Windows{office}}, "2026-11-30T06:59:59Z", "", WindowsGuard, "2026-11-30T07:00:00Z"},
		"its end is outside":            {Times{Windows: []Windows{office}}, "2026-11-30T17:30:00Z", "", WindowsGuard, "2026-12-01T07:00:00Z"},
		"over the weekend":              {Times{Windows: []Windows{office}}, "2026-11-27T20:00:00Z", "", WindowsGuard, "2026-11-30T07:00:00Z"},
		"summer time begins":            {Times{Windows: []Windows{office}}, "2027-03-27T12:00:00Z", "", WindowsGuard, "2027-03-29T06:00:00Z"},
		"over midnight, in two windows": {Times{Windows: []Windows{night}}, "2026-11-30T23:59:59Z", "", "", ""},
		"after that night":              {Times{Windows: []Windows{night}}, "2026-12-01T06:00:00Z", "", WindowsGuard, "2026-12-01T22:00:00Z"},
		"two policies that never meet": {Times{Windows: []Windows{office, {"ClusterPolicy/sunday", []Window{{Days: []time.Weekday{time.Sunday}, To: 24 * time.Hour}}, nil}}},
			"2026-11-30T07:00:00Z", "", WindowsGuard, ""},
		"a freeze, and then the window": {Times{Windows: []Windows{office}, Freezes: []Freeze{xmas}}, "2026-12-24T10:00:00Z", "", FreezesGuard, "2027-01-04T07:00:00Z"},
		"after the freeze":              {Times{Freezes: []Freeze{xmas}}, "2027-01-04T00:00:00Z", "", "", ""},
		"a young source":                {Times{SourceAge: []Age{{"p", 24 * time.Hour}}}, "2026-11-30T12:00:00Z", "2026-11-30T11:00:00Z", MinSourceAge, "2026-12-01T11:00:00Z"},
		"an old source":                 {Times{SourceAge: []Age{{"p", time.Hour}}}, "2026-11-30T12:00:00Z", "2026-11-30T11:00:00Z", "", ""},
		"a source without a time":       {Times{SourceAge: []Age{{"p", time.Hour}}}, "2026-11-30T12:00:00Z", "", "", ""},
	} {
		var source, until time.Time
		if tt.source != "" {
			source = at(tt.source)
		}
		if tt.until != "" {
			until = at(tt.until)
		}
		got := tt.times.Withhold(at(tt.now), source)
		if got.Rule != tt.rule || !got.Until.Equal(until) || got.None() != (tt.rule == "") {
			t.Errorf("%s: Withhold() = %+v, want %q until %s", name, got, tt.rule, tt.until)
		}
	}
	if got, want := office.String(), "Mon–Fri 08:00–18:30 Europe/Berlin"; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
	if got, want := night.String(), "every day 22:00–24:00 UTC, every day 00:00–06:00 UTC"; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
	ages := Times{PlanAge: []Age{{"p", 24 * time.Hour}}}
	if a := ages.Outdates(at("2026-11-30T12:00:00Z"), at("2026-11-29T11:00:00Z")); a == nil || a.Policy != "p" {
		t.Errorf("Outdates() = %v, want the policy", a)
	}
	if a := ages.Outdates(at("2026-11-30T12:00:00Z"), at("2026-11-30T11:00:00Z")); a != nil {
		t.Errorf("Outdates() = %v, want none", a)
	}
}

// Two policies whose windows alternate are never both open, and a stack is reconciled often: the
// next time is not looked for in all minutes of a year.
func TestWindowsThatAlternate(t *testing.T) {
	var even, odd Windows
	for minute := range 24 * 60 {
		w := Window{From: time.Duration(minute) * time.Minute, To: time.Duration(minute+1) * time.Minute}
		if minute%2 == 0 {
			even.Any = append(even.Any, w)
		} else {
			odd.Any = append(odd.Any, w)
		}
	}
	now := time.Date(2026, 11, 30, 12, 0, 30, 0, time.UTC)
	got := Times{Windows: []Windows{even, odd}}.Withhold(now, time.Time{})
	if got.Rule != WindowsGuard || !got.Until.After(now) {
		t.Errorf("Withhold() = %+v, want a time at which to ask again", got)
	}
	even.Any = append(even.Any, Window{Days: []time.Weekday{time.Monday}, From: 12*time.Hour + 3*time.Minute, To: 12*time.Hour + 4*time.Minute})
	got = Times{Windows: []Windows{even, odd}}.Withhold(now, time.Time{})
	if want := now.Add(150 * time.Second); !got.Until.Equal(want) {
		t.Errorf("Withhold() = %+v, want %s, when both are open", got, want)
	}
}
