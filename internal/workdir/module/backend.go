package module

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"

	"github.com/terrier-iac/terrier/internal/backend"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// BackendPath is the file that configures the backend. Its name is upstream's. As an
// override file it replaces every backend or cloud block in the ordinary files of a
// module.
const BackendPath = workdir.BackendOverridePath

// Backend says where the state of a stack is kept.
//
//sumtype:decl
type Backend interface{ backend() }

// Managed state is served to the engine by its supervisor.
type Managed struct{}

// Kubernetes is the engine's own backend of that name.
type Kubernetes struct {
	SecretSuffix    string
	InClusterConfig bool
	ConfigPath      *string // nil leaves the attribute out
	Namespace       string
	Labels          map[string]string
}

// Local is a file in the workdir.
type Local struct{}

// Custom is HCL as the user wrote it for the inside of a terraform block.
type Custom struct{ HCL string }

// Cloud is a cloud block. Its token goes into the configuration of the command line,
// see CLI, which is never printed.
type Cloud struct {
	Organization string
	Workspace    string   // the name of one
	Tags         []string // or tags that select several
	Hostname     string
}

// Plugin is a backend that the supervisor of a run asks a plug-in for.
type Plugin struct{}

// CloudHost is the host of a cloud that names none.
const CloudHost = "app.terraform.io"

// Unset leaves the choice to the module itself.
type Unset struct{}

func (Managed) backend()    {}
func (Kubernetes) backend() {}
func (Local) backend()      {}
func (Custom) backend()     {}
func (Cloud) backend()      {}
func (Plugin) backend()     {}
func (Unset) backend()      {}

// BackendFile returns the file for a backend. For Unset it has no path and is
// not to be written.
func BackendFile(b Backend) (workdir.File, error) {
	f := hclwrite.NewEmptyFile()
	inside := f.Body().AppendNewBlock("terraform", nil).Body()
	switch b := b.(type) {
	case Managed:
		inside.AppendNewBlock("backend", []string{"http"})
	case Local:
		inside.AppendNewBlock("backend", []string{"local"})
	case Kubernetes:
		for key := range b.Labels {
			if strings.Contains(key, "\ufeff") {
				// HCL's writer takes such a key for a name, and its parser does not.
				return workdir.File{}, fault.New(fault.Invalid, "", fmt.Errorf("spec.backendConfig.labels: the key %q holds a byte order mark; remove it", key))
			}
		}
		b.write(inside.AppendNewBlock("backend", []string{"kubernetes"}).Body())
	case Cloud:
		b.write(inside.AppendNewBlock("cloud", nil).Body())
	case Custom:
		content, err := b.content()
		return workdir.File{Path: BackendPath, Mode: 0o600, Content: content}, err
	case Plugin:
		return backend.Placeholder(), nil
	case Unset:
		return workdir.File{}, nil
	default:
		return workdir.File{}, fmt.Errorf("unknown backend %T", b)
	}
	return workdir.File{Path: BackendPath, Mode: 0o644, Content: f.Bytes()}, nil
}

func (k Kubernetes) write(body *hclwrite.Body) {
	body.SetAttributeValue("secret_suffix", cty.StringVal(k.SecretSuffix))
	body.SetAttributeValue("in_cluster_config", cty.BoolVal(k.InClusterConfig))
	if k.ConfigPath != nil {
		body.SetAttributeValue("config_path", cty.StringVal(*k.ConfigPath))
	}
	body.SetAttributeValue("namespace", cty.StringVal(k.Namespace))
	if len(k.Labels) > 0 {
		labels := map[string]cty.Value{}
		for key, value := range k.Labels {
			labels[key] = cty.StringVal(value)
		}
		body.SetAttributeValue("labels", cty.MapVal(labels))
	}
}

func (c Cloud) write(body *hclwrite.Body) {
	body.SetAttributeValue("organization", cty.StringVal(c.Organization))
	if c.Hostname != "" {
		body.SetAttributeValue("hostname", cty.StringVal(c.Hostname))
	}
	workspaces := body.AppendNewBlock("workspaces", nil).Body()
	if c.Workspace != "" {
		workspaces.SetAttributeValue("name", cty.StringVal(c.Workspace))
		return
	}
	tags := []cty.Value{}
	for _, tag := range c.Tags {
		tags = append(tags, cty.StringVal(tag))
	}
	if len(tags) > 0 {
		workspaces.SetAttributeValue("tags", cty.ListVal(tags))
	}
}

const customField = "spec.backendConfig.customConfiguration"

// besideBackend is what a custom configuration may hold next to its one
// backend block.
var besideBackend = []string{"encryption", "required_providers"}

// content checks a custom configuration and puts it into a terraform block.
// It is parsed by itself, so that it cannot end the block around it.
func (c Custom) content() ([]byte, error) {
	if err := checkDepth(customField, []byte(c.HCL)); err != nil {
		return nil, err
	}
	f, diags := hclsyntax.ParseConfig([]byte(c.HCL), customField, hcl.InitialPos)
	if diags.HasErrors() {
		return nil, diagnosed(diags)
	}
	body, ok := f.Body.(*hclsyntax.Body)
	if !ok {
		return nil, errors.New("parsing HCL gave another kind of body")
	}
	if err := c.check(body); err != nil {
		return nil, fault.New(fault.Invalid, "BackendInvalid", fmt.Errorf("%s: %w", customField, err))
	}
	content := []byte("terraform {\n" + c.HCL + "\n}\n")
	// Belt and braces: what was written is read again and must be one block
	// with the same in it.
	whole, diags := hclsyntax.ParseConfig(content, customField, hcl.InitialPos)
	if diags.HasErrors() {
		return nil, diagnosed(diags)
	}
	outer, ok := whole.Body.(*hclsyntax.Body)
	if !ok || len(outer.Attributes) != 0 || len(outer.Blocks) != 1 || outer.Blocks[0].Type != "terraform" ||
		len(outer.Blocks[0].Body.Blocks) != len(body.Blocks) || len(outer.Blocks[0].Body.Attributes) != len(body.Attributes) {
		return nil, fault.New(fault.Invalid, "BackendInvalid", fmt.Errorf("%s: it does not stay inside a terraform block", customField))
	}
	return content, nil
}

func (c Custom) check(body *hclsyntax.Body) error {
	for _, name := range slices.Sorted(maps.Keys(body.Attributes)) {
		if name != "required_version" {
			return fmt.Errorf("line %d: the argument %q does not belong here", body.Attributes[name].SrcRange.Start.Line, name)
		}
	}
	backends := 0
	for _, b := range body.Blocks {
		switch {
		case b.Type == "backend" && len(b.Labels) == 1:
			backends++
		case b.Type == "backend":
			return fmt.Errorf("line %d: a backend block needs one name, its type", b.DefRange().Start.Line)
		case b.Type == "cloud":
			return fmt.Errorf("line %d: a cloud block goes into spec.cloud", b.DefRange().Start.Line)
		case !slices.Contains(besideBackend, b.Type):
			return fmt.Errorf("line %d: a block of type %q does not belong here", b.DefRange().Start.Line, b.Type)
		}
	}
	if backends != 1 {
		return fmt.Errorf("it holds %d backend blocks and needs exactly one", backends)
	}
	return nil
}
