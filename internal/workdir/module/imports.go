package module

import (
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// ImportsPath is the file of the imports of a repair.
const ImportsPath = workdir.ImportsPath

// Import brings an object that exists into the state.
type Import struct{ Address, ID string }

// ImportsFile returns the configuration that imports objects. Addresses and
// identifiers come from the events of a run, which is hostile: an address must be
// one, and an identifier becomes a string and nothing else.
func ImportsFile(imports []Import) (workdir.File, error) {
	f := hclwrite.NewEmptyFile()
	for _, i := range imports {
		to, err := resource(i.Address)
		if err != nil {
			return workdir.File{}, err
		}
		block := f.Body().AppendNewBlock("import", nil).Body()
		block.SetAttributeTraversal("to", to)
		block.SetAttributeValue("id", cty.StringVal(i.ID))
	}
	return workdir.File{Path: ImportsPath, Mode: 0o644, Content: f.Bytes()}, nil
}

// resource parses the address of an instance of a managed resource.
func resource(address string) (hcl.Traversal, error) {
	refuse := func() (hcl.Traversal, error) {
		return nil, fault.New(fault.Invalid, "", fmt.Errorf("%.200q is not the address of a managed resource and cannot be imported", address))
	}
	t, diags := hclsyntax.ParseTraversalAbs([]byte(address), "", hcl.InitialPos)
	if diags.HasErrors() {
		return refuse()
	}
	for rest := t; ; {
		if len(rest) < 2 {
			return refuse()
		}
		kind, named := nameOf(rest[0]), nameOf(rest[1])
		if kind == "" || named == "" || kind == "data" {
			return refuse()
		}
		rest = rest[2:]
		if len(rest) > 0 {
			if key, ok := rest[0].(hcl.TraverseIndex); ok {
				if !key.Key.Type().Equals(cty.String) && !key.Key.Type().Equals(cty.Number) {
					return refuse()
				}
				rest = rest[1:]
			}
		}
		if kind != "module" && len(rest) == 0 {
			break
		}
		if kind != "module" {
			return refuse()
		}
	}
	return t, nil
}

func nameOf(step hcl.Traverser) string {
	switch s := step.(type) {
	case hcl.TraverseRoot:
		return s.Name
	case hcl.TraverseAttr:
		return s.Name
	default:
		return ""
	}
}
