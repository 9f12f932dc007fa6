package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
)

// defaults are those of one kind. A cluster with Terrier's definitions has filled
// them in already; one with definitions of another installer has perhaps not.
type defaults struct {
	spec *apiextensionsv1.JSONSchemaProps
}

// defaultsOf reads the definitions of the group, by kind.
func defaultsOf(definitions fs.FS) (map[string]defaults, error) {
	files, err := fs.Glob(definitions, tenantsv1.GroupVersion.Group+"_*.yaml")
	if err != nil {
		return nil, err
	}
	all := map[string]defaults{}
	for _, file := range files {
		text, err := fs.ReadFile(definitions, file)
		if err != nil {
			return nil, err
		}
		var d apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(text, &d); err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		for _, v := range d.Spec.Versions {
			if v.Name == tenantsv1.GroupVersion.Version && v.Schema != nil && v.Schema.OpenAPIV3Schema != nil {
				spec := v.Schema.OpenAPIV3Schema.Properties["spec"]
				all[d.Spec.Names.Kind] = defaults{&spec}
			}
		}
	}
	for _, kind := range []string{tenantsv1.RegistryKind, tenantsv1.TemplateKind} {
		if _, ok := all[kind]; !ok {
			return nil, fmt.Errorf("there is no definition of %s %s", kind, tenantsv1.GroupVersion)
		}
	}
	return all, nil
}

// operation is one of a JSON patch.
type operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value"`
}

// mutate fills the defaults into a spec.
func (d defaults) mutate(_ context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	allowed := &admissionv1.AdmissionResponse{Allowed: true}
	spec, touched, err := asked(r)
	if err != nil || !touched {
		return allowed, err
	}
	patch := missing(nil, "/spec", d.spec, spec)
	if len(patch) == 0 {
		return allowed, nil
	}
	text, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	kind := admissionv1.PatchTypeJSONPatch
	allowed.Patch, allowed.PatchType = text, &kind
	return allowed, nil
}

// missing adds to patch the defaults of schema that v, which is at path, lacks.
func missing(patch []operation, path string, schema *apiextensionsv1.JSONSchemaProps, v any) []operation {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
			property, at := schema.Properties[name], path+"/"+pointer.Replace(name)
			if inner, there := v[name]; there {
				patch = missing(patch, at, &property, inner)
			} else if property.Default != nil {
				patch = append(patch, operation{"add", at, property.Default.Raw})
			}
		}
	case []any:
		if schema.Items == nil || schema.Items.Schema == nil {
			return patch
		}
		for i := range v {
			patch = missing(patch, path+"/"+strconv.Itoa(i), schema.Items.Schema, v[i])
		}
	}
	return patch
}

// pointer escapes a name in the path of a JSON patch.
var pointer = strings.NewReplacer("~", "~0", "/", "~1")
