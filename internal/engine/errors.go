package engine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/plan"
)

// Lock is a state lock as the engine printed it.
type Lock struct {
	ID      string `json:"id"`
	Who     string `json:"who,omitempty"`
	Created string `json:"created,omitempty"`
	Info    string `json:"info,omitempty"`
}

var lockField = lazy(`(?m)^\s*(ID|Who|Created|Info):[ \t]*(.*?)\s*$`)

// LockHeld returns the lock of another holder that stopped a command, if one of
// its errors says so. text may hold a diagnostic's summary and detail, or the
// plain text of a command that knows no JSON.
func LockHeld(text string) (Lock, bool) {
	_, info, found := strings.Cut(text, "Lock Info:")
	if !found {
		return Lock{}, false
	}
	var l Lock
	for _, m := range lockField().FindAllStringSubmatch(info, -1) {
		switch m[1] {
		case "ID":
			l.ID = m[2]
		case "Who":
			l.Who = m[2]
		case "Created":
			l.Created = m[2]
		case "Info":
			l.Info = m[2]
		}
	}
	// A text that is not an ID is a quotation of the words, not a lock.
	return l, checkLockID(l.ID) == nil
}

// staleSummaries are how engines say that a saved plan no longer fits.
var staleSummaries = []string{"Saved plan is stale", "Saved plan does not match the given state"}

// StalePlan reports whether the engine refused a saved plan because the state
// is no longer the one it was made against. Nothing has been done then.
func StalePlan(errs []plan.Diagnostic) bool {
	return slices.ContainsFunc(errs, func(d plan.Diagnostic) bool {
		return d.Severity == "error" && slices.Contains(staleSummaries, d.Summary)
	})
}

// forgottenSummary is how engines say that a destroy did its work, and that the
// configuration told them to leave some resources where they are.
const forgottenSummary = "Destroy was successful but left behind forgotten instances"

// LeftForgotten reports whether the only error of an apply is that it left resources
// where they are, as the configuration asks for. Everything has been done then.
func LeftForgotten(errs []plan.Diagnostic) bool {
	left := false
	for _, d := range errs {
		if d.Severity == "error" && d.Summary != forgottenSummary {
			return false
		}
		left = left || d.Summary == forgottenSummary
	}
	return left
}

// BackendType returns the type of the backend that an initialised directory
// uses, read from its .terraform/terraform.tfstate; "local" if none was
// configured.
func BackendType(data []byte) (string, error) {
	var f struct {
		Backend *struct {
			Type string `json:"type"`
		} `json:"backend"`
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return "", fmt.Errorf("reading the initialised backend: %w", err)
	}
	if f.Backend == nil {
		return "local", nil
	}
	return f.Backend.Type, nil
}

// Summaries of errors for which the configuration and its variables are to blame
// alone. Those of staticSummaries are about sources of modules and the like, which
// init evaluates without a provider.
var (
	staticSummaries = []string{
		"Circular reference", "Dynamic value in static context", "Ephemeral value not allowed", "Invalid attribute in static context",
		"Invalid default value for module argument", "Invalid module source address", "Invalid registry module source address",
		"Invalid value for input variable", "Module output not supported in static context", "Provider function in static context",
		"Required variable not set", "Sensitive value not allowed", "Unable to compute static value", "Unable to use variable in static context",
		"Undefined local", "Undefined variable",
	}
	writtenSummaries = []string{
		"Argument or block definition required", "Duplicate module call", "Duplicate output definition", "Duplicate variable declaration",
		"Invalid argument name", "Invalid block definition", "Invalid expression", "Invalid multi-line string", "Missing newline after argument",
		"Missing required argument", "No value for required variable", "Reference to undeclared input variable", "Reference to undeclared local value",
		"Reference to undeclared module", "Reference to undeclared resource", "Unclosed configuration block", "Unsupported argument", "Unsupported block type",
		"Unterminated template string",
	}
)

// Permanent reports whether every error is one of the stack's own configuration
// and variables, so that the same command would fail in the same way again. An
// error in a module that was downloaded is none: its source may have changed by
// then. static says that the command was init.
func Permanent(diags []plan.Diagnostic, static bool) bool {
	permanent := false
	for _, d := range diags {
		if d.Severity != "error" {
			continue
		}
		known := slices.Contains(writtenSummaries, d.Summary) || static && (slices.Contains(staticSummaries, d.Summary) || Unset(d) != "")
		if !known || d.File == "" || strings.HasPrefix(d.File, ".terraform/") {
			return false
		}
		permanent = true
	}
	return permanent
}

// Unset returns the variable of the root module that has no value, as init and plan
// each say it; empty if d says something else.
func Unset(d plan.Diagnostic) string {
	if name, ok := strings.CutPrefix(d.Summary, "Failed to request input from user for variable var."); ok {
		return name
	}
	if d.Summary != "No value for required variable" {
		return ""
	}
	if found := unsetVariable().FindStringSubmatch(d.Detail); found != nil {
		return found[1]
	}
	return ""
}

var (
	remoteState   = lazy(`(?:module\.[^ :]+\.)?data\.terraform_remote_state\.[^\s:.]+`)
	unsetVariable = lazy(`^The root module input variable "([^"]+)" is not set`)
	clusterState  = lazy(`in-cluster configuration|KUBERNETES_MASTER|kubernetes configuration|/secrets/tfstate-`)
)

// RemoteStateOfCluster returns the address of a data source that could not read a
// state in the cluster, for want of a credential of the cluster; empty if there is
// none.
func RemoteStateOfCluster(diags []plan.Diagnostic) string {
	var address string
	ofCluster := false
	for _, d := range diags {
		if d.Severity != "error" {
			continue
		}
		address = cmp.Or(address, remoteState().FindString(d.Address), remoteState().FindString(d.Summary))
		ofCluster = ofCluster || clusterState().MatchString(d.Summary+"\n"+d.Detail)
	}
	if !ofCluster {
		return ""
	}
	return address
}
