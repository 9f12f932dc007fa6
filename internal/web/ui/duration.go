package ui

import (
	"fmt"
	"strings"
	"time"
)

// Age is how long ago t was, in the largest unit that says enough.
func Age(now, t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	d := now.Sub(t)
	switch {
	case d < 0:
		return "in " + Span(-d)
	case d < time.Second:
		return "now"
	default:
		return Span(d) + " ago"
	}
}

// Span is a duration in one unit, and never none.
func Span(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= 2*day:
		return fmt.Sprintf("%dd", d/day)
	case d >= 2*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d >= 2*time.Minute:
		return fmt.Sprintf("%dm", d/time.Minute)
	default:
		return fmt.Sprintf("%ds", max(1, d/time.Second))
	}
}

// Took is how long something took, as people say it.
func Took(d time.Duration) string {
	switch {
	case d <= 0:
		return "0s"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return Whole(d.Round(time.Second))
	default:
		return Whole(d.Round(time.Minute))
	}
}

// Whole is a duration without the zeros at its end: 1m, not 1m0s.
func Whole(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
