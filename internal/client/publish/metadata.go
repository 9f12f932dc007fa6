package publish

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// The files that say which module is in a directory. If both are there, the first counts.
// The second one is what boring-registry reads.
const (
	ownMetadata    = ".terrier-module.hcl"
	boringMetadata = "boring-registry.hcl"
)

// metadata is the block of a metadata file:
//
//	metadata {
//	  namespace = "example"
//	  name      = "network"
//	  system    = "aws" # or provider
//	  version   = "1.2.3"
//	}
type metadata struct {
	Namespace, Name, System, Version string
}

// metadataBytes bounds a metadata file.
const metadataBytes = 64 << 10

// metadataFile is the path of the metadata file of a directory, if it has one.
func metadataFile(dir string) (string, bool, error) {
	for _, name := range []string{ownMetadata, boringMetadata} {
		file := filepath.Join(dir, name)
		switch info, err := os.Stat(file); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return "", false, err
		case info.Mode().IsRegular():
			return file, true, nil
		}
	}
	return "", false, nil
}

// readMetadata reads the metadata file of a directory, if there is one.
func readMetadata(dir string) (metadata, error) {
	file, ok, err := metadataFile(dir)
	if err != nil || !ok {
		return metadata{}, err
	}
	text, err := readUpTo(file, metadataBytes)
	if err != nil {
		return metadata{}, err
	}
	if len(text) > metadataBytes {
		return metadata{}, invalid(ReasonModule, "%s is larger than %d bytes", file, metadataBytes)
	}
	m, diags := parseMetadata(text, filepath.Base(file))
	if diags.HasErrors() {
		return metadata{}, invalid(ReasonModule, "%s", diags.Errs()[0])
	}
	return m, nil
}

func parseMetadata(text []byte, name string) (m metadata, diags hcl.Diagnostics) {
	file, diags := hclsyntax.ParseConfig(text, name, hcl.InitialPos)
	if diags.HasErrors() {
		return m, diags
	}
	content, diags := file.Body.Content(&hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{{Type: "metadata"}}})
	if diags.HasErrors() {
		return m, diags
	}
	if n := len(content.Blocks); n != 1 {
		at := file.Body.MissingItemRange()
		return m, hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "One block metadata is needed", Detail: fmt.Sprintf("The file has %d of them.", n), Subject: &at}}
	}
	var system, provider string
	to := map[string]*string{"namespace": &m.Namespace, "name": &m.Name, "system": &system, "provider": &provider, "version": &m.Version}
	var schema hcl.BodySchema
	for name := range to {
		schema.Attributes = append(schema.Attributes, hcl.AttributeSchema{Name: name})
	}
	block, diags := content.Blocks[0].Body.Content(&schema)
	if diags.HasErrors() {
		return m, diags
	}
	for name, attribute := range block.Attributes {
		value, wrong := attribute.Expr.Value(nil)
		if wrong.HasErrors() {
			return m, wrong
		}
		if value.IsNull() || !value.Type().Equals(cty.String) {
			return m, hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "A text is needed", Detail: fmt.Sprintf("Write %s = \"…\".", name), Subject: attribute.Expr.Range().Ptr()}}
		}
		*to[name] = value.AsString()
	}
	if system != "" && provider != "" && system != provider {
		return m, hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "Two systems", Detail: "The attributes system and provider mean the same: remove one of them.", Subject: content.Blocks[0].DefRange.Ptr()}}
	}
	if m.System = system; system == "" {
		m.System = provider
	}
	return m, nil
}
