// Package workdir computes the files and the environment that turn a module
// tree into the directory a run executes in: variables, CLI configuration,
// inline configuration. Files are values here; nothing is written.
//
// What a user supplies reaches the engine as data only: as typed JSON, which
// the engine never evaluates, or as environment variables whose names are
// checked. Start reading at Inputs. What has to look into the configuration
// itself (backends, overrides, declared variables) is in package module, so
// that the supervisor, which only places files, links no parser.
package workdir

// File is one file of a workdir.
type File struct {
	Path    string // relative to the root module, with slashes
	Mode    uint32 // permission bits
	Content []byte
}

// The names of generated files.
const (
	VariablesPath = "generated.auto.tfvars.json"
	InlinePath    = "main.tf"
	CLIConfigPath = ".terrier.tfrc" // hidden, so no engine takes it for configuration
	TemplatePath  = "main.tf.tpl"   // of a module, rendered to InlinePath

	BackendOverridePath = "backend_override.tf" // see module.BackendPath
	ImportsPath         = "terrier_repair.tf"   // see module.ImportsPath
)

// Variable is a variable that the root module declares.
type Variable struct {
	Name      string
	Type      string // as text: list(string); empty if none is declared
	Complex   bool   // the type is a list, set, map, object or tuple
	Default   bool   // it has one
	Sensitive bool
	File      string
	Line      int
}

// Inline returns the file that holds a module given as text.
func Inline(hcl string) File {
	return File{Path: InlinePath, Mode: 0o644, Content: []byte(hcl)}
}
