package policies_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/policy/document"
	"github.com/terrier-iac/terrier/internal/review/rego"
	"github.com/terrier-iac/terrier/policies"
)

// source is a policy of the library.
func source(tb testing.TB, name string, tests bool) rego.Source {
	tb.Helper()
	dir, ok := policies.Named(name)
	if !ok {
		tb.Fatalf("there is no policy %s", name)
	}
	parts, err := rego.Read(dir, rego.Options{Tests: tests})
	if err != nil {
		tb.Fatal(err)
	}
	return parts[0].Source
}

// covered is the part of each policy that its tests have to evaluate.
const covered = 85

func TestPoliciesHaveTests(t *testing.T) {
	if n := len(policies.Names()); n < 11 {
		t.Errorf("there are %d policies, want all", n)
	}
	for _, name := range policies.Names() {
		t.Run(name, func(t *testing.T) {
			got, err := rego.RunTests(t.Context(), source(t, name, true), "")
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range got.Results {
				if r.Outcome != rego.Passed {
					t.Errorf("%s at %s: %s %s %s", r.Name, r.At, r.Outcome, r.Error, r.Output)
				}
			}
			if !got.OK() || got.Coverage < covered {
				t.Errorf("%d tests evaluate %.0f %% of the lines, want %d %%; not %v", len(got.Results), got.Coverage, covered, got.Files)
			}
		})
	}
	if _, ok := policies.Named("../policies"); ok {
		t.Error("Named() leads out of the library")
	}
}

// The page of a policy names each of its parameters and rules.
func TestPagesNameParametersAndRules(t *testing.T) {
	library, err := os.ReadFile(filepath.Join("..", "docs", "policy-library.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range policies.Names() {
		page, err := os.ReadFile(filepath.Join(name, "README.md"))
		if err != nil {
			t.Error(err)
			continue
		}
		if !strings.Contains(string(library), "(../policies/"+name+"/README.md)") {
			t.Errorf("docs/policy-library.md does not list %s", name)
		}
		text := source(t, name, false).Modules["policy.rego"]
		for _, before := range []string{`object.get(input.parameters, "`, `"rule": "`} {
			for _, part := range strings.Split(text, before)[1:] {
				if word, _, _ := strings.Cut(part, `"`); !strings.Contains(string(page), "`"+word+"`") {
					t.Errorf("%s/README.md does not name %s", name, word)
				}
			}
		}
	}
}

// A policy declares each parameter that it reads, so that no other one is taken.
func TestPoliciesDeclareTheirParameters(t *testing.T) {
	read := regexp.MustCompile(`input\.parameters(?:, "([a-z_]+)"|\.([a-z_]+))`)
	for _, name := range policies.Names() {
		src := source(t, name, false)
		var want []string
		for _, m := range read.FindAllStringSubmatch(src.Modules["policy.rego"], -1) {
			want = append(want, m[1]+m[2])
		}
		slices.Sort(want)
		set, err := rego.Compile(t.Context(), src)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(rego.Parameters(set), slices.Compact(want)); d != "" {
			t.Errorf("%s declares other parameters than it reads: %s", name, d)
		}
		if err := rego.CheckParameters(set, map[string]any{"approvals": 1}); err == nil || !strings.Contains(err.Error(), "parameters.approvals: the policy has no such parameter; it has ") {
			t.Errorf("%s takes any parameter: %v", name, err)
		}
	}
}

// judged is what a policy says of a plan that an engine made.
func judged(t *testing.T, name, recorded string, f document.Facts, parameters any) []policy.Finding {
	t.Helper()
	raw, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := plan.ParseDocument(raw)
	if err != nil {
		t.Fatal(err)
	}
	input, err := document.Make(doc.Masked(), f)
	if err != nil {
		t.Fatal(err)
	}
	in, err := rego.NewInput(input, nil, time.Unix(1e9, 0))
	if err != nil {
		t.Fatal(err)
	}
	set, err := rego.Compile(t.Context(), source(t, name, false))
	if err != nil {
		t.Fatal(err)
	}
	if err := rego.CheckParameters(set, jsonOf(t, parameters)); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	found := set.Evaluate(t.Context(), rego.Question{Policy: name, Input: in, Parameters: jsonOf(t, parameters)})
	for _, one := range found {
		if one.Error {
			t.Errorf("%s of %s: %+v", name, recorded, one)
		}
		if text, err := json.Marshal(one); err != nil || strings.Contains(string(text), "canary") || strings.Contains(string(text), "staple-and-elephant") {
			t.Errorf("%s of %s shows a secret: %+v, %v", name, recorded, one, err)
		}
	}
	return found
}

func jsonOf(t *testing.T, v any) any {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// brief are findings as texts: the effect, the rule and the addresses.
func brief(found []policy.Finding) []string {
	var out []string
	for _, f := range found {
		out = append(out, string(f.Effect)+" "+f.Rule+" "+strings.Join(f.Addresses, " "))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func recorded(name string) string { return filepath.Join("testdata", name+".json") }

// What needs an approval, for plans that an engine made. testdata/record.sh has their
// configurations.
func TestAutoApproval(t *testing.T) {
	for name, want := range map[string][]string{
		"create":         {"allow auto-approval "},
		"update":         {"allow auto-approval "},
		"no-changes":     {"allow auto-approval "},
		"outputs-only":   {"allow auto-approval "},
		"read":           {"allow auto-approval "},
		"move":           {"allow auto-approval "},
		"import":         {"allow auto-approval "},
		"delete":         {"hold destroys terraform_data.a"},
		"replace":        {"hold destroys terraform_data.a"},
		"replace-before": {"hold destroys terraform_data.a"},
		"forget":         {"hold destroys terraform_data.a"},
		"drift":          {"allow auto-approval "},
		"aws-protected":  {"hold protected aws_db_instance.main"},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(brief(judged(t, "auto-approval", recorded(name), document.Facts{}, nil)), want); d != "" {
				t.Error(d)
			}
		})
	}
}

// The engine that Terrier comes with defers no changes and invokes no actions, so no plan of it
// can be recorded. A plan of another engine that does is held: it says less than it does. Once
// OpenTofu learns one of the two, this fails, and testdata/record.sh has to record it.
func TestAutoApprovalOfWhatOpenTofuDoesNotPlan(t *testing.T) {
	for section, tt := range map[string]struct {
		one  any
		want string
	}{
		"deferred_changes":   {map[string]any{"reason": "instance_count_unknown", "resource_change": map[string]any{"address": "terraform_data.later", "type": "terraform_data", "change": map[string]any{"actions": []any{"create"}}}}, "hold deferred "},
		"action_invocations": {map[string]any{"address": "action.aws_lambda_invoke.a", "type": "aws_lambda_invoke", "name": "a"}, "hold actions "},
	} {
		raw, err := os.ReadFile(recorded("create"))
		if err != nil {
			t.Fatal(err)
		}
		var doc map[string]any
		if err := json.Unmarshal(raw, &doc); err != nil {
			t.Fatal(err)
		}
		if _, ok := doc[section]; ok {
			t.Errorf("the engine writes %s: record a plan that has it", section)
		}
		doc[section] = []any{tt.one}
		with := filepath.Join(t.TempDir(), "plan.json")
		if raw, err = json.Marshal(doc); err == nil {
			err = os.WriteFile(with, raw, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := brief(judged(t, "auto-approval", with, document.Facts{}, nil)); !slices.Contains(got, tt.want) {
			t.Errorf("a plan with %s is judged %q, want %q", section, got, tt.want)
		}
	}

	tofu, err := filepath.Abs(filepath.Join("..", "bin", "tofu"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(tofu); err != nil {
		t.Skip("bin/tofu is not built")
	}
	dir := t.TempDir()
	for file, text := range map[string]string{"cli.tfrc": "disable_checkpoint = true\n", "main.tf": "action \"local_command\" \"a\" {}\n"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	plan := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), tofu, append([]string{"plan", "-no-color", "-input=false"}, args...)...)
		cmd.Dir, cmd.Env = dir, []string{"TF_CLI_CONFIG_FILE=" + filepath.Join(dir, "cli.tfrc"), "HOME=" + dir}
		out, err := cmd.CombinedOutput()
		if err == nil {
			t.Errorf("tofu plan %s ends well", strings.Join(args, " "))
		}
		return string(out)
	}
	if out := plan("-allow-deferral"); !strings.Contains(out, "flag provided but not defined: -allow-deferral") {
		t.Errorf("tofu plan -allow-deferral says %s", out)
	}
	if out := plan(); !strings.Contains(out, `Blocks of type "action" are not expected here`) {
		t.Errorf("tofu plan of an action says %s", out)
	}
}

// The other policies, for plans of the providers that stand in for those of clouds.
func TestPoliciesOfRealPlans(t *testing.T) {
	iam := document.Module{Path: "module.iam", Kind: "registry", Address: "registry.example.com/platform/iam/aws", Declared: "registry.example.com/platform/iam/aws", Version: "1.2.3"}
	approved := map[string]any{"modules": []any{map[string]any{"source": iam.Address, "versions": []string{"1.2.3"}}}}
	other := iam
	other.Address = "registry.example.com/other/iam/aws"
	for name, tt := range map[string]struct {
		policy, plan string
		facts        document.Facts
		parameters   any
		want         []string
	}{
		"direct IAM":                   {"iam-only-through-modules", "aws", document.Facts{Modules: []document.Module{iam}}, approved, []string{"deny direct-iam aws_iam_access_key.direct", "deny direct-iam aws_iam_user.direct"}},
		"IAM of a module":              {"iam-only-through-modules", "aws", document.Facts{Modules: []document.Module{other}}, approved, []string{"deny direct-iam aws_iam_access_key.direct", "deny direct-iam aws_iam_user.direct", "deny direct-iam module.iam.aws_iam_user.it"}},
		"tags":                         {"required-tags", "aws", document.Facts{}, map[string]any{"tags": []string{"owner"}}, []string{"deny required-tags aws_s3_bucket.untagged"}},
		"buckets":                      {"public-buckets", "aws", document.Facts{}, nil, []string{"deny public-bucket aws_s3_bucket_public_access_block.open"}},
		"secrets":                      {"secrets-in-state", "aws", document.Facts{}, nil, []string{"warn secret-in-state aws_db_instance.main", "warn secret-in-state aws_iam_access_key.direct"}},
		"no secrets if it's encrypted": {"secrets-in-state", "aws", document.Facts{}, map[string]any{"state_encrypted": true}, nil},
		"provisioners":                 {"forbidden-provisioners", "programs", document.Facts{}, nil, []string{"deny provisioner terraform_data.runs", "deny provisioner terraform_data.within"}},
		"remote states":                {"no-remote-state", "remote-state", document.Facts{}, nil, []string{"deny remote-state data.terraform_remote_state.other"}},
		"no remote states":             {"no-remote-state", "aws", document.Facts{}, nil, nil},
		"a local module":               {"module-sources", "programs", document.Facts{}, nil, nil},
		"modules":                      {"module-sources", "aws", document.Facts{Modules: []document.Module{iam, other}}, map[string]any{"sources": []string{"registry.example.com/platform/*/*"}}, []string{"deny module-source module.iam"}},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(brief(judged(t, tt.policy, recorded(tt.plan), tt.facts, tt.parameters)), tt.want); d != "" {
				t.Error(d)
			}
		})
	}
}
