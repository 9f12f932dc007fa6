package alustan

import (
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/stack"
)

// What the controller says of a stack names the annotations of this kind.
func TestMessagesNameAnnotations(t *testing.T) {
	noon, inputs := time.Unix(1e9, 0), stack.PlanInputs{Source: "s"}
	obj := object(t, valid)
	obj.Annotations = map[string]string{Approval: "manual"}
	st, err := Dialect{}.Decode(obj)
	if err != nil {
		t.Fatal(err)
	}
	d := stack.Decide(stack.Observation{Now: noon, CheckedAt: noon, Spec: st.Spec, PlanInputs: inputs, Status: stack.Status{
		Plans: stack.Plans{Planned: inputs, Pending: &stack.Plan{Name: "p", Digest: "d", PlanInputs: inputs}},
	}})
	if want := `Plan generated: set the annotation terrier.dev/approved: "p" to approve this plan.`; d.Message != want {
		t.Errorf("message = %q, want %q", d.Message, want)
	}
}

// An approval counts in a stack that runs its script by itself: it may wait for one.
func TestAutomaticStacksHaveApprovals(t *testing.T) {
	obj := object(t, valid)
	dialect.SetAnnotation(obj, Approved, "p")
	st, err := Dialect{}.Decode(obj)
	if err != nil {
		t.Fatal(err)
	}
	if st.Spec.Mode != stack.Auto || !st.Spec.Approves(&stack.Plan{Name: "p"}) {
		t.Errorf("mode %s, approved %q: want an automatic stack that approves p", st.Spec.Mode, st.Spec.Approved)
	}
}

// A variable that controls the engine is refused with a way that this kind has.
func TestRefusedVariablesHaveAWay(t *testing.T) {
	for name, want := range map[string]string{
		"TF_CLI_ARGS_plan": "give the arguments to terraform in the script",
		"TF_HTTP_PASSWORD": "spec.backend.provider",
		"TF_WORKSPACE":     "",
		"GIT_SSH":          "",
		"TF_LOG":           "terrier logs",
	} {
		obj := object(t, `{scripts: {apply: {inline: a}}, gitRepo: {url: "https://h/r"}, variables: {`+name+`: x}}`)
		_, err := Dialect{}.Decode(obj)
		if err == nil || !strings.Contains(err.Error(), "spec.variables: the environment variable "+name) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want it to say %q", name, err, want)
			continue
		}
		for _, other := range []string{"spec.workspace", "spec.targets", "spec.fileMappings", "spec.backendConfig", "cliConfigSecretRef"} {
			if strings.Contains(err.Error(), other) {
				t.Errorf("%s: %v names %s, which this kind does not have", name, err, other)
			}
		}
	}
}

// A source that the stack writes gets its fields from those of the stack.
func TestOwnedSourcesNameTheirFields(t *testing.T) {
	st, err := Dialect{}.Decode(object(t, valid))
	if err != nil || !strings.Contains(st.OwnedFields, "spec.secretRef from spec.gitRepo.sshKeySecret") {
		t.Errorf("the fields of the source are %q, %v", st.OwnedFields, err)
	}
}
