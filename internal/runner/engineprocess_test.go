package runner

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/stack"
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
		got := stepOutput{diagnostics: tt.diagnostics}.message("plan", sandbox.Exit{}, stack.Words{Variables: "spec.vars, spec.varsFrom or spec.tfVarsFiles"})
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

// An engine without an option for it ends a destroy that forgets resources in an error.
// The run goes on as after a success; any other error beside it is a failure.
func TestDestroyThatForgotIsToldFromFailures(t *testing.T) {
	const forgot = `{"@level":"error","@message":"Error: m","type":"diagnostic","diagnostic":{"severity":"error","summary":"Destroy was successful but left behind forgotten instances"}}`
	const warned = `{"@level":"warn","@message":"Warning: m","type":"diagnostic","diagnostic":{"severity":"warning","summary":"Deprecated"}}`
	const denied = `{"@level":"error","@message":"Error: m","type":"diagnostic","diagnostic":{"severity":"error","summary":"Access denied"}}`
	for name, tt := range map[string]struct {
		lines []string
		step  string
		exit  sandbox.Exit
		well  bool
	}{
		"it alone":         {[]string{forgot}, "apply", sandbox.Exit{Code: 1}, true},
		"beside a failure": {[]string{denied, forgot}, "apply", sandbox.Exit{Code: 1}, false},
		"of another step":  {[]string{forgot}, "plan", sandbox.Exit{Code: 1}, false},
		"killed":           {[]string{forgot}, "apply", sandbox.Exit{Signal: 9}, false},
		"beside warnings":  {append(slices.Repeat([]string{warned}, 2*maxDiagnostics), forgot), "apply", sandbox.Exit{Code: 1}, true},
		"after warnings":   {append(slices.Repeat([]string{warned}, 2*maxDiagnostics), forgot, denied), "apply", sandbox.Exit{Code: 1}, false},
		"before too many":  {append(slices.Repeat([]string{forgot}, maxDiagnostics), denied), "apply", sandbox.Exit{Code: 1}, false},
	} {
		rec, _, _ := record(t, 0)
		for _, line := range tt.lines {
			rec.event([]byte(line))
		}
		r := &engineProcesses{&run{recorder: rec, reportFile: &reportFile{dir: t.TempDir(), now: time.Now}}}
		_, err := r.judge(command{step: tt.step}, stop{}, tt.exit)
		if (err == nil) != tt.well {
			t.Errorf("%s: judge() = %v, want success: %v", name, err, tt.well)
		}
		isError := func(d plan.Diagnostic) bool { return d.Severity == "error" }
		if left := r.reportFile.content().Diagnostics; tt.well && slices.ContainsFunc(left, isError) {
			t.Errorf("%s: the report of a success has errors: %+v", name, left)
		}
	}
}

// An error is permanent only if every one is: one that the report has no room for may
// not be.
func TestErrorsThatWereCutAreNotPermanent(t *testing.T) {
	const invalid = `{"@level":"error","@message":"Error: m","type":"diagnostic","diagnostic":{"severity":"error","summary":"Unsupported argument","range":{"filename":"main.tf","start":{"line":1}}}}`
	for name, tt := range map[string]struct {
		lines []string
		want  bool
	}{
		"all are kept": {slices.Repeat([]string{invalid}, maxDiagnostics), true},
		"one is cut":   {slices.Repeat([]string{invalid}, maxDiagnostics+1), false},
	} {
		rec, _, _ := record(t, 0)
		for _, line := range tt.lines {
			rec.event([]byte(line))
		}
		r := &engineProcesses{&run{recorder: rec, reportFile: &reportFile{dir: t.TempDir(), now: time.Now}}}
		_, err := r.judge(command{step: "plan"}, stop{}, sandbox.Exit{Code: 1})
		if end := endingOf(err); end.permanent != tt.want {
			t.Errorf("%s: judge() = %+v, want permanent: %v", name, end, tt.want)
		}
	}
}

// A change that succeeded although the run was cancelled meanwhile is recorded: its
// outputs are read all the same.
func TestOutputsAreReadAfterACancelledChange(t *testing.T) {
	failed := errors.New("it failed")
	for name, tt := range map[string]struct{ ends, want error }{
		"a change that succeeded": {nil, nil},
		"one that did not":        {failed, failed},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		read := false
		step := withOutputs(
			func(context.Context) error { cancel(); return tt.ends },
			func(ctx context.Context) error { read = true; return ctx.Err() },
		)
		if err := step(ctx); !errors.Is(err, tt.want) || read != (tt.want == nil) {
			t.Errorf("%s: %v, outputs read: %v", name, err, read)
		}
	}
}
