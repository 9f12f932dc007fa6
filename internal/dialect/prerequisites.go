package dialect

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/plainyaml"
	"github.com/terrier-iac/terrier/internal/prerequisite"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Prerequisites reads what a stack waits for; nil if it waits for nothing. The annotation is
// YAML.
func Prerequisites(o client.Object) ([]prerequisite.Prerequisite, error) {
	all, err := readPrerequisites(o.GetAnnotations()[prerequisite.Annotation])
	if err != nil {
		return nil, fault.New(fault.Invalid, string(stack.SpecInvalid), err)
	}
	return all, nil
}

// readPrerequisites reads a value of the annotation. Its error names the field.
func readPrerequisites(text string) ([]prerequisite.Prerequisite, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	data, err := plainyaml.Annotation(text)
	if err != nil {
		return nil, fmt.Errorf("the annotation %s is no YAML that Terrier reads: %w", prerequisite.Annotation, err)
	}
	all, err := prerequisite.Parse(data, kube.CheckPath)
	if err != nil {
		return nil, fmt.Errorf("the annotation %s: %w", prerequisite.Annotation, err)
	}
	return all, nil
}

// prerequisites sets the condition of each prerequisite. One of which nothing is known yet
// keeps the condition that it has.
func prerequisites(c Conditions, all []prerequisite.Result) {
	if all == nil {
		return
	}
	asked := map[string]bool{}
	for _, r := range all {
		kind := prerequisite.ConditionPrefix + r.Name
		asked[kind] = true
		switch {
		case r.Reason == prerequisite.TooMany:
			c.Set(kind, metav1.ConditionUnknown, string(r.Reason), r.Message)
		case r.Reason != prerequisite.Checking:
			c.Set(kind, conditionStatus(r.OK()), string(r.Reason), r.Message)
		case meta.FindStatusCondition(*c.All, kind) == nil:
			c.Set(kind, metav1.ConditionUnknown, string(r.Reason), r.Message)
		}
	}
	*c.All = slices.DeleteFunc(*c.All, func(is metav1.Condition) bool {
		return strings.HasPrefix(is.Type, prerequisite.ConditionPrefix) && !asked[is.Type]
	})
}

func conditionStatus(is bool) metav1.ConditionStatus {
	if is {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}
