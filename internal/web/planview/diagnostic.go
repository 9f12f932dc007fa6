package planview

import (
	"strconv"
	"strings"

	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// Diagnostic is an error or a warning of the engine; the part "diagnostics"
// shows a list of them.
type Diagnostic struct {
	Pill    ui.Pill
	Summary string
	Detail  string
	Address string
	Where   string // file:line
	Snippet []SnippetLine
}

// SnippetLine is one line of the module.
type SnippetLine struct {
	Number int
	Text   string
}

// DiagnosticsOf makes diagnostics of those that the engine wrote.
func DiagnosticsOf(list []plan.Diagnostic) []Diagnostic {
	var out []Diagnostic
	for _, d := range list {
		x := Diagnostic{Pill: ui.NewPill(ui.ToneBad, "cross", "Error"), Summary: ui.Visible(d.Summary), Detail: trimmed(d.Detail), Address: ui.Visible(d.Address), Where: ui.Visible(d.File)}
		if d.Severity == "warning" {
			x.Pill = ui.NewPill(ui.ToneWarn, "alert", "Warning")
		}
		if d.File != "" && d.Line > 0 {
			x.Where += ":" + strconv.Itoa(d.Line)
		}
		if d.Snippet != "" {
			for i, l := range strings.Split(strings.TrimRight(d.Snippet, "\n"), "\n") {
				x.Snippet = append(x.Snippet, SnippetLine{d.Line + i, ui.Visible(l)})
			}
		}
		out = append(out, x)
	}
	return out
}

// trimmed is a text of several lines without the empty ones around it.
func trimmed(s string) string {
	lines := strings.Split(strings.Trim(s, "\n"), "\n")
	for i, l := range lines {
		lines[i] = ui.Visible(l)
	}
	return strings.Join(lines, "\n")
}
