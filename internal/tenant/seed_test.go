package tenant_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

func seed(t testing.TB, file string) tenant.Template {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var object tenantsv1.TenantTemplate
	if err := yaml.UnmarshalStrict(b, &object); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	template, err := tenantapi.Template(&object)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return template
}

func acme() tenant.Values {
	return tenant.ValuesOf(tenant.Row{UID: "tenant-alpha", HostOrURL: "https://alpha.example.com:8443/x", Activate: "1"}, "my-registry", "t")
}

// The nine examples of the guide are admitted as they are, and what they become
// differs from what they say in nothing but the variables (A1, A3).
func TestSeedExamples(t *testing.T) {
	files, err := filepath.Glob("testdata/seed/*.yaml")
	if err != nil || len(files) != 9 {
		t.Fatalf("the examples are %v, %v", files, err)
	}
	variables := strings.NewReplacer("{{ .uid }}", "tenant-alpha", "{{ .host }}", "alpha.example.com", "{{ .uid | sha1sum | trunc 2 }}", "80")
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			template := seed(t, file)
			if errs := tenant.Check(template, tenant.VariablesOf(tenant.Mapping{UID: "id", HostOrURL: "url", Activate: "active"})); len(errs) > 0 {
				t.Fatalf("Check() = %v", errs)
			}
			objects, errs := tenant.Render(template, acme(), tenant.RenderOptions{Namespace: "default", TenantUID: "tenant-alpha"})
			if len(errs) > 0 || len(objects) != len(template.Resources) {
				t.Fatalf("Render() = %d objects, %v", len(objects), errs)
			}
			for _, o := range objects {
				want := replaced(o.Object, variables).(map[string]any)
				meta, _ := want["metadata"].(map[string]any)
				if meta == nil {
					meta = map[string]any{}
					want["metadata"] = meta
				}
				meta["name"], meta["namespace"] = variables.Replace(o.NameTemplate), "default"
				if o.Rendered["kind"] == "Terraform" {
					meta["labels"] = map[string]any{"terrier.dev/tenant-id": "tenant-alpha"}
					spec := want["spec"].(map[string]any)
					spec["approvePlan"] = "auto"
					if o.Deletion == tenant.Delete {
						spec["destroyResourcesOnDeletion"] = true
					}
				}
				if diff := cmp.Diff(want, o.Rendered); diff != "" {
					t.Errorf("%s (-want +got):\n%s", o.ID, diff)
				}
			}
		})
	}
}

// replaced is a plain reading of what a template with nothing but variables means.
func replaced(v any, variables *strings.Replacer) any {
	switch v := v.(type) {
	case string:
		return variables.Replace(v)
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = replaced(v[i], variables)
		}
		return list
	case map[string]any:
		m := map[string]any{}
		for k := range v {
			m[k] = replaced(v[k], variables)
		}
		return m
	}
	return v
}

// BenchmarkRender renders the largest example, with three objects more.
func BenchmarkRender(b *testing.B) {
	template := seed(b, "testdata/seed/enterprise-tenant-stack.yaml")
	for i, r := range template.Resources {
		r.ID, r.DependIDs, r.NameTemplate = string(rune('a'+i)), nil, r.NameTemplate+"-{{ .uid | sha1sum | trunc 8 }}"
		template.Resources = append(template.Resources, r)
	}
	v := acme()
	b.ReportAllocs()
	for b.Loop() {
		if objects, errs := tenant.Render(template, v, tenant.RenderOptions{Namespace: "default", TenantUID: "tenant-alpha"}); len(objects) != 6 || len(errs) > 0 {
			b.Fatal(errs)
		}
	}
}
