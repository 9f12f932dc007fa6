package runner

import (
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/sandbox"
)

// A message tells every error of the engine, shortened so that each has room, and
// keeps the end of each, where the reason is.
func TestMessageTellsEveryError(t *testing.T) {
	bad := func(summary, detail string) plan.Diagnostic {
		return plan.Diagnostic{Severity: "error", Summary: summary, Detail: detail}
	}
	long := strings.Repeat("what was sent, ", 500) + "and the quota is exceeded"
	for name, tt := range map[string]struct {
		diagnostics []plan.Diagnostic
		want        []string
		not         string
	}{
		"one":            {[]plan.Diagnostic{{Severity: "warning", Summary: "old"}, bad("first", "why")}, []string{"first: why"}, "errors"},
		"two":            {[]plan.Diagnostic{bad("first", "why"), bad("second", "")}, []string{"2 errors.", "(1) first: why", "(2) second"}, "more"},
		"the same twice": {[]plan.Diagnostic{bad("first", "why"), bad("first", "why")}, []string{"first: why"}, "errors"},
		"long ones":      {[]plan.Diagnostic{bad("a", long), bad("b", long), bad("c", "short")}, []string{"(1) a: what", "(2) b: what", "exceeded (3) c: short"}, "more"},
		"many":           {[]plan.Diagnostic{bad("a", ""), bad("b", ""), bad("c", ""), bad("d", ""), bad("e", ""), bad("f", ""), bad("g", "")}, []string{"7 errors.", "(5) e", "(2 more are in the log.)"}, "(6)"},
	} {
		got := stepOutput{diagnostics: tt.diagnostics}.message("plan", sandbox.Exit{})
		for _, want := range tt.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q holds no %q", name, got, want)
			}
		}
		if strings.Contains(got, tt.not) || len(got) > maxText {
			t.Errorf("%s: %d bytes, %q; want no %q", name, len(got), got, tt.not)
		}
	}
}
