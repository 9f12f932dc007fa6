package pages

import (
	"strconv"
	"strings"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// diagnostic is an error or a warning of the engine; the part "diagnostics"
// shows a list of them.
type diagnostic struct {
	Pill    ui.Pill
	Summary string
	Detail  string
	Address string
	Where   string // file:line
	Snippet []snippetLine
}

type snippetLine struct {
	Number int
	Text   string
}

func diagnosticsOf(list []plan.Diagnostic) []diagnostic {
	var out []diagnostic
	for _, d := range list {
		x := diagnostic{Pill: ui.NewPill(ui.ToneBad, "cross", "Error"), Summary: ui.Visible(d.Summary), Detail: trimmed(d.Detail), Address: ui.Visible(d.Address), Where: ui.Visible(d.File)}
		if d.Severity == "warning" {
			x.Pill = ui.NewPill(ui.ToneWarn, "alert", "Warning")
		}
		if d.File != "" && d.Line > 0 {
			x.Where += ":" + strconv.Itoa(d.Line)
		}
		if d.Snippet != "" {
			for i, l := range strings.Split(strings.TrimRight(d.Snippet, "\n"), "\n") {
				x.Snippet = append(x.Snippet, snippetLine{d.Line + i, ui.Visible(l)})
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

// warningsOf are the warnings of the run that made a plan, if it is kept and the
// visitor may view it.
func warningsOf(v *Visit, run string) []diagnostic {
	k := v.Key()
	if run == "" || !v.Can(access.Request{Verb: "get", Resource: access.ResourceLog, Namespace: k.Namespace, Name: k.Name}) {
		return nil
	}
	r, err := v.House.Stacks.Run(v.Context, k, run)
	if err != nil {
		return nil // an old run is not recorded; the page is complete without it
	}
	return diagnosticsOf(r.Diagnostics)
}
