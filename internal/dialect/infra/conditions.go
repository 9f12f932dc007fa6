package infra

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
)

// ConditionRepaired says that the text of an inline module was changed. The other
// conditions are those of every kind, and that of the health checks.
const ConditionRepaired = "ModuleRepaired"

// conditionsOf are the conditions of obj.
func conditionsOf(obj *v1alpha2.Terraform) dialect.Conditions {
	return dialect.Conditions{All: &obj.Status.Conditions, Generation: obj.Generation}
}

// conditions sets every condition that Terrier owns.
func conditions(obj *v1alpha2.Terraform, s dialect.Summary) {
	c := conditionsOf(obj)
	dialect.SetConditions(c, s)
	health(c, &obj.Spec, s)
	repaired(c, &obj.Spec)
}

// repaired warns that the engine was given a text with more lines than the spec
// has.
func repaired(c dialect.Conditions, s *v1alpha2.TerraformSpec) {
	found := brokenLines(s)
	if len(found) == 0 {
		c.Drop(ConditionRepaired)
		return
	}
	var where []string
	for _, o := range found {
		where = append(where, o.String())
	}
	c.Set(ConditionRepaired, metav1.ConditionTrue, "LinesBroken", "spec.values.hcl has blocks with several arguments on one line, which HCL refuses: "+
		strings.Join(where, ", ")+". Terrier put their arguments on lines of their own, so line numbers in the engine's messages are higher")
}
