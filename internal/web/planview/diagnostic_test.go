package planview

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

func TestDiagnostics(t *testing.T) {
	got := DiagnosticsOf([]plan.Diagnostic{{Severity: "error", Summary: "no\u202e", Detail: "\n\none\n two\x1b[1m\n", File: "main.tf", Line: 3, Snippet: "a\nb\n"}, {Severity: "warning", File: "x.tf"}})
	want := []Diagnostic{
		{Pill: ui.NewPill(ui.ToneBad, "cross", "Error"), Summary: `no\u202e`, Detail: "one\n two\\x1b[1m", Where: "main.tf:3", Snippet: []SnippetLine{{3, "a"}, {4, "b"}}},
		{Pill: ui.NewPill(ui.ToneWarn, "alert", "Warning"), Where: "x.tf"},
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("diagnosticsOf():\n%s", diff)
	}
}
