package engine

import (
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
