package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/policies"
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
	"tags/policy.rego":        "package terrier\n\ndeny contains {\"msg\": sprintf(\"%s would be deleted\", [c.address]), \"rule\": \"no-deletions\", \"severity\": \"high\", \"address\": c.address} if {\n\tsome c in input.changes\n\tc.kind == \"delete\"\n\tprint(\"seen\", c.address)\n}\n\nwarn contains \"named\" if input.stack.name != \"\"\n",
	"tags/policy_test.rego":   "package terrier_test\n\nimport data.terrier\n\ntest_deletions if count(terrier.deny) == 1 with input as {\"changes\": [{\"kind\": \"delete\", \"address\": \"a\"}]}\n",
	"broken/policy.rego":      "package terrier\n\ndeny contains http.send({})\n",
	"conftest/base.rego":      "package main\n\nwarn[msg] { count(input.resource_changes) > 1; msg := \"large\" }\n\nexception[rules] { false; rules := [\"\"] }\n",
	"policy.yaml":             "apiVersion: policy.terrier.dev/v1alpha1\nkind: ClusterPolicy\nmetadata: {name: production}\nspec:\n  rego:\n    parameters: {most: 1}\n    modules:\n      a.rego: |\n        package terrier\n        hold contains {\"msg\": \"many deletions\", \"approval\": {\"count\": 2, \"groups\": [\"dba\"]}} if input.counts[\"delete\"] > input.parameters.most\n",
	"none.yaml":               "apiVersion: policy.terrier.dev/v1alpha1\nkind: ClusterPolicy\nmetadata: {name: production}\nspec:\n  guards: {maxDestroys: 1}\n",
	"parameters.yaml":         "hold: [create]\n",
	"misspelt.yaml":           "hold: [create]\napprovals: {count: 2}\n",
	"kind.yaml":               "hold: [destroy]\n",
	"library/one/a.rego":      "package terrier\n\ndeny contains \"a\" if allowed\n\nallowed if input.one\n",
	"library/one/a_test.rego": "package terrier_test\n\nimport data.terrier\n\ntest_one if {\n\tresult := terrier.deny with input as {\"one\": true}\n\tcount(result) == 2\n}\n",
	"library/two/b.rego":      "package terrier\n\ndeny contains \"b\" if allowed\n\nallowed if input.two\n",
	"library/two/b_test.rego": "package terrier_test\n\nimport data.terrier\n\ntest_two if count(terrier.deny) == 0 with input as {\"one\": true}\n",
	"library/bad/c.rego":      "package terrier\n\ndeny contains nothing(1)\n\nwarn contains nought(1)\n",
	"library/untested/d.rego": "package terrier\n\nwarn contains \"d\"\n",
	"source.yaml":             "apiVersion: policy.terrier.dev/v1alpha1\nkind: ClusterPolicy\nmetadata: {name: approval}\nspec:\n  guards: {maxDestroys: 0}\n  approval: {count: 2}\n  rego:\n    sourceRef: {kind: OCIRepository, name: policies, namespace: a}\n    path: tags\n",
	"two.yaml":                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n---\napiVersion: policy.terrier.dev/v1alpha1\nkind: ClusterPolicy\nmetadata: {name: one}\nspec:\n  guards:\n    freezes: [{from: \"2026-01-01T00:00:00Z\", to: \"2026-01-02T00:00:00Z\"}]\n    protected: [{types: [terraform_data]}]\n---\napiVersion: policy.terrier.dev/v1alpha1\nkind: Policy\nmetadata: {name: two, namespace: a}\nspec:\n  rego:\n    modules: {a.rego: \"package terrier\\nallow contains \\\"fine\\\"\"}\n",
	"strict.yaml":             "apiVersion: policy.terrier.dev/v1alpha1\nkind: ClusterPolicy\nmetadata: {name: production}\nspec:\n  guard: {maxDestroys: 1}\n",
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
		"unit tests":            {"policy test tags", 0, []string{"1 test of 1 policy, 0 failed; ", "tags/policy.rego:9: not tested: line 9"}},
		"too little is tested":  {"policy test tags --coverage 100", 1, []string{"less than 100 %"}},
		"no tests":              {"policy test conftest --format conftest", 2, []string{"has no tests"}},
		"a test of the library": {"policy test required-tags", 0, []string{"0 failed"}},
		"a library": {"policy test library", 1, []string{
			"library/one/a_test.rego:7: failed: terrier_test.test_one: does not hold: count(result) == 2\n",
			"library/bad/c.rego:3: error: undefined function nothing\n", "library/bad/c.rego:5: error: undefined function nought\n",
			"library/untested: error: the policy has no tests", "2 tests of 4 policies, 1 failed", "2 policies could not be tested",
		}},
		"some tests of a library": {"policy test library --run two", 1, []string{"library/bad/c.rego:3: error", "1 test of 2 policies, 0 failed"}},
		"several directories":     {"policy test library/two tags", 0, []string{"2 tests of 2 policies, 0 failed"}},
		"a library for programs":  {"policy test library -o json", 1, []string{`"policy": "library/two"`, `"failed": "library/one/a_test.rego:7"`}},
		"a library is no policy":  {"policy eval -f plan.json --policy library", 2, []string{"the directory has 4 policies (bad, one, two, untested), whose rules would be mixed"}},
		"a function that is none": {"policy test broken", 1, []string{"broken/policy.rego:3: error: http.send is not available to policies"}},
		"the tests of a file":     {"policy test policy.yaml", 2, []string{"policy.yaml is a file"}},
		"a policy denies": {"policy eval -f plan.json --policy tags", 1, []string{
			"deny (high): no-deletions: terraform_data.gone would be deleted", "The plan would be denied.", "seen terraform_data.gone",
		}},
		"which rules": {"policy eval -f plan.json --policy tags --trace", 1, []string{
			"policy.rego:3: terrier.deny fired 2 times\n", `with c = "terraform_data.gone"`, `did not hold 6 times: c.kind == "delete" (policy.rego:5)`,
			"policy.rego:9: terrier.warn did not fire\n", `did not hold 1 time: warn contains "named" if input.stack.name != "" (policy.rego:9)`,
		}},
		"each step":           {"policy eval -f plan.json --policy tags --trace=steps", 1, []string{"data.terrier.deny"}},
		"another trace":       {"policy eval -f plan.json --policy tags --trace=all", 2, []string{"rules or steps"}},
		"for programs":        {"policy eval -f plan.json --policy tags -o json", 1, []string{`"rule": "no-deletions"`, `"effect": "deny"`}},
		"a manifest":          {"policy eval -f plan.json --policy policy.yaml", 1, []string{"hold: hold: many deletions", "needs 2 approvals by a member of dba", "would be held until a user approves it"}},
		"guards alone":        {"policy eval -f plan.json --policy none.yaml", 1, []string{"hold (high): maxDestroys: the plan destroys or replaces 3 resources, 1 is allowed", "terraform_data.gone"}},
		"a program elsewhere": {"policy eval -f plan.json --policy source.yaml", 2, []string{"ClusterPolicy/approval: spec.rego.sourceRef: ", "--source"}},
		"from a directory":    {"policy eval -f plan.json --policy source.yaml --source .", 1, []string{"maxDestroys", "no-deletions", "needs 2 approvals"}},
		"another directory":   {"policy eval -f plan.json --policy source.yaml --source tags", 2, []string{"spec.rego.path"}},
		"several policies":    {"policy eval -f plan.json --policy two.yaml", 1, []string{"protected: the plan destroys 2 protected resources", "warn: allow: only a ClusterPolicy can allow a plan", "Not evaluated on this machine: freezes."}},
		"a misspelt field":    {"policy eval -f plan.json --policy strict.yaml", 2, []string{`unknown field "guard"`}},
		"conftest":            {"policy eval -f plan.json --policy conftest --format conftest", 0, []string{"warn: warn: large", "would pass with warnings"}},
		"the library":         {"policy eval -f plan.json --policy no-remote-state", 0, []string{"The policy has no findings. Its rules: terrier.deny, terrier.hold."}},
		"with parameters":     {"policy eval -f plan.json --policy auto-approval --parameters parameters.yaml", 1, []string{"terraform_data.created would be created"}},
		"a misspelt parameter": {"policy eval -f plan.json --policy auto-approval --parameters misspelt.yaml", 2, []string{
			"parameters.approvals: the policy has no such parameter; it has approval, hold and protected",
		}},
		"a misspelt value":    {"policy eval -f plan.json --policy auto-approval --parameters kind.yaml", 2, []string{`parameters.hold[0]: is "destroy", and must be one of create, update, replace, delete, forget, import, move and read`}},
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

// The tests of the whole library pass, each in a scope of its own.
func TestPoliciesOfTheLibrary(t *testing.T) {
	dir, err := filepath.Abs(filepath.Join("..", "..", "policies"))
	if err != nil {
		t.Fatal(err)
	}
	got := env(t).run(t, "policy", "test", dir)
	if got.code != 0 || !strings.Contains(got.out, fmt.Sprintf("of %d policies, 0 failed", len(policies.Names()))) {
		t.Errorf("terrier policy test ends with %d and says %s%s", got.code, got.out, got.err)
	}
}

// A policy is tried on the plans of a cluster as it would be applied there.
func TestPoliciesAreTriedOnACluster(t *testing.T) {
	e := newEstate(t)
	e.planned(t)
	e.write(t, somePolicies)
	e.write(t, map[string]string{
		"here.yaml":    guardsIn("namespaces: [" + e.cluster.Namespace + "]"),
		"away.yaml":    guardsIn("namespaces: [elsewhere]"),
		"prod.yaml":    guardsIn("environments: [production]"),
		"version.rego": "package terrier\n\nwarn contains m.version if some m in input.modules\n\nhold contains \"unknown\" if count(input.incomplete) > 0\n\nwarn contains p.version if some p in input.providers\n",
	})
	name := e.cluster.Namespace + "/network"
	e.dialogue(t, []line{
		{"policy dry-run -f here.yaml", 0, []string{"1 plan would be held until a user approves it:\n  " + name + "\n    plan-main-b8e362c206 (pending)\n      hold (high): maxDestroys: ",
			"Would have denied 0 and held 1 of 1 plan of 1 stack (1 pending, 0 applied).\n"}, ""},
		{"policy dry-run -f here.yaml -o json", 0, []string{`"plans": 1`, `"hold": [`, `"` + name + `"`}, ""},
		{"policy dry-run -f here.yaml --exit-code", 1, []string{"held 1 of 1 plan"}, ""},
		{"policy dry-run -f away.yaml --exit-code", 0, []string{"held 0 of 0 plans"}, ""},
		{"policy dry-run -f prod.yaml", 0, []string{"held 0 of 0 plans"}, ""},
		{"policy eval network --policy away.yaml", 1, []string{"does not select the stack " + name, "maxDestroys"}, ""},
		{"policy dry-run -f here.yaml --policy auto-approval", 2, []string{"exclude each other"}, ""},
		{"policy eval network --policy version.rego", 0, []string{"no findings"}, ""},
	})
	const uses = `{"at": "2026-03-01T12:00:00Z", "modules": [{"path": "module.child", "version": "1.4.2"}], "providers": [{"source": "registry.opentofu.org/hashicorp/aws", "version": "6.9.0"}]}`
	o := e.object(t)
	e.records[record.Uses(string(o.UID)).Key] = uses
	namespace := e.cluster.Namespace
	e.cluster.Apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+namespace+", labels: {terrier.dev/environment: production}}\n")
	e.dialogue(t, []line{
		{"policy eval network --policy version.rego", 0, []string{"1.4.2", "6.9.0"}, "unknown"},
		{"policy dry-run -f prod.yaml", 0, []string{"held 1 of 1 plan"}, ""},
	})
	e.applied(t, uses)
	e.dialogue(t, []line{
		{"policy dry-run -f here.yaml", 0, []string{"plan-b (applied ", "Would have denied 0 and held 2 of 2 plans of 1 stack (1 pending, 1 applied).\n"}, "Fewer"},
		{"policy dry-run -f here.yaml --applied 0", 0, []string{"of 1 plan of 1 stack (1 pending, 0 applied)"}, "plan-b"},
		{"policy dry-run --policy version.rego --all-findings --applied 3", 0, []string{"1.4.2", "1.3.0", "plan-a (applied ", "of 3 plans of 1 stack (1 pending, 2 applied)",
			"Fewer than 3 applied plans are kept of 1 stack: " + name + "."}, ""},
	})
	delete(e.records, record.Plan(string(o.UID), planA, runner.FilePlanDoc))
	e.dialogue(t, []line{{"policy dry-run -f here.yaml --applied 5", 0, []string{"Not judged: " + name + ": plan-a: its record is not kept any more", "(1 pending, 1 applied)"}, ""}})
	delete(e.records, record.Plan(string(o.UID), digest, runner.FilePlanDoc))
	e.dialogue(t, []line{{"policy dry-run -f here.yaml --applied 0", 1, []string{"Not judged: " + name + ": plan-main-b8e362c206: its record is not kept any more"}, ""}})
}

// The digests of plans that were applied.
const (
	planA = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	planB = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// applied has two plans that were applied, which used other versions of modules.
func (e estate) applied(t *testing.T, uses string) {
	t.Helper()
	o := e.object(t)
	uid := string(o.UID)
	known := e.known(t, o)
	var all []record.AppliedPlan
	for i, digestOf := range []string{planB, planA} {
		e.records[record.Plan(uid, digestOf, runner.FilePlanDoc)] = e.records[record.Plan(uid, digest, runner.FilePlanDoc)]
		e.records[record.Plan(uid, digestOf, record.UsesFile)] = strings.ReplaceAll(uses, "1.4.2", "1.3.0")
		name := []string{"plan-b", "plan-a"}[i]
		all = append(all, record.AppliedPlan{Plan: stack.Plan{Name: name, Digest: digestOf, Changes: stack.Changes{Destroy: 2}}, Run: "apply-" + name, At: e.ago(time.Duration(i+1) * time.Hour)})
	}
	known.Applied, known.AppliedAt = &all[0].Plan, all[0].At
	e.remember(t, known)
	b, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	e.records[record.Applied(uid).Key] = string(b)
}

// known is what the controller knows of a stack, from its status.
func (e estate) known(t *testing.T, o *v1alpha2.Terraform) stack.Status {
	t.Helper()
	var known stack.Status
	if err := json.Unmarshal(o.Status.Terrier.Memory.Raw, &known); err != nil {
		t.Fatal(err)
	}
	return known
}

// guardsIn is a policy with one guard, for some stacks.
func guardsIn(selector string) string {
	return "apiVersion: policy.terrier.dev/v1alpha1\nkind: ClusterPolicy\nmetadata: {name: production}\nspec:\n  selector: {" + selector + "}\n  guards: {maxDestroys: 1}\n"
}
