package e2e

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// hclOf is the module that a manifest holds.
func hclOf(t *testing.T, manifest string) string {
	t.Helper()
	var s struct {
		Spec struct{ Values struct{ HCL string } }
	}
	if err := yaml.Unmarshal([]byte(manifest), &s); err != nil {
		t.Fatal(err)
	}
	return s.Spec.Values.HCL
}

// inline is the manifest of a stack with its module in it. Spec is more of its
// spec, in YAML, without indentation.
func inline(name, spec, hcl string) string {
	return "apiVersion: infra.contrib.fluxcd.io/v1alpha2\nkind: Terraform\nmetadata: {name: " + name + "}\nspec:\n" +
		indent(2, spec) + "\n  values:\n    hcl: |\n" + indent(6, hcl) + "\n"
}

// things is a module with these things in a world, all of one value.
func things(w *testkit.World, value string, names ...string) string {
	hcl := w.HCL()
	for _, n := range names {
		hcl += "\nresource \"world_thing\" \"" + n + "\" {\n  name  = \"" + n + "\"\n  value = \"" + value + "\"\n}\n"
	}
	return hcl
}

func indent(by int, text string) string {
	pad := strings.Repeat(" ", by)
	return pad + strings.ReplaceAll(strings.Trim(text, "\n"), "\n", "\n"+pad)
}
