package service

// InputInfo is one thing that goes into the runs of a stack.
type InputInfo struct {
	Name      string    `json:"name"` // of the variable, or of whatever Kind says
	Kind      InputKind `json:"kind"`
	Origin    string    `json:"origin"` // spec.vars, or Secret NAME key KEY
	Sensitive bool      `json:"sensitive,omitempty"`
	Missing   bool      `json:"missing,omitempty"`  // its origin does not exist, or does not have it
	Optional  bool      `json:"optional,omitempty"` // and that is no failure
}

// InputKind is what an input becomes.
type InputKind string

// The kinds of input.
const (
	InputVariable    InputKind = "variable"
	InputEnvironment InputKind = "environment"
	InputFile        InputKind = "file"
)
