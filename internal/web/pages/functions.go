package pages

import (
	"html/template"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// functions are what templates may call besides what html/template has.
func (r *Renderer) functions() template.FuncMap {
	return template.FuncMap{
		"age":   ui.Age,
		"stamp": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"path":  ui.PathOf,
		"count": query.Count,
		"join":  strings.Join,

		// What parts are called with.
		"pill":     ui.PillOf,
		"status":   statusPill,
		"outcome":  outcomePill,
		"moment":   func(now, at time.Time) ui.Moment { return ui.Moment{Now: now, At: at} },
		"problem":  func(title, text string) Problem { return Problem{Title: title, Error: text} },
		"cut":      ui.Cut,
		"revision": ui.Revision,
		"took":     ui.Took,
		"span":     ui.Span,
		"branch":   func(now time.Time, objects []*objectView) branch { return branch{now, objects} },

		"called":    func(name string) string { return strings.TrimPrefix(name, "system:serviceaccount:") },
		"thousands": ui.Thousands,
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
