package admission

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
)

// shelf has the registry shop in one namespace, and says err of all others if
// that is set.
type shelf struct {
	client.Reader
	extra map[string]string
	err   error
}

func (s shelf) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if s.err != nil {
		return s.err
	}
	if key != (client.ObjectKey{Namespace: "sales", Name: "shop"}) {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "tenantregistries"}, key.Name)
	}
	r := o.(*tenantsv1.TenantRegistry)
	r.Namespace, r.Name = key.Namespace, key.Name
	r.Spec.ValueMappings.UID, r.Spec.ExtraValueMappings = "id", s.extra
	return nil
}

// What does not fit the registry is a warning with the field and the way out, and
// never more than that.
func TestTemplatesThatDoNotFitTheirRegistry(t *testing.T) {
	const uses = `secrets: [{id: a, nameTemplate: "{{ .uid }}", spec: {apiVersion: v1, kind: Secret, stringData: {plan: "{{ .plan }}", other: "{{ .plan | default \"x\" }}"}}}]`
	way := "warning: spec.secrets[0].spec.stringData.plan: correct it, or map the variable in extraValueMappings of TenantRegistry shop: a: there is no variable plan; the variables are activate"
	none := "warning: spec.registryId: namespace ops has no TenantRegistry shop yet"
	for name, tt := range map[string]struct {
		registries  shelf
		namespace   string
		operation   admissionv1.Operation
		before, now string
		want        []string // how each begins
		refused     bool
	}{
		"a registry that is not there":     {namespace: "ops", operation: "CREATE", now: template("", uses), want: []string{none}},
		"a variable that it does not have": {namespace: "sales", operation: "CREATE", now: template("", uses), want: []string{way}},
		"a change that begins to use one":  {namespace: "sales", operation: "UPDATE", before: template("", fine), now: template("", uses), want: []string{way}},
		"a spec that stays as it is":       {namespace: "ops", operation: "UPDATE", before: template("", uses), now: template(", labels: {a: b}", uses)},
		"a deletion":                       {namespace: "ops", operation: "DELETE", before: template("", uses)},
		"a variable that it has":           {registries: shelf{extra: map[string]string{"plan": "plan"}}, namespace: "sales", operation: "CREATE", now: template("", uses)},
		"a registry that cannot be read":   {registries: shelf{err: errors.New("later")}, namespace: "sales", operation: "CREATE", now: template("", uses)},
		"what is refused without looking":  {namespace: "ops", operation: "CREATE", now: template("", cycle), want: []string{"spec.configMaps[0].dependIds: b: the resources depend"}, refused: true},
		"what is suspicious besides":       {namespace: "ops", operation: "CREATE", now: template("", oneLine), want: []string{none, "warning: a: spec.values.hcl, line 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := asks(t, Knowing(tt.registries), admissionv1.AdmissionRequest{
				UID: "1", Operation: tt.operation, Namespace: tt.namespace, Object: object(t, tt.now), OldObject: object(t, tt.before),
			})
			texts := said(got)
			begins := append([]string(nil), texts...)
			for i := range min(len(texts), len(tt.want)) {
				begins[i] = texts[i][:min(len(texts[i]), len(tt.want[i]))]
			}
			if diff := cmp.Diff(tt.want, begins); diff != "" || got.Allowed == tt.refused {
				t.Errorf("allowed: %t, want %t (-want +got):\n%s\n%s", got.Allowed, !tt.refused, diff, strings.Join(texts, "\n"))
			}
		})
	}
}
