// Package module looks into the configuration of a root module: what it
// declares, and what it says about where state is kept, so that only the
// stack's own backend counts. It reads a tree that is passed in and decides
// what to write or leave out; it writes nothing, runs nothing, and follows no
// module calls.
//
// Start reading at Inspect, then Guard.
package module

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	hcljson "github.com/hashicorp/hcl/v2/json"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// Limits of what is read of one root module.
const (
	maxFile  = 4 << 20
	maxTotal = 32 << 20
	maxFiles = 2000
)

// Root is what a root module says of itself, in the files that one engine
// reads.
type Root struct {
	Files           []string // configuration files, relative to the root module
	Variables       map[string]workdir.Variable
	RequiredVersion []string
	Providers       map[string]Provider // by local name
	Backends        []Block             // backend and cloud blocks
	Encryption      bool                // there is an encryption block
	VariableFiles   []string            // that the engine loads by itself: terraform.tfvars, *.auto.tfvars
	DataDir         bool                // a .terraform directory was committed
	LocalState      []string            // state files that were committed

	overrides []overrideFile
}

// Provider is an entry of required_providers.
type Provider struct {
	Source  string // as written, hashicorp/random; empty if it is not
	Version string
}

// Block is a backend or cloud block.
type Block struct {
	Kind     string // backend or cloud
	Type     string // of a backend: s3
	File     string
	Line     int
	Override bool // it is in an override file
}

// overrideFile is a file whose content replaces that of other files.
type overrideFile struct {
	name    string
	backend *Block // its backend or cloud block, nil if it has none
	only    bool   // it holds nothing else
}

// Inspect reads the root module in a directory of a tree, as engine (tofu or
// terraform) would: tofu prefers x.tofu over x.tf, terraform does not see
// the former. A configuration that cannot be parsed is Invalid, and the message
// says where.
func Inspect(tree fs.FS, root, engine string) (Root, error) {
	dir, err := sub(tree, root)
	if err != nil {
		return Root{}, err
	}
	entries, err := fs.ReadDir(dir, ".")
	if err != nil {
		return Root{}, invalid(fmt.Errorf("reading the root module: %w", err))
	}
	r := Root{Variables: map[string]workdir.Variable{}, Providers: map[string]Provider{}}
	r.notice(entries)
	// Override files come last, so that what they say replaces what was there.
	primary, override := workdir.ConfigFiles(names(entries), engine)
	if len(primary)+len(override) > maxFiles {
		return Root{}, invalid(fmt.Errorf("the root module has more than %d configuration files", maxFiles))
	}
	left := int64(maxTotal)
	for _, name := range slices.Concat(primary, override) {
		src, err := readFile(dir, name, min(left, maxFile))
		if err != nil {
			return Root{}, err
		}
		left -= int64(len(src))
		if err := r.read(name, src, slices.Contains(override, name)); err != nil {
			return Root{}, err
		}
	}
	r.Files = slices.Sorted(slices.Values(slices.Concat(primary, override)))
	return r, nil
}

func sub(tree fs.FS, root string) (fs.FS, error) {
	clean := path.Clean(strings.TrimPrefix(strings.ReplaceAll(root, `\`, "/"), "/"))
	if root == "" {
		clean = "."
	}
	if !fs.ValidPath(clean) {
		return nil, invalid(fmt.Errorf("the path %q leads out of the source", root))
	}
	info, err := fs.Stat(tree, clean)
	if err != nil || !info.IsDir() {
		return nil, invalid(fmt.Errorf("the path %q is not a directory of the source", root))
	}
	return fs.Sub(tree, clean)
}

// notice looks for what matters by its name alone.
func (r *Root) notice(entries []fs.DirEntry) {
	for _, e := range entries {
		name := e.Name()
		switch {
		case name == ".terraform":
			r.DataDir = true
		case name == "terraform.tfstate", name == "terraform.tfstate.backup", name == "terraform.tfstate.d":
			r.LocalState = append(r.LocalState, name)
		case name == "terraform.tfvars", name == "terraform.tfvars.json",
			strings.HasSuffix(name, ".auto.tfvars"), strings.HasSuffix(name, ".auto.tfvars.json"):
			r.VariableFiles = append(r.VariableFiles, name)
		}
	}
}

func readFile(dir fs.FS, name string, limit int64) ([]byte, error) {
	f, err := dir.Open(name)
	if err != nil {
		return nil, invalid(fmt.Errorf("reading %s: %w", name, err))
	}
	defer f.Close()
	src, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, invalid(fmt.Errorf("reading %s: %w", name, err))
	}
	if int64(len(src)) > limit {
		return nil, invalid(fmt.Errorf("reading %s: the configuration is too large", name))
	}
	return src, nil
}

// parse reads one file in the syntax that its name says.
func parse(name string, src []byte) (hcl.Body, error) {
	if err := checkDepth(name, src); err != nil {
		return nil, err
	}
	var f *hcl.File
	var diags hcl.Diagnostics
	if strings.HasSuffix(name, ".json") {
		f, diags = hcljson.Parse(src, name)
	} else {
		f, diags = hclsyntax.ParseConfig(src, name, hcl.InitialPos)
	}
	if diags.HasErrors() {
		return nil, diagnosed(diags)
	}
	return f.Body, nil
}

// diagnosed converts the first error of HCL: main.tf:3: Missing
// newline after argument: An argument definition must end with a newline.
func diagnosed(diags hcl.Diagnostics) error {
	for _, d := range diags {
		if d.Severity != hcl.DiagError {
			continue
		}
		text := d.Summary
		if d.Detail != "" {
			text += ": " + d.Detail
		}
		if d.Subject != nil {
			text = fmt.Sprintf("%s:%d: %s", d.Subject.Filename, d.Subject.Start.Line, text)
		}
		return invalid(errors.New(text))
	}
	return nil
}

func invalid(err error) error { return fault.New(fault.Invalid, "ConfigurationInvalid", err) }
