package dialect

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/afterapply"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plainyaml"
	"github.com/terrier-iac/terrier/internal/stack"
)

// AfterApply reads the steps that follow an apply; nil if there are none. The annotation is
// YAML.
func AfterApply(o client.Object) ([]afterapply.Step, error) {
	steps, err := readSteps(o.GetAnnotations()[afterapply.Annotation])
	if err != nil {
		return nil, fault.New(fault.Invalid, string(stack.SpecInvalid), err)
	}
	return steps, nil
}

// readSteps reads a value of the annotation. Its error names the field.
func readSteps(text string) ([]afterapply.Step, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	data, err := plainyaml.Annotation(text)
	if err != nil {
		return nil, fmt.Errorf("the annotation %s is no YAML that Terrier reads: %w", afterapply.Annotation, err)
	}
	steps, err := afterapply.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("the annotation %s: %w", afterapply.Annotation, err)
	}
	return steps, nil
}

// afterApply sets the condition of each step: of the run that goes on, else of the last one.
func afterApply(c Conditions, s Summary) {
	var results []stack.StepResult
	if a := s.Status.AfterApply; a != nil {
		results = a.Results
	}
	if r := s.Run; r != nil && !r.Done && r.Kind == stack.StepsRun && r.Steps != nil {
		before := results
		results = slices.Clone(r.Steps)
		for i := range results {
			if j := slices.IndexFunc(before, func(b stack.StepResult) bool { return b.Name == results[i].Name }); j >= 0 && s.Status.AfterApply.Killed > 0 {
				results[i].Again = before[j].Again // no supervisor knows what became of others
			}
		}
	}
	shown := map[string]bool{}
	for _, r := range results {
		kind := afterapply.ConditionPrefix + r.Name
		shown[kind] = true
		c.Set(kind, stepStatus(r.State), string(r.State), stepMessage(r))
	}
	*c.All = slices.DeleteFunc(*c.All, func(is metav1.Condition) bool {
		return strings.HasPrefix(is.Type, afterapply.ConditionPrefix) && !shown[is.Type]
	})
}

func stepStatus(s stack.StepState) metav1.ConditionStatus {
	switch s {
	case stack.StepSucceeded:
		return metav1.ConditionTrue
	case stack.StepFailed:
		return metav1.ConditionFalse
	case stack.StepPending, stack.StepRunning, stack.StepInterrupted:
	}
	return metav1.ConditionUnknown
}

// stepMessage says how a step went.
func stepMessage(r stack.StepResult) string {
	var parts []string
	if r.Attempts > 1 {
		parts = append(parts, fmt.Sprintf("attempt %d", r.Attempts))
	}
	switch {
	case r.State == stack.StepInterrupted:
		parts = append(parts, "its run died in the middle of it, so it is run again")
	case r.Again == 1:
		parts = append(parts, "it was run again, since its run died in the middle of it")
	case r.Again > 1:
		parts = append(parts, fmt.Sprintf("it was run again %d times, since its run died in the middle of it", r.Again))
	}
	if r.Message != "" {
		parts = append(parts, r.Message)
	}
	return strings.Join(parts, ": ")
}
