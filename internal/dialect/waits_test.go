package dialect

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/internal/afterapply"
	"github.com/terrier-iac/terrier/internal/identity"
	"github.com/terrier-iac/terrier/internal/prerequisite"
	"github.com/terrier-iac/terrier/internal/stack"
)

// ofThem are the conditions of prerequisites and steps, as a line each.
func ofThem(all []metav1.Condition) []string {
	var lines []string
	for _, c := range all {
		if strings.HasPrefix(c.Type, prerequisite.ConditionPrefix) || strings.HasPrefix(c.Type, afterapply.ConditionPrefix) {
			lines = append(lines, strings.TrimSpace(c.Type+" "+string(c.Status)+" "+c.Reason+" "+c.Message))
		}
	}
	return lines
}

// Each prerequisite has a condition, which stays while nothing is known of it, and goes with it.
func TestConditionsOfPrerequisites(t *testing.T) {
	var all []metav1.Condition
	c := Conditions{All: &all}
	for _, step := range []struct {
		when  string
		found []prerequisite.Result
		want  []string
	}{
		{"at first", []prerequisite.Result{{Name: "vlan", Reason: prerequisite.NotFound, Message: "none"}, {Name: "ipam", Reason: prerequisite.Checking, Message: "asked"}}, []string{"Prerequisite-vlan False NotFound none", "Prerequisite-ipam Unknown Checking asked"}},
		{"after an answer", []prerequisite.Result{{Name: "vlan", Reason: prerequisite.Met, Message: "there"}, {Name: "ipam", Reason: prerequisite.NoAnswer, Message: "503"}}, []string{"Prerequisite-vlan True Met there", "Prerequisite-ipam False NoAnswer 503"}},
		{"in a pass that did not check", nil, []string{"Prerequisite-vlan True Met there", "Prerequisite-ipam False NoAnswer 503"}},
		{"after a restart, before the next answer", []prerequisite.Result{{Name: "vlan", Reason: prerequisite.Met, Message: "there"}, {Name: "ipam", Reason: prerequisite.Checking, Message: "asked"}}, []string{"Prerequisite-vlan True Met there", "Prerequisite-ipam False NoAnswer 503"}},
		{"while too many are asked", []prerequisite.Result{{Name: "vlan", Reason: prerequisite.Met, Message: "there"}, {Name: "ipam", Reason: prerequisite.TooMany, Message: "many wait"}}, []string{"Prerequisite-vlan True Met there", "Prerequisite-ipam Unknown TooManyQuestions many wait"}},
		{"without one of them", []prerequisite.Result{{Name: "ipam", Reason: prerequisite.Met, Message: "200"}}, []string{"Prerequisite-ipam True Met 200"}},
		{"without any", []prerequisite.Result{}, nil},
	} {
		SetConditions(c, Summary{Decision: stack.Decision{Reason: stack.Applied}, Prerequisites: step.found})
		if diff := cmp.Diff(step.want, ofThem(all)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.when, diff)
		}
	}
}

// Each step has a condition: of the run that goes on, else of the last one.
func TestConditionsOfSteps(t *testing.T) {
	var all []metav1.Condition
	c := Conditions{All: &all}
	results := []stack.StepResult{{Name: "up", State: stack.StepSucceeded, Attempts: 1, Message: "answers"}, {Name: "play", State: stack.StepInterrupted, Attempts: 2, Again: 1}}
	m := stack.Status{AfterApply: &stack.AfterApply{Results: results, Killed: 1}}
	run := &stack.Run{Kind: stack.StepsRun, Steps: []stack.StepResult{{Name: "up", State: stack.StepSucceeded, Attempts: 1, Message: "answers"}, {Name: "play", State: stack.StepRunning, Attempts: 1}, {Name: "last", State: stack.StepPending}}}
	for _, step := range []struct {
		when string
		says Summary
		want []string
	}{
		{"after the run died", Summary{Status: m}, []string{"Step-up True Succeeded answers", "Step-play Unknown Interrupted attempt 2: its run died in the middle of it, so it is run again"}},
		{"during the next one", Summary{Status: m, Run: run}, []string{"Step-up True Succeeded answers", "Step-play Unknown Running it was run again, since its run died in the middle of it", "Step-last Unknown Pending"}},
		{"after a failure", Summary{Status: stack.Status{AfterApply: &stack.AfterApply{Results: []stack.StepResult{{Name: "play", State: stack.StepFailed, Attempts: 3, Message: "exit code 2"}}}}}, []string{"Step-play False Failed attempt 3: exit code 2"}},
		{"without steps", Summary{}, nil},
	} {
		step.says.Decision.Reason = stack.Applied
		SetConditions(c, step.says)
		if diff := cmp.Diff(step.want, ofThem(all)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.when, diff)
		}
	}
}

// A value that cannot be read is refused with its place, and told at admission.
func TestAnnotationsWithFields(t *testing.T) {
	for name, text := range map[string]string{
		prerequisite.Annotation: "- {name: a, tcp: {host: h, prot: 1}}\n",
		afterapply.Annotation:   "- {name: a, comand: [b]}\n",
	} {
		wrong := Misread(map[string]string{name: text}, Common())
		if len(wrong) != 1 || !strings.HasPrefix(wrong[0], "the annotation "+name+": [0].") || !strings.HasSuffix(wrong[0], "there is no such field") {
			t.Errorf("Misread() of %s = %q, want the place", name, wrong)
		}
		if wrong := Misread(map[string]string{name: "a: [\n"}, Common()); len(wrong) != 1 || !strings.Contains(wrong[0], "is no YAML") {
			t.Errorf("Misread() of what is no YAML = %q", wrong)
		}
		for _, text := range []string{"[&a x, *a]", "- {name: &a x}", strings.Repeat("#", 33<<10) + "\n[]"} {
			if wrong := Misread(map[string]string{name: text}, Common()); len(wrong) != 1 || !strings.HasPrefix(wrong[0], "the annotation "+name+" is no YAML that Terrier reads: it has ") {
				t.Errorf("Misread() of %.40q = %q", text, wrong)
			}
		}
		if wrong := Misread(map[string]string{name: " "}, Common()); len(wrong) != 0 {
			t.Errorf("Misread() of nothing = %q", wrong)
		}
	}
}

// Aliases are refused: a short text of them stands for gigabytes.
func TestAnnotationsHaveNoAliases(t *testing.T) {
	if got, err := sourcePaths("[&a net, *a]"); err == nil {
		t.Errorf("sourcePaths() = %q", got)
	}
	o := &metav1.PartialObjectMetadata{}
	o.Annotations = map[string]string{identity.Annotation: "{audience: &a x, more: *a}"}
	if got, err := Identity(o); err == nil || !strings.Contains(err.Error(), "anchor") {
		t.Errorf("Identity() = %v, %v", got, err)
	}
}
