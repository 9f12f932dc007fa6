package alustan

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/config/crd"
)

var rowPattern = regexp.MustCompile("(?m)^\\| `(spec\\.[^`]+)` \\| ([a-z ]+) \\|")

// docs/alustan.md has a row for each field of the schema, and says of exactly those without
// effect that they have none.
func TestEveryFieldIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/alustan.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	var without []string
	for _, m := range rowPattern.FindAllStringSubmatch(string(doc), -1) {
		if rows[m[1]] = m[2]; m[2] == "no effect" {
			without = append(without, m[1])
		}
	}
	var inCode []string
	for _, f := range fieldsWithoutEffect() {
		inCode = append(inCode, f.path)
	}
	slices.Sort(without)
	if !slices.Equal(inCode, without) {
		t.Errorf("without effect are %q, docs/alustan.md says %q", inCode, without)
	}
	fields := leaves(t)
	for _, f := range fields {
		documented := rows[f] != ""
		for row := range rows {
			documented = documented || strings.HasPrefix(f, row+".")
		}
		if !documented {
			t.Errorf("%s is not in docs/alustan.md", f)
		}
	}
	for row := range rows {
		if !slices.ContainsFunc(fields, func(f string) bool { return f == row || strings.HasPrefix(f, row+".") }) {
			t.Errorf("docs/alustan.md has %s, which the schema has not", row)
		}
	}
}

// leaves are the paths of the fields of spec that have none below them.
func leaves(t *testing.T) []string {
	t.Helper()
	raw, err := crd.Files.ReadFile("alustan.io_terraforms.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var c apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(raw, &c); err != nil {
		t.Fatal(err)
	}
	var paths []string
	var walk func(string, apiextensionsv1.JSONSchemaProps)
	walk = func(path string, p apiextensionsv1.JSONSchemaProps) {
		if len(p.Properties) == 0 {
			paths = append(paths, path)
		}
		for name, q := range p.Properties {
			walk(path+"."+name, q)
		}
	}
	walk("spec", c.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"])
	return paths
}
