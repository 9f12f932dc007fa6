package e2e

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/review/rego"
)

// weaveAgent answers as the Weave policy agent does in its mode for Terraform: it is sent
// the object with the plan as its status, evaluates its Policy objects, and says which of
// them are violated.
func weaveAgent(t *testing.T, policies string) *httptest.Server {
	t.Helper()
	parts, err := rego.ReadWeaveFile("policies.yaml", []byte(policies))
	if err != nil {
		t.Fatal(err)
	}
	type occurrence struct {
		Message string `json:"message"`
	}
	type violation struct {
		ID          string       `json:"id"`
		Message     string       `json:"message"`
		Status      string       `json:"status"`
		Occurrences []occurrence `json:"occurrences"`
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /terraform/admission", func(w http.ResponseWriter, r *http.Request) {
		var object struct {
			APIVersion string         `json:"apiVersion"`
			Kind       string         `json:"kind"`
			Metadata   map[string]any `json:"metadata"`
			Status     struct {
				Plan map[string]any `json:"tfplan"`
			} `json:"status"`
		}
		if err := json.NewDecoder(r.Body).Decode(&object); err != nil || object.Status.Plan == nil {
			http.Error(w, "invalid request body", http.StatusBadRequest)
			return
		}
		var answer struct {
			Passed     bool        `json:"passed"`
			Violations []violation `json:"violations"`
		}
		in, err := rego.NewInput(map[string]any{"plan": object.Status.Plan}, map[string]any{"apiVersion": object.APIVersion, "kind": object.Kind, "metadata": object.Metadata}, time.Time{})
		if err != nil {
			t.Error(err)
		}
		for _, p := range parts {
			set, err := rego.Compile(r.Context(), p.Source)
			if err != nil {
				t.Error(err)
				continue
			}
			found := set.Evaluate(r.Context(), rego.Question{Policy: p.Weave.Metadata.Name, Input: in, Parameters: p.Parameters})
			if len(policy.With(policy.Deny, found)) > 0 {
				v := violation{ID: p.Weave.Spec.ID, Message: p.Weave.Spec.Name, Status: "Violation"}
				for _, f := range found {
					v.Occurrences = append(v.Occurrences, occurrence{f.Message})
				}
				answer.Violations = append(answer.Violations, v)
			}
		}
		answer.Passed = len(answer.Violations) == 0
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

const weaveNames = `apiVersion: pac.weave.works/v2beta3
kind: Policy
metadata: {name: acme.terraform.names}
spec:
  id: acme.terraform.names
  name: Names begin with team-
  category: acme.categories.names
  severity: high
  provider: terraform
  targets: {kinds: [Terraform]}
  parameters:
  - {name: prefix, type: string, required: true, value: team-}
  code: |
    package weave.advisor.terraform.names
    violation[result] {
      rc := input.review.object.status.tfplan.resource_changes[_]
      rc.type == "world_thing"
      not startswith(rc.change.after.name, input.parameters.prefix)
      result := {"msg": sprintf("%v of %v is named %v", [rc.address, input.review.object.metadata.name, rc.change.after.name])}
    }
`

// Stacks that a Weave policy agent judges keep their manifests.
func TestWeavePolicyAgentJudgesPlans(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	agent := weaveAgent(t, weaveNames)
	spec := `approvePlan: auto
interval: 1h
webhooks:
- stage: post-planning
  enabled: true
  url: ` + agent.URL + `/terraform/admission
  testExpression: "${{ .passed }}"
  errorMessageTemplate: "Violation: ${{ (index (index .violations 0).occurrences 0).message }}"`
	c.Apply(t, inline("stack", spec, things(w, "x", "a")))
	s := c.AwaitReason(t, "stack", "PostPlanningWebhookFailed")
	if got, want := message(s), "Violation: world_thing.a of stack is named a"; got != want || len(w.Things()) != 0 {
		t.Errorf("the message is %q and the world holds %+v, want %q and nothing", got, w.Things(), want)
	}
	c.Apply(t, inline("stack", spec, things(w, "x", "team-a")))
	s = c.AwaitReady(t, "stack")
	if len(w.Named("team-a")) != 1 || strings.Contains(planCondition(s).Reason, "Webhook") {
		t.Errorf("the world holds %+v, want team-a", w.Things())
	}
}
