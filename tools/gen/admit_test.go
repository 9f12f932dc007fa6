package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// server does with an object what an API server does with it on its way in.
type server map[schema.GroupVersionKind]version

type version struct {
	schema *structural.Structural
	fields validation.SchemaValidator
	rules  *cel.Validator
}

// definitionFiles reads the CRDs as they are in the repository.
func definitionFiles(t *testing.T) map[string]*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	files, err := filepath.Glob("../../config/crd/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no CRDs: %v", err)
	}
	out := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, name := range files {
		c := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(read(t, name), c); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		apiextensionsv1.SetDefaults_CustomResourceDefinition(c)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&c.Spec)
		out[filepath.Base(name)] = c
	}
	return out
}

func newServer(t *testing.T) server {
	t.Helper()
	s := server{}
	for name, c := range definitionFiles(t) {
		for _, v := range c.Spec.Versions {
			props := &apiextensions.JSONSchemaProps{}
			if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, props, nil); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			shape, err := structural.NewStructural(props)
			if err != nil {
				t.Fatalf("%s %s: %v", name, v.Name, err)
			}
			fields, _, err := validation.NewSchemaValidator(props)
			if err != nil {
				t.Fatalf("%s %s: %v", name, v.Name, err)
			}
			s[schema.GroupVersionKind{Group: c.Spec.Group, Version: v.Name, Kind: c.Spec.Names.Kind}] = version{
				schema: shape, fields: fields, rules: cel.NewValidator(shape, true, celconfig.PerCallLimit),
			}
		}
	}
	return s
}

// admit applies defaults to obj and returns everything that is wrong with it;
// an unknown field is wrong, as it is to kubectl.
func (s server) admit(t *testing.T, obj map[string]any) []string {
	t.Helper()
	apiVersion, _ := obj["apiVersion"].(string)
	kind, _ := obj["kind"].(string)
	v, ok := s[schema.FromAPIVersionAndKind(apiVersion, kind)]
	if !ok {
		t.Fatalf("%s %s is not served", apiVersion, kind)
	}
	var wrong []string
	for _, path := range pruning.PruneWithOptions(obj, v.schema, true, structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		wrong = append(wrong, "unknown field "+path)
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(obj, v.schema)
	defaulting.Default(obj, v.schema)
	errs := validation.ValidateCustomResource(nil, obj, v.fields)
	more, _ := v.rules.Validate(context.Background(), nil, v.schema, obj, nil, celconfig.RuntimeCELCostBudget)
	for _, err := range append(errs, more...) {
		wrong = append(wrong, err.Error())
	}
	return wrong
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func object(t *testing.T, doc string) map[string]any {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	obj := map[string]any{}
	if err := json.Unmarshal(raw, &obj); err != nil { // whole numbers are int64, as in an API server
		t.Fatal(err)
	}
	return obj
}
