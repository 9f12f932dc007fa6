package infra

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/config/crd"
)

type row struct{ path, state, how string }

var rowPattern = regexp.MustCompile("(?m)^\\| `(spec\\.[^`]+)` \\| ([a-z ]+) \\| ?(.*?) ?\\|$")

// table reads the rows about fields from docs/compatibility.md.
func table(t *testing.T) []row {
	t.Helper()
	doc, err := os.ReadFile("../../../docs/compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows []row
	for _, m := range rowPattern.FindAllStringSubmatch(string(doc), -1) {
		rows = append(rows, row{m[1], m[2], m[3]})
	}
	if got := strings.Count(string(doc), "| `spec."); got != len(rows) {
		t.Fatalf("%d of %d rows can be read", len(rows), got)
	}
	return rows
}

func TestEveryFieldIsDocumented(t *testing.T) {
	rows := table(t)
	documented := func(path string) bool {
		return slices.ContainsFunc(rows, func(r row) bool {
			return r.path == path || strings.HasPrefix(path, r.path+".") || strings.HasPrefix(path, r.path+"[].")
		})
	}
	fields := schemaFields(t)
	for _, f := range fields {
		below := slices.ContainsFunc(fields, func(g string) bool {
			return strings.HasPrefix(g, f+".") || strings.HasPrefix(g, f+"[].")
		})
		if !below && !documented(f) {
			t.Errorf("%s is not in docs/compatibility.md", f)
		}
	}
	for _, r := range rows {
		if !slices.Contains(fields, r.path) {
			t.Errorf("docs/compatibility.md has %s, which the schema has not", r.path)
		}
		if !slices.Contains([]string{"works", "differs", "in pods", "not yet"}, r.state) {
			t.Errorf("%s: state is %q", r.path, r.state)
		}
		if r.how == "" && r.state == "differs" {
			t.Errorf("%s differs, and it is not said how", r.path)
		}
	}
}

func TestEveryDifferenceIsDocumented(t *testing.T) {
	var got, want, refusedInCode, refusedInDoc []string
	for _, g := range unsupportedFields() {
		state := "not yet"
		if g.pods {
			state = "in pods"
		}
		got = append(got, g.path+" "+state)
		if g.refuse != "" {
			refusedInCode = append(refusedInCode, g.path)
		}
	}
	for _, r := range table(t) {
		if r.state == "not yet" || r.state == "in pods" {
			want = append(want, r.path+" "+r.state)
			if strings.HasPrefix(r.how, "refused") {
				refusedInDoc = append(refusedInDoc, r.path)
			}
		}
	}
	slices.Sort(want)
	slices.Sort(refusedInDoc)
	if !slices.Equal(got, want) {
		t.Errorf("unsupported fields are %q, docs/compatibility.md says %q", got, want)
	}
	if !slices.Equal(refusedInCode, refusedInDoc) {
		t.Errorf("refused are %q, docs/compatibility.md says %q", refusedInCode, refusedInDoc)
	}
}

// The manifest that sets every field sets every unsupported one, and one that sets every
// field that works sets none.
func TestNotYet(t *testing.T) {
	everything := manifest(t, "terraform-everything").Spec
	everything.Vars[2].ValueFrom.FieldRef = fieldRef
	everything.Vars[2].ValueFrom.FileKeyRef = fileKeyRef
	everything.Vars[2].ValueFrom.ResourceFieldRef = resourceFieldRef

	for state, set := range map[string]func(*v1alpha2.TerraformSpec) []string{"not yet": notYet, "in pods": onlyPods} {
		var all []string
		for _, r := range table(t) {
			if r.state == state {
				all = append(all, r.path)
			}
		}
		slices.Sort(all)
		if got := set(&everything); !slices.Equal(got, all) {
			t.Errorf("of everything %q are %s, want %q", got, state, all)
		}
		if got := set(&v1alpha2.TerraformSpec{}); got != nil {
			t.Errorf("of nothing %q are %s, want none", got, state)
		}
		for _, name := range seeds(t) {
			obj := manifest(t, name)
			defaulted(&obj.Spec)
			if got := set(&obj.Spec); got != nil {
				t.Errorf("of %s %q are %s, want none", name, got, state)
			}
		}
	}
}

// schemaFields lists the paths of spec in the CRD, parents included.
func schemaFields(t *testing.T) []string {
	t.Helper()
	raw, err := crd.Files.ReadFile("infra.contrib.fluxcd.io_terraforms.yaml")
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
		paths = append(paths, path)
		if p.Items != nil && p.Items.Schema.Properties != nil {
			p, path = *p.Items.Schema, path+"[]"
		}
		for name, q := range p.Properties {
			walk(path+"."+name, q)
		}
	}
	walk("spec", c.Spec.Versions[1].Schema.OpenAPIV3Schema.Properties["spec"])
	slices.Sort(paths)
	return paths
}
