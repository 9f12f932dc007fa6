package rego

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/policy"
)

// files are a directory.
func files(m map[string]string) fstest.MapFS {
	dir := fstest.MapFS{}
	for name, text := range m {
		dir[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return dir
}

func readDir(t *testing.T, m map[string]string, o Options) Source {
	t.Helper()
	parts, err := Read(files(m), o)
	if err != nil {
		t.Fatal(err)
	}
	return parts[0].Source
}

// brief are findings as texts, sorted.
func brief(found []policy.Finding) []string {
	var out []string
	for _, f := range found {
		text := string(f.Effect) + " " + f.Rule + ": " + f.Message
		if f.Error {
			text = "error " + text
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

// aPlan is a document of policies with a plan of three resources.
const aPlan = `{"plan": {"resource_changes": [
	{"address": "aws_iam_role.a", "type": "aws_iam_role", "change": {"actions": ["create"], "after": {"name": "a"}}},
	{"address": "aws_s3_bucket.b", "type": "aws_s3_bucket", "change": {"actions": ["update"], "after": {"acl": "public-read"}}},
	{"address": "aws_db_instance.c", "type": "aws_db_instance", "change": {"actions": ["delete"], "after": null}}
]}}`

// conftestDir is a directory as those who use conftest with plans have it: in the older
// version of the language, with exceptions, data, helpers and tests.
var conftestDir = map[string]string{
	"base.rego": `package main

import data.services

blocked := ["aws_iam"]

deny[msg] {
	rc := input.resource_changes[_]
	startswith(rc.type, blocked[_])
	msg := sprintf("%v must not be changed here", [rc.address])
}

deny_public[{"msg": msg, "severity": "high", "details": {"address": rc.address}}] {
	rc := input.resource_changes[_]
	rc.change.after.acl == services.acls[_]
	msg := sprintf("%v is public", [rc.address])
}

violation_destroy[{"msg": msg}] {
	rc := input.resource_changes[_]
	rc.change.actions[_] == "delete"
	msg := sprintf("%v would be destroyed", [rc.address])
}

warn[msg] {
	count(input.resource_changes) > 2
	msg := "the plan is large"
}

exception[rules] {
	input.resource_changes[_].address == "aws_db_instance.c"
	rules := ["destroy"]
}
`,
	"helper/lib.rego":     "package lib\n\ndeny[\"not of main\"] { true }\n",
	"net.rego":            "package main.net\n\nimport rego.v1\n\ndeny contains \"of the network\" if true\n",
	"base_test.rego":      "package main\n\ntest_config { parse_config_file(\"a.tf\") }\n",
	"data/services.yaml":  "services:\n  acls: [public-read]\n",
	"examples/notes.yaml": "services: {acls: [private]}\n",
	"README.md":           "# Policies\n",
}

func TestConftestDirectories(t *testing.T) {
	for name, tt := range map[string]struct {
		change  map[string]string
		options Options
		want    []string
	}{
		"main": {nil, Options{}, []string{
			"deny deny: aws_iam_role.a must not be changed here", "deny deny_public: aws_s3_bucket.b is public", "warn warn: the plan is large",
		}},
		"another package": {nil, Options{Namespaces: []string{"main.net"}}, []string{"deny main.net.deny: of the network"}},
		"all packages": {nil, Options{Namespaces: []string{"*"}}, []string{
			"deny deny: aws_iam_role.a must not be changed here", "deny deny_public: aws_s3_bucket.b is public", "deny lib.deny: not of main", "deny main.net.deny: of the network", "warn warn: the plan is large",
		}},
		"without the exception": {map[string]string{"base.rego": strings.ReplaceAll(conftestDir["base.rego"], `["destroy"]`, `["other"]`)}, Options{}, []string{
			"deny deny: aws_iam_role.a must not be changed here", "deny deny_public: aws_s3_bucket.b is public", "deny violation_destroy: aws_db_instance.c would be destroyed", "warn warn: the plan is large",
		}},
		"an exception of the rule without a name": {map[string]string{"base.rego": strings.ReplaceAll(conftestDir["base.rego"], `["destroy"]`, `["", "public", "destroy"]`)}, Options{}, nil},
		"conftest.toml": {map[string]string{
			"conftest.toml": "policy = \"rules\"\ndata = [\"more\"]\nnamespace = \"main\"\n", "rules/a.rego": "package main\ndeny[msg] { msg := data.text }", "more/x.json": `{"text": "from data"}`,
		}, Options{}, []string{"deny deny: from data"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := map[string]string{}
			for _, m := range []map[string]string{conftestDir, tt.change} {
				for file, text := range m {
					dir[file] = text
				}
			}
			tt.options.Format = Conftest
			got := brief(asked(t, readDir(t, dir, tt.options), aPlan, nil))
			if name != "an exception of the rule without a name" {
				if d := cmp.Diff(got, tt.want); d != "" {
					t.Error(d)
				}
			} else if len(got) != 0 { // conftest calls both deny and warn by the empty name
				t.Errorf("findings %q, want none", got)
			}
		})
	}
}

// conftest ignores errors of functions unless it is told otherwise. Here they hold the
// plan, unless the policy is read leniently.
func TestLenientPolicies(t *testing.T) {
	m := map[string]string{"a.rego": "package main\ndeny[msg] { startswith(input.resource_changes[0].none, \"a\"); msg := \"a\" }\nwarn[msg] { to_number(\"x\"); msg := \"b\" }"}
	if got := asked(t, readDir(t, m, Options{Format: Conftest}), aPlan, nil); len(got) != 1 || !got[0].Error {
		t.Errorf("strictly: %+v", got)
	}
	if got := asked(t, readDir(t, m, Options{Format: Conftest, Lenient: true}), aPlan, nil); len(got) != 0 {
		t.Errorf("leniently: %+v", got)
	}
}

// A rule whose value is no set says nothing to conftest, and a policy that says nothing
// passes everything.
func TestConftestRulesThatAreNoSets(t *testing.T) {
	for text, held := range map[string]bool{"deny := true": true, "deny := \"no\"": true, "default deny := false": false, "deny := []": false} {
		got := asked(t, Source{Format: Conftest, Modules: map[string]string{"a.rego": "package main\n" + text}}, aPlan, nil)
		if (len(got) == 1 && got[0].Error) != held {
			t.Errorf("%s: %+v, want a hold: %v", text, got, held)
		}
	}
}

const weavePolicy = `apiVersion: pac.weave.works/v2beta3
kind: Policy
metadata:
  name: acme.terraform.s3-private
spec:
  id: acme.terraform.s3-private
  name: Buckets are private
  category: acme.categories.access
  severity: high
  description: Buckets are private
  how_to_solve: Set acl to private
  provider: terraform
  tags: [s3]
  standards:
  - id: acme.standards.cis
    controls: [acme.controls.cis.1]
  targets:
    kinds: [Terraform]
    labels:
    - team: payments
    namespaces: []
  exclude:
    namespaces: [sandbox]
    resources: [payments/legacy]
    labels:
      policy: "*"
  parameters:
  - name: acl
    type: string
    required: true
    value: public-read
  code: |
    package weave.advisor.terraform.s3_private

    plan := input.review.object.status.tfplan
    acl := input.parameters.acl

    violation[result] {
      rc := plan.resource_changes[_]
      rc.change.after.acl == acl
      result := {
        "issue detected": true,
        "msg": sprintf("%v of %v has the ACL %v", [rc.address, input.review.object.metadata.name, acl]),
        "violating_key": rc.address,
      }
    }
---
apiVersion: pac.weave.works/v2beta2
kind: Policy
metadata: {name: kubernetes}
spec: {id: k, name: k, severity: low, provider: kubernetes, code: "package k\nviolation[x] { x := \"a\" }"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
`

func TestWeavePolicies(t *testing.T) {
	parts, err := Read(files(map[string]string{"policies/s3.yaml": weavePolicy, "README.md": "x"}), Options{Format: Weave})
	if err != nil || len(parts) != 1 {
		t.Fatalf("Read() = %d parts, %v; want the one for Terraform", len(parts), err)
	}
	found := asked(t, parts[0].Source, aPlan, parts[0].Parameters)
	want := []policy.Finding{{Policy: "p", Rule: "acme.terraform.s3-private", Effect: policy.Deny, Severity: "high",
		Message: "aws_s3_bucket.b of network has the ACL public-read", Addresses: []string{"aws_s3_bucket.b"}}}
	if d := cmp.Diff(found, want); d != "" {
		t.Error(d)
	}
}

func TestWeaveResultsOfEveryForm(t *testing.T) {
	for code, want := range map[string][]string{
		`violation[r] { r := {"msg": "a"} }`:                     {"deny id: a"},
		`violation[r] { r := "text" }`:                           {"deny id: The name"},
		`violation = {"msg": "one"} { true }`:                    {"deny id: one"},
		`violation = "text" { true }`:                            {"deny id: The name"},
		`violation[r] { input.review.kind.kind == "X"; r := 1 }`: nil,
		`violation[r] { r := to_number("x") }`:                   {"error hold id: the policy could not be evaluated: p.rego:2: eval_builtin_error"},
	} {
		s := Source{Format: Weave, Modules: map[string]string{"p.rego": "package a.b\n" + code}, Rule: "id", Title: "The name"}
		got := brief(asked(t, s, aPlan, nil))
		if len(got) == 1 && strings.HasPrefix(got[0], "error") {
			got[0], want = got[0][:len("error hold ")], []string{"error hold "}
		}
		if d := cmp.Diff(got, want); d != "" {
			t.Errorf("%s: %s", code, d)
		}
	}
	audit := Source{Format: Weave, Modules: map[string]string{"p.rego": "package a\nviolation[r] { r := {\"msg\": \"a\"} }"}, Audit: true}
	if got := brief(asked(t, audit, aPlan, nil)); !slices.Equal(got, []string{"warn violation: a"}) {
		t.Errorf("audited: %q", got)
	}
}

func TestWeaveTargets(t *testing.T) {
	p, err := ReadWeave([]byte(strings.Split(weavePolicy, "\n---")[0]))
	if err != nil {
		t.Fatal(err)
	}
	team := map[string]string{"team": "payments"}
	for name, tt := range map[string]struct {
		kind, namespace, name string
		labels                map[string]string
		want                  bool
	}{
		"selected":           {"Terraform", "payments", "network", team, true},
		"another kind":       {"Deployment", "payments", "network", team, false},
		"without the label":  {"Terraform", "payments", "network", nil, false},
		"excluded namespace": {"Terraform", "sandbox", "network", team, false},
		"excluded object":    {"Terraform", "payments", "legacy", team, false},
		"excluded label":     {"Terraform", "payments", "network", map[string]string{"team": "payments", "policy": "off"}, false},
	} {
		if got := p.Selects(tt.kind, tt.namespace, tt.name, tt.labels); got != tt.want {
			t.Errorf("%s: Selects() = %v, want %v", name, got, tt.want)
		}
	}
}

func TestWeavePoliciesThatAreWrong(t *testing.T) {
	for name, text := range map[string]string{
		"no YAML":               "a: [",
		"aliases":               weavePolicy + "\n" + aliases,
		"none for Terraform":    strings.ReplaceAll(weavePolicy, "provider: terraform", "provider: kubernetes"),
		"a parameter is absent": strings.ReplaceAll(weavePolicy, "    value: public-read\n", ""),
	} {
		if _, err := Read(files(map[string]string{"a.yaml": text}), Options{Format: Weave}); fault.Of(err) != fault.Invalid {
			t.Errorf("%s: Read() = %v, want an error", name, err)
		}
	}
}

// aliases is a text whose aliases repeat more than may be, and large one of which there may be two.
var (
	aliases = "a: &a " + strings.Repeat("x", 1<<20) + "\nb: [1" + strings.Repeat(", *a", 20) + "]\n"
	large   = "a: " + strings.Repeat("x", 3<<19) + "\n"
)

func TestReadTerrier(t *testing.T) {
	dir := map[string]string{
		"a.rego": "package terrier\ndeny contains data.limits.text", "a_test.rego": "package terrier_test\ntest_a if true",
		"limits/data.yaml": "text: of data", "fixtures/plan.json": `{"limits": {"text": "of a test"}}`, ".hidden/b.rego": "package terrier\ndeny contains \"hidden\"",
	}
	if got := brief(asked(t, readDir(t, dir, Options{}), `{}`, nil)); !slices.Equal(got, []string{"deny deny: of data"}) {
		t.Errorf("findings %q", got)
	}
	for name, change := range map[string]map[string]string{
		"two files say the same": {"data.json": `{"limits": {"text": "x"}}`},
		"data that are a list":   {"data.json": `[1]`},
		"data that are no YAML":  {"data.yaml": "a: ["},
		"data of aliases":        {"data.yaml": aliases},
		"data in many files":     {"a/data.yaml": large, "b/data.yaml": large, "c/data.yaml": large},
	} {
		other := map[string]string{}
		for _, m := range []map[string]string{dir, change} {
			for file, text := range m {
				other[file] = text
			}
		}
		if _, err := Read(files(other), Options{}); fault.Of(err) != fault.Invalid {
			t.Errorf("%s: Read() = %v, want an error", name, err)
		}
	}
	if _, err := Read(files(map[string]string{"conftest.toml": `policy = "../x"`, "a.rego": "package main"}), Options{Format: Conftest}); fault.Of(err) != fault.Invalid {
		t.Errorf("a path that leads out: %v", err)
	}
}

func TestUnitTests(t *testing.T) {
	dir := map[string]string{
		"a.rego": "package terrier\n\ndeny contains \"a\" if {\n\tinput.a\n}\n\nwarn contains \"b\" if {\n\tinput.b\n}\n",
		"a_test.rego": "package terrier_test\n\nimport data.terrier\n\ntest_good if count(terrier.deny) == 1 with input as {\"a\": true}\n\ntest_bad if {\n\tprint(\"seen\", 7)\n\tcount(terrier.deny) == 2\n}\n\n" +
			"test_error if to_number(\"x\") == 1\n\ntodo_test_later if false\n",
	}
	parts, err := Read(files(dir), Options{Tests: true})
	if err != nil {
		t.Fatal(err)
	}
	got, err := RunTests(t.Context(), parts[0].Source, "")
	if err != nil {
		t.Fatal(err)
	}
	outcomes := map[string]string{}
	for _, r := range got.Results {
		outcomes[r.Name] = r.Outcome
	}
	want := map[string]string{"terrier_test.test_good": Passed, "terrier_test.test_bad": Fails, "terrier_test.test_error": Errored, "terrier_test.todo_test_later": Skipped}
	if d := cmp.Diff(outcomes, want); d != "" || got.OK() {
		t.Errorf("OK() = %v; %s", got.OK(), d)
	}
	if len(got.Files) != 1 || got.Coverage <= 40 || got.Coverage >= 90 || !slices.Contains(got.Files[0].Missing, 7) {
		t.Errorf("coverage: %.0f %%, %+v", got.Coverage, got.Files)
	}
	only, err := RunTests(t.Context(), parts[0].Source, "test_good")
	if err != nil || len(only.Results) != 1 || !only.OK() {
		t.Errorf("RunTests(test_good) = %+v, %v", only.Results, err)
	}
}
