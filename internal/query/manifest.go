package query

import (
	"bytes"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
)

// document is one document of a manifest.
type ManifestDocument struct{ Root *yaml.Node }

func ReadManifest(content []byte) ([]ManifestDocument, error) {
	var out []ManifestDocument
	dec := yaml.NewDecoder(bytes.NewReader(content))
	for {
		var n yaml.Node
		err := dec.Decode(&n)
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, fault.New(fault.Invalid, ReasonManifest, fmt.Errorf("reading the manifest: %w", err))
		}
		if n.Kind == yaml.DocumentNode && len(n.Content) == 1 {
			out = append(out, ManifestDocument{n.Content[0]})
		}
	}
}

func (d ManifestDocument) Line() int { return d.Root.Line }

func (d ManifestDocument) yaml() ([]byte, error) { return yaml.Marshal(d.Root) }

func (d ManifestDocument) Text(path ...string) string {
	n := d.Root
	for _, p := range path {
		if _, n = Entry(n, p); n == nil {
			return ""
		}
	}
	return n.Value
}

// Dialect is the dialect of the stack that the document describes; nil if it
// describes none.
func (d ManifestDocument) Dialect(kinds Kinds) dialect.Dialect {
	return dialectOf(kinds, d.Text("apiVersion"), d.Text("kind"))
}

// dialectOf is the dialect of a kind in any version of its group.
func dialectOf(kinds Kinds, apiVersion, kind string) dialect.Dialect {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil
	}
	return kinds.Of(gv.WithKind(kind).GroupKind().String())
}

// entry finds a key of a mapping.
func Entry(n *yaml.Node, key string) (k, v *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}
