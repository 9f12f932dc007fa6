package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// write makes files below the directory of an environment.
func (e Env) write(t *testing.T, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(e.Dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

var somePolicies = map[string]string{
	"tags/policy.rego":      "package terrier\n\ndeny contains {\"msg\": sprintf(\"%s would be deleted\", [c.address]), \"rule\": \"no-deletions\", \"severity\": \"high\", \"address\": c.address} if {\n\tsome c in input.changes\n\tc.kind == \"delete\"\n\tprint(\"seen\", c.address)\n}\n\nwarn contains \"named\" if input.stack.name != \"\"\n",
	"tags/policy_test.rego": "package terrier_test\n\nimport data.terrier\n\ntest_deletions if count(terrier.deny) == 1 with input as {\"changes\": [{\"kind\": \"delete\", \"address\": \"a\"}]}\n",
	"broken/policy.rego":    "package terrier\n\ndeny contains http.send({})\n",
	"conftest/base.rego":    "package main\n\nwarn[msg] { count(input.resource_changes) > 1; msg := \"large\" }\n\nexception[rules] { false; rules := [\"\"] }\n",
	"policy.yaml":           "apiVersion: policy.terrier.dev/v1alpha1\nkind: ClusterPolicy\nmetadata: {name: production}\nspec:\n  rego:\n    parameters: {most: 1}\n    modules:\n      a.rego: |\n        package terrier\n        hold contains {\"msg\": \"many deletions\", \"approval\": {\"count\": 2, \"groups\": [\"dba\"]}} if input.counts[\"delete\"] > input.parameters.most\n",
	"none.yaml":             "apiVersion: policy.terrier.dev/v1alpha1\nkind: ClusterPolicy\nmetadata: {name: production}\nspec:\n  guards: {maxDestroys: 1}\n",
	"parameters.yaml":       "hold: [create]\n",
}

func TestPolicyCommands(t *testing.T) {
	e := env(t)
	e.write(t, somePolicies)
	raw, err := os.ReadFile(filepath.Join("..", "plan", "testdata", "plan.json"))
	if err != nil {
		t.Fatal(err)
	}
	e.write(t, map[string]string{"plan.json": string(raw)})
	for name, tt := range map[string]struct {
		args string
		code int
		says []string
	}{
		"unit tests":              {"policy test tags", 0, []string{"1 test, 0 failed; ", "policy.rego", "not tested: 9"}},
		"too little is tested":    {"policy test tags --coverage 100", 1, []string{"less than 100 %"}},
		"no tests":                {"policy test conftest --format conftest", 2, []string{"has no tests"}},
		"a test of the library":   {"policy test required-tags", 0, []string{"0 failed"}},
		"a function that is none": {"policy test broken", 2, []string{"http.send is not available to policies"}},
		"a policy denies": {"policy eval -f plan.json --policy tags", 1, []string{
			"deny (high): no-deletions: terraform_data.gone would be deleted", "The plan would be denied.", "seen terraform_data.gone",
		}},
		"each step":           {"policy eval -f plan.json --policy tags --trace", 1, []string{"data.terrier.deny"}},
		"for programs":        {"policy eval -f plan.json --policy tags -o json", 1, []string{`"rule": "no-deletions"`, `"effect": "deny"`}},
		"a manifest":          {"policy eval -f plan.json --policy policy.yaml", 1, []string{"hold: hold: many deletions", "needs 2 approvals by a member of dba", "would be held until a user approves it"}},
		"guards alone":        {"policy eval -f plan.json --policy none.yaml", 2, []string{"spec.rego: the policy has no program"}},
		"conftest":            {"policy eval -f plan.json --policy conftest --format conftest", 0, []string{"warn: warn: large", "would pass with warnings"}},
		"the library":         {"policy eval -f plan.json --policy no-remote-state", 0, []string{"The policy has no findings. Its rules: terrier.deny, terrier.hold."}},
		"with parameters":     {"policy eval -f plan.json --policy auto-approval --parameters parameters.yaml", 1, []string{"terraform_data.created would be created"}},
		"one that is absent":  {"policy eval -f plan.json --policy nothing", 4, []string{"no policy of that name comes with Terrier", "auto-approval"}},
		"neither":             {"policy eval --policy tags", 2, []string{"name a stack, or a plan with -f"}},
		"no policy":           {"policy eval -f plan.json", 2, []string{"--policy"}},
		"what is no plan":     {"policy eval -f policy.yaml --policy tags", 2, []string{"parsing plan document"}},
		"a version of Rego":   {"policy eval -f plan.json --policy conftest --format conftest --rego-version v1", 2, []string{"base.rego"}},
		"a format that isn't": {"policy eval -f plan.json --policy tags --format sentinel", 2, []string{"sentinel"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := e.run(t, strings.Fields(tt.args)...)
			if got.code != tt.code {
				t.Errorf("exit code %d, want %d: %s%s", got.code, tt.code, got.out, got.err)
			}
			for _, want := range tt.says {
				if !strings.Contains(got.out+got.err, want) {
					t.Errorf("says %q and %q, want %q", got.out, got.err, want)
				}
			}
			// The plan of a file is not masked yet.
			if strings.Contains(got.out+got.err, "staple-and-elephant") {
				t.Error("a secret of the plan is shown")
			}
		})
	}
}
