package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/plan"
)

// BackendFile is where init writes down which backend it has configured,
// relative to the root module.
const BackendFile = ".terraform/terraform.tfstate"

// initialised is all of that file that newer engines write.
type initialised struct {
	Version int     `json:"version"`
	Engine  string  `json:"terraform_version,omitempty"`
	Backend *inited `json:"backend"`
}

type inited struct {
	Type   string                     `json:"type"`
	Config map[string]json.RawMessage `json:"config"`
	Hash   uint64                     `json:"hash"`
}

// BareHTTP returns a rewritten BackendFile if it is one of the http backend without
// a single setting, and an error if it is anything else. Where the state is then
// comes from the environment of the engine: a file like that can send no state
// anywhere.
func BareHTTP(data []byte) ([]byte, error) {
	var f initialised
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("reading the initialised backend: %w", err)
	}
	if d.More() || f.Version != 3 || len(f.Engine) > 64 || f.Backend == nil || f.Backend.Type != "http" || len(f.Backend.Config) == 0 || len(f.Backend.Config) > 64 {
		return nil, errors.New("the initialised backend is not http alone")
	}
	for name, value := range f.Backend.Config {
		if len(name) > 64 || !of(name, lower+"_") || string(value) != "null" {
			return nil, fmt.Errorf("the initialised backend has the setting %.64q", name)
		}
	}
	// Of what is not known here, or stands there twice, nothing is left in it.
	return json.Marshal(f)
}

// InitRequired reports whether an engine has refused to work in a directory
// because it is not initialised, or not for this configuration. Nothing has been
// done then.
func InitRequired(errs []plan.Diagnostic) bool {
	return slices.ContainsFunc(errs, func(d plan.Diagnostic) bool {
		text := d.Summary + "\n" + d.Detail
		return d.Severity == "error" && (strings.Contains(text, "tofu init") || strings.Contains(text, "terraform init"))
	})
}

// backendSummaries are how such errors begin that are about the backend. No
// condition or check of a module can make an error that begins so.
var backendSummaries = []string{"Backend initialization required", "Failed to decode current backend config"}

// BackendUnknown reports whether it was the backend for which the directory is
// not initialised.
func BackendUnknown(errs []plan.Diagnostic) bool {
	return slices.ContainsFunc(errs, func(d plan.Diagnostic) bool {
		return d.Severity == "error" && slices.ContainsFunc(backendSummaries, func(s string) bool { return strings.HasPrefix(d.Summary, s) })
	})
}
