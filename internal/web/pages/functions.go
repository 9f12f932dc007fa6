package pages

import (
	"fmt"
	"html/template"
	"net/url"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// functions are what templates may call besides what html/template has.
func (r *Renderer) functions() template.FuncMap {
	return template.FuncMap{
		"age":   age,
		"stamp": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"path":  pathOf,
		"count": query.Count,
		"join":  strings.Join,

		// What parts are called with.
		"pill":     pillOf,
		"status":   statusPill,
		"outcome":  outcomePill,
		"moment":   func(now, at time.Time) Moment { return Moment{now, at} },
		"problem":  func(title, text string) Problem { return Problem{Title: title, Error: text} },
		"cut":      cut,
		"revision": revision,
		"took":     took,
		"span":     span,
		"branch":   func(now time.Time, objects []*objectView) branch { return branch{now, objects} },

		"called":    func(name string) string { return strings.TrimPrefix(name, "system:serviceaccount:") },
		"thousands": thousands,
		"bytes":     func(n int64) string { return query.Size(int(n)) },
		"last":      func(from, n int) int { return from + n - 1 },
		"says": func(now time.Time, s said) struct {
			Now  time.Time
			Said said
		} {
			return struct {
				Now  time.Time
				Said said
			}{now, s}
		},
		"mode": func(m stack.Mode) string { return modes[m] },
		"head": func(now time.Time, h stackHead) struct {
			Now  time.Time
			Head stackHead
		} {
			return struct {
				Now  time.Time
				Head stackHead
			}{now, h}
		},
	}
}

// pathOf builds a path of ours, each part escaped.
func pathOf(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("/" + url.PathEscape(p))
	}
	return b.String()
}

// age is how long ago t was, in the largest unit that says enough.
func age(now, t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	d := now.Sub(t)
	switch {
	case d < 0:
		return "in " + span(-d)
	case d < time.Second:
		return "now"
	default:
		return span(d) + " ago"
	}
}

// span is a duration in one unit, and never none.
func span(d time.Duration) string {
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

// took is how long something took, as people say it.
func took(d time.Duration) string {
	switch {
	case d <= 0:
		return "0s"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return whole(d.Round(time.Second))
	default:
		return whole(d.Round(time.Minute))
	}
}

// whole is a duration without the zeros at its end: 1m, not 1m0s.
func whole(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// thousands is a number in groups of three.
func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
