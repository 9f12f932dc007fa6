// Package plan turns what an engine says about a plan (its JSON document and
// its event stream) into changes, counts, digests and text for people, with
// sensitive values masked. It runs nothing and reads no files.
package plan

// Diagnostic is an error or a warning of the engine.
type Diagnostic struct {
	Severity string `json:"severity"` // error or warning
	Summary  string `json:"summary"`
	Detail   string `json:"detail,omitempty"`
	Address  string `json:"address,omitempty"`
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
}
