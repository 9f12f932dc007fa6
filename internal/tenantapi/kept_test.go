package tenantapi

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/tenant"
)

// Whatever a row holds, its Secret can be written, and gives the same row.
func TestRowsSurviveTheirSecret(t *testing.T) {
	name := rapid.OneOf(rapid.SampledFrom([]string{"plan", "uid", "extra", "extra.a", "", ".", "..", "a/b", "Größe", strings.Repeat("n", 300)}), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		want := tenant.Row{
			UID: rapid.String().Draw(t, "uid"), HostOrURL: rapid.String().Draw(t, "host"), Activate: rapid.String().Draw(t, "activate"),
			Active: rapid.Bool().Draw(t, "active"), Extra: rapid.MapOf(name, rapid.String()).Draw(t, "extra"),
		}
		data, err := RowData(want)
		if err != nil {
			t.Fatal(err)
		}
		for key := range data {
			if problems := validation.IsConfigMapKey(key); problems != nil {
				t.Fatalf("a Secret cannot have the key %q: %v", key, problems)
			}
		}
		got, err := RowOf(data)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, want); diff != "" {
			t.Fatalf("the row is (-got +want):\n%s", diff)
		}
	})
}

// A Secret that a user wrote can hold a null where variables are expected: it holds
// none, and the variables with keys of their own stay.
func TestARowWithANullHasItsOtherVariables(t *testing.T) {
	got, err := RowOf(map[string][]byte{rowUID: []byte("acme"), rowOdd: []byte("null"), rowExtra + "plan": []byte("gold")})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, tenant.Row{UID: "acme", Extra: map[string]string{"plan": "gold"}}); diff != "" {
		t.Errorf("the row is (-got +want):\n%s", diff)
	}
	if got, err := RowOf(map[string][]byte{rowOdd: []byte("[]")}); fault.Of(err) != fault.Invalid {
		t.Errorf("a list gives %+v, %v; want an error", got, err)
	}
}

func TestRowsOfAnnotations(t *testing.T) {
	of := func(pairs ...string) *tenantsv1.Tenant {
		o := &tenantsv1.Tenant{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}, Spec: tenantsv1.TenantSpec{UID: "acme"}}
		for i := 0; i < len(pairs); i += 2 {
			o.Annotations[pairs[i]] = pairs[i+1]
		}
		return o
	}
	for name, tt := range map[string]struct {
		from *tenantsv1.Tenant
		want tenant.Row
		kind fault.Kind
	}{
		"none": {of(), tenant.Row{UID: "acme", HostOrURL: "acme", Activate: "true", Active: true, Extra: map[string]string{}}, fault.None},
		"all": {
			of(tenantsv1.AnnotationHostOrURL, "https://a", tenantsv1.AnnotationActivate, "1", tenantsv1.AnnotationExtra, `{"plan":"gold"}`),
			tenant.Row{UID: "acme", HostOrURL: "https://a", Activate: "1", Active: true, Extra: map[string]string{"plan": "gold"}}, fault.None,
		},
		"a null":          {of(tenantsv1.AnnotationExtra, "null"), tenant.Row{UID: "acme", HostOrURL: "acme", Activate: "true", Active: true, Extra: map[string]string{}}, fault.None},
		"what is no JSON": {of(tenantsv1.AnnotationExtra, "plan=gold"), tenant.Row{}, fault.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := AnnotatedRow(tt.from)
			if fault.Of(err) != tt.kind {
				t.Fatalf("AnnotatedRow() is %v, want %v", err, tt.kind)
			}
			if diff := cmp.Diff(got, tt.want); err == nil && diff != "" {
				t.Errorf("the row is (-got +want):\n%s", diff)
			}
		})
	}
}

// A generation that is kept is the template as it was, whatever the name is.
func TestGenerationsAreKeptWhole(t *testing.T) {
	for _, name := range []string{"web", strings.Repeat("w", 80)} {
		o := &tenantsv1.TenantTemplate{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "1", Generation: 7},
			Spec: tenantsv1.TenantTemplateSpec{RegistryID: "customers", Resources: tenantsv1.Resources{
				ConfigMaps: []tenantsv1.TResource{{ID: "c", Spec: runtime.RawExtension{Raw: []byte(`{"kind":"ConfigMap","data":{"n":1.50}}`)}}}}},
		}
		r, err := Revision(o)
		if err != nil {
			t.Fatal(err)
		}
		if r.Name != RevisionName(name, 7) || r.Revision != 7 || !metav1.IsControlledBy(r, o) {
			t.Errorf("the revision is %+v", r.ObjectMeta)
		}
		for _, value := range r.Labels {
			if problems := validation.IsValidLabelValue(value); problems != nil {
				t.Errorf("the label %q: %v", value, problems)
			}
		}
		got, err := RevisionSpec(r)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, o.Spec); diff != "" {
			t.Errorf("the template is (-got +want):\n%s", diff)
		}
	}
}
