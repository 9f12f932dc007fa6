package query

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	objectyaml "sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/workdir/module"
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

// Manifest is the object of a stack as a user would write it, without the values
// that a page must not show.
type Manifest struct {
	Object  string // YAML, without its status and its managed fields
	HCL     string // the module in spec.values.hcl; empty if there is none
	Status  string // YAML
	Managed string // YAML: which program manages which field
	Masked  int    // values that plan.Mask replaces
}

// holdsCopy reports whether an annotation holds a second copy of an object, with all
// values: kubectl, kapp and other programs keep the last manifest that they applied.
func holdsCopy(name, value string) bool {
	var object map[string]any
	return slices.ContainsFunc([]string{"last-applied-configuration", "last-applied", "/applied", "/original"}, func(end string) bool { return strings.HasSuffix(name, end) }) ||
		json.Unmarshal([]byte(value), &object) == nil && object["spec"] != nil
}

// Manifest implements StackDetails. Variables that the module declares as
// sensitive, values of environment variables, literals whose name says that they are
// secret, and the secrets in URLs are masked.
func (d *Details) Manifest(ctx context.Context, key Key) (Manifest, error) {
	o, err := d.stacks.Read(ctx, key)
	if err != nil {
		return Manifest{}, err
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o.Object)
	if err != nil {
		return Manifest{}, fmt.Errorf("reading the object of the stack %s: %w", key, err)
	}
	kind := o.Dialect.Kind()
	object["apiVersion"], object["kind"] = kind.GroupVersion().String(), kind.Kind
	var m Manifest
	in := &inputsOf{ctx: ctx, details: d, stack: key}
	m.Masked = maskObject(object, in.hides)
	m.HCL, _, _ = unstructured.NestedString(object, "spec", "values", "hcl")
	managed, _, _ := unstructured.NestedSlice(object, "metadata", "managedFields")
	status := object["status"]
	unstructured.RemoveNestedField(object, "metadata", "managedFields")
	delete(object, "status")
	for _, part := range []struct {
		of   any
		to   *string
		none bool
	}{{object, &m.Object, false}, {status, &m.Status, status == nil}, {managed, &m.Managed, len(managed) == 0}} {
		if part.none {
			continue
		}
		text, err := objectyaml.Marshal(part.of)
		if err != nil {
			return Manifest{}, fmt.Errorf("writing the object of the stack %s as YAML: %w", key, err)
		}
		*part.to = string(text)
	}
	return m, nil
}

// maskObject masks values of an object and says how many.
func maskObject(object map[string]any, sensitive func(variable string) bool) (masked int) {
	each := func(found []any, mask func(map[string]any) bool) {
		for _, item := range found {
			if m, ok := item.(map[string]any); ok && m["value"] != nil && mask(m) {
				m["value"] = plan.Mask
				masked++
			}
		}
	}
	annotations, _ := nested(object, "metadata", "annotations").(map[string]any)
	for name, value := range annotations {
		if text, _ := value.(string); holdsCopy(name, text) {
			delete(annotations, name)
		}
	}
	named := func(v any) any {
		v, n := plan.MaskNamed(v)
		masked += n
		return v
	}
	named(annotations)
	spec, _ := object["spec"].(map[string]any)
	if cloud, _ := spec["cloud"].(map[string]any); cloud["token"] != nil {
		cloud["token"] = plan.Mask
		masked++
	}
	for _, field := range []string{"values", "enterprise"} {
		named(spec[field])
	}
	vars, _ := spec["vars"].([]any)
	each(vars, func(m map[string]any) bool {
		name, _ := m["name"].(string)
		if sensitive(name) {
			return true
		}
		m["value"] = named(m["value"])
		return false
	})
	always := func(map[string]any) bool { return true }
	pod, _ := nested(spec, "runnerPodTemplate", "spec").(map[string]any)
	env, _ := pod["env"].([]any)
	each(env, always)
	for _, kind := range []string{"initContainers", "containers"} {
		containers, _ := pod[kind].([]any)
		for _, c := range containers {
			env, _ := nested(map[string]any{"c": c}, "c", "env").([]any)
			each(env, always)
		}
	}
	for _, path := range [][]string{{"values", "hcl"}, {"backendConfig", "customConfiguration"}} {
		parent, _ := nested(spec, path[0]).(map[string]any)
		if text, ok := parent[path[1]].(string); ok {
			shown, n := module.Conceal(text, plan.Mask, plan.Telling)
			parent[path[1]] = shown
			masked += n
		}
	}
	_, n := plan.MaskURLsIn(object)
	return masked + n
}

// nested is a value of nested maps; nil if there is none.
func nested(from map[string]any, path ...string) any {
	var at any = from
	for _, p := range path {
		m, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = m[p]
	}
	return at
}
