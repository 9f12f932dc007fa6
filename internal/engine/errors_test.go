package engine

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/plan"
)

const heldText = `Error acquiring the state lock
Error message: HTTP remote state already locked: ID=8c1d3c50-0083-7539-ca3a-5daa9e165a36
Lock Info:
  ID:        8c1d3c50-0083-7539-ca3a-5daa9e165a36
  Path:      
  Operation: OperationTypeApply
  Who:       root@builder
  Version:   1.12.6
  Created:   2026-11-27 23:31:09.237341763 +0000 UTC
  Info:      nightly


OpenTofu acquires a state lock to protect the state from being written`

func TestLockHeld(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want Lock
		held bool
	}{
		"a held lock": {heldText, Lock{ID: "8c1d3c50-0083-7539-ca3a-5daa9e165a36", Who: "root@builder",
			Created: "2026-11-27 23:31:09.237341763 +0000 UTC", Info: "nightly"}, true},
		"another error":             {"Error: no such bucket", Lock{}, false},
		"the words without a lock":  {"Lock Info:\n nothing", Lock{}, false},
		"an ID that is an argument": {"Lock Info:\n  ID: -force\n", Lock{ID: "-force"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, held := LockHeld(tt.text)
			if held != tt.held {
				t.Errorf("LockHeld() = %v, want %v", held, tt.held)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("LockHeld() differs (-want +got):\n%s", d)
			}
		})
	}
}

func TestLeftForgotten(t *testing.T) {
	left := plan.Diagnostic{Severity: "error", Summary: "Destroy was successful but left behind forgotten instances"}
	warning, failure := plan.Diagnostic{Severity: "warning", Summary: "Deprecated"}, plan.Diagnostic{Severity: "error", Summary: "Access denied"}
	for name, tt := range map[string]struct {
		diags []plan.Diagnostic
		want  bool
	}{
		"nothing":              {nil, false},
		"a warning":            {[]plan.Diagnostic{warning}, false},
		"it alone":             {[]plan.Diagnostic{left}, true},
		"it and a warning":     {[]plan.Diagnostic{warning, left}, true},
		"it and a failure":     {[]plan.Diagnostic{left, failure}, false},
		"a failure without it": {[]plan.Diagnostic{failure}, false},
	} {
		if got := LeftForgotten(tt.diags); got != tt.want {
			t.Errorf("%s: LeftForgotten() = %v, want %v", name, got, tt.want)
		}
	}
}

func TestSuppressesForgetErrors(t *testing.T) {
	for engine, want := range map[[2]string]bool{
		{"tofu", "1.12.0"}: true, {"tofu", "1.13.0-beta1"}: true, {"tofu", "1.11.10"}: false, {"tofu", "dev"}: false, {"terraform", "1.15.0"}: false,
	} {
		if got := SuppressesForgetErrors(engine[0], engine[1]); got != want {
			t.Errorf("SuppressesForgetErrors(%s %s) = %v, want %v", engine[0], engine[1], got, want)
		}
	}
}

func TestStalePlan(t *testing.T) {
	for name, tt := range map[string]struct {
		diag plan.Diagnostic
		want bool
	}{
		"an older serial":   {plan.Diagnostic{Severity: "error", Summary: "Saved plan is stale"}, true},
		"another lineage":   {plan.Diagnostic{Severity: "error", Summary: "Saved plan does not match the given state"}, true},
		"only a warning":    {plan.Diagnostic{Severity: "warning", Summary: "Saved plan is stale"}, false},
		"any other failure": {plan.Diagnostic{Severity: "error", Summary: "Saved plan contains no execution graph"}, false},
	} {
		if got := StalePlan([]plan.Diagnostic{tt.diag}); got != tt.want {
			t.Errorf("%s: StalePlan() = %v, want %v", name, got, tt.want)
		}
	}
}

func TestUnset(t *testing.T) {
	for name, tt := range map[string]struct {
		diag plan.Diagnostic
		want string
	}{
		"a plan without it": {plan.Diagnostic{Summary: "No value for required variable",
			Detail: "The root module input variable \"zone\" is not set, and has no default value. Use a -var or -var-file command line argument to provide a value for this variable."}, "zone"},
		"an init that asks":      {plan.Diagnostic{Summary: "Failed to request input from user for variable var.zone"}, "zone"},
		"an ephemeral one":       {plan.Diagnostic{Summary: "No value for required variable", Detail: "Variable \"zone\" is configured as ephemeral."}, ""},
		"the words in a message": {plan.Diagnostic{Summary: "Invalid value", Detail: "The root module input variable \"zone\" is not set"}, ""},
	} {
		if got := Unset(tt.diag); got != tt.want {
			t.Errorf("%s: Unset() = %q, want %q", name, got, tt.want)
		}
	}
}
