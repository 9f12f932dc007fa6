package infra

import (
	"encoding/json"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// An inline module is run as HCL can read it, and says so; what is wrong with it
// beyond that is said once, with the line as it was written.
func TestInlineModuleIsRepaired(t *testing.T) {
	decode := func(hcl string) (*v1alpha2.Terraform, dialect.Stack, error) {
		values, err := json.Marshal(map[string]string{"hcl": hcl})
		if err != nil {
			t.Fatal(err)
		}
		obj := &v1alpha2.Terraform{Spec: v1alpha2.TerraformSpec{Values: &apiextensionsv1.JSON{Raw: values}}}
		st, err := Dialect{}.Decode(obj)
		Dialect{}.Encode(obj, dialect.Summary{Decision: stack.Decision{Ready: stack.Ready, Reason: stack.NoDrift}, Now: noon})
		return obj, st, err
	}
	obj, st, err := decode("variable \"a\" { type = string }\nvariable \"b\" { type = string sensitive = true }\n")
	if want := "variable \"a\" { type = string }\nvariable \"b\" {\n type = string\n sensitive = true\n }\n"; st.Configuration.Inline != want || err != nil {
		t.Errorf("the module is %q, %v; want %q", st.Configuration.Inline, err, want)
	}
	c := meta.FindStatusCondition(obj.Status.Conditions, ConditionRepaired)
	if c == nil || c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, `: line 2 (variable "b").`) {
		t.Errorf("ModuleRepaired = %+v, want it to name line 2", c)
	}
	if obj, _, err := decode("variable \"a\" { type = string }\n"); err != nil || meta.FindStatusCondition(obj.Status.Conditions, ConditionRepaired) != nil {
		t.Errorf("a module that HCL accepts has the conditions %+v, %v", obj.Status.Conditions, err)
	}
	_, _, err = decode("a { b = 1 c = 2 }\n\nd = 1 e = 2\n")
	if want := "spec.values.hcl main.tf:3: Missing newline after argument: "; fault.Of(err) != fault.Invalid || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("what cannot be repaired is %v, want Invalid: %s", err, want)
	}
}

func TestUntrackedResourcesAreIgnored(t *testing.T) {
	for name, tt := range map[string]struct {
		annotations map[string]string
		want        string
	}{
		"no annotation":   {nil, ""},
		"the annotation":  {map[string]string{dialect.IgnoreUntracked: "apply-2"}, "apply-2"},
		"its former name": {map[string]string{"terrier.dev/forget-gap": "apply-1"}, "apply-1"},
		"both names":      {map[string]string{"terrier.dev/forget-gap": "apply-1", dialect.IgnoreUntracked: "apply-2"}, "apply-2"},
	} {
		obj := object(t, `{values: {hcl: x}}`)
		obj.Annotations = tt.annotations
		got, err := Dialect{}.Decode(obj)
		if err != nil || got.Spec.IgnoreUntracked != tt.want {
			t.Errorf("%s: IgnoreUntracked = %q, %v, want %q", name, got.Spec.IgnoreUntracked, err, tt.want)
		}
	}
}
