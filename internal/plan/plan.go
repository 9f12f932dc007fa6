// Package plan turns what an engine says about a plan (its JSON document and
// its event stream) into changes, counts, digests and text for people, with
// sensitive values masked. It runs nothing and reads no files, and it never
// guesses: what it does not know it hands on as it came.
//
// Start reading at ParseEvent for a running engine and at ParseDocument for a
// saved plan; Redactor is what everything passes through before it is stored.
package plan

// Diagnostic is an error or a warning of the engine.
type Diagnostic struct {
	Severity string `json:"severity"` // error or warning
	Summary  string `json:"summary"`
	Detail   string `json:"detail,omitempty"`
	Address  string `json:"address,omitempty"`
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
	Snippet  string `json:"snippet,omitempty"` // the lines of configuration it is about
}

// Action is what is done to one resource instance or output.
type Action string

// The actions. Move and Import stand for changes that consist of nothing else;
// a moved or imported instance that is also updated is an Update.
const (
	NoOp    Action = "no-op"
	Create  Action = "create"
	Read    Action = "read"
	Update  Action = "update"
	Replace Action = "replace"
	Delete  Action = "delete"
	Forget  Action = "forget"

	// ForgetCreate leaves a resource where it is, takes it out of the state, and creates
	// another one in its place: a replacement with lifecycle { destroy = false }.
	ForgetCreate Action = "forget-create"

	Move   Action = "move"
	Import Action = "import"
)

// Mask is what stands in the place of a value that must not be seen.
const Mask = "(sensitive)"
