package guard

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/policy"
)

// recorded is a document that the engine made, changed by edit.
func recorded(t *testing.T, name string, edit func(doc map[string]any)) *plan.Document {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "plan", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		var doc map[string]any
		if err := json.Unmarshal(b, &doc); err != nil {
			t.Fatal(err)
		}
		edit(doc)
		if b, err = json.Marshal(doc); err != nil {
			t.Fatal(err)
		}
	}
	d, err := plan.ParseDocument(b)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// only leaves the changes of some addresses in a document, and no change of an output.
func only(addresses ...string) func(map[string]any) {
	return func(doc map[string]any) {
		doc["resource_changes"] = slices.DeleteFunc(doc["resource_changes"].([]any), func(r any) bool {
			return !slices.Contains(addresses, r.(map[string]any)["address"].(string))
		})
		delete(doc, "output_changes")
	}
}

func actions(address string, actions ...any) func(map[string]any) {
	return func(doc map[string]any) {
		only(address)(doc)
		doc["resource_changes"].([]any)[0].(map[string]any)["change"].(map[string]any)["actions"] = actions
	}
}

func holds(rules ...string) []string { return rules }

// Which plans a stack that applies by itself applies without a person, under the guard
// maxDestroys: 0, and which of them a protection of all resources holds.
func TestWhatNeedsAPerson(t *testing.T) {
	for name, tt := range map[string]struct {
		doc       string
		edit      func(map[string]any)
		destroys  []string // rules that hold it under maxDestroys: 0
		protected []string // rules that hold it where all resources are protected
	}{
		"create":                {"plan.json", only("terraform_data.created"), nil, nil},
		"update":                {"plan.json", only("terraform_data.updated"), nil, nil},
		"no-op":                 {"unchanged.json", nil, nil, nil},
		"read":                  {"drift.json", only("data.local_file.late"), nil, nil},
		"delete":                {"plan.json", only("terraform_data.gone"), holds("maxDestroys"), holds("protected")},
		"destroy of the stack":  {"destroy.json", nil, holds("maxDestroys"), holds("protected")},
		"create before destroy": {"plan.json", only("terraform_data.replaced"), holds("maxDestroys"), holds("protected")},
		"destroy before create": {"plan.json", actions("terraform_data.replaced", "delete", "create"), holds("maxDestroys"), holds("protected")},
		"deposed object": {"plan.json", func(doc map[string]any) {
			only("terraform_data.gone")(doc)
			doc["resource_changes"].([]any)[0].(map[string]any)["deposed"] = "12ab34cd"
		}, holds("maxDestroys"), holds("protected")},
		"forget, by removed with destroy = false": {"plan.json", only("terraform_data.forgotten"), nil, holds("protected")},
		"replacement that forgets":                {"plan.json", actions("terraform_data.replaced", "create", "forget"), nil, holds("protected")},
		"move only":                               {"plan.json", only("terraform_data.new_name"), nil, nil},
		"output only": {"plan.json", func(doc map[string]any) {
			doc["resource_changes"] = []any{}
		}, nil, nil},
		"import": {"plan.json", only("terraform_data.adopted"), nil, nil},
		"deferred": {"plan.json", func(doc map[string]any) {
			only("terraform_data.gone")(doc)
			doc["deferred_changes"] = []any{map[string]any{"reason": "provider_config_unknown", "resource_change": doc["resource_changes"].([]any)[0]}}
			doc["resource_changes"] = []any{}
		}, nil, nil}, // it is not part of the apply
		"drift only": {"drift-found.json", func(doc map[string]any) {
			doc["resource_changes"] = []any{}
		}, nil, nil}, // what changed outside is not what the plan does
		"check block that fails": {"unchanged.json", func(doc map[string]any) {
			doc["checks"] = []any{map[string]any{"address": map[string]any{"kind": "check", "to_display": "check.up"}, "status": "fail",
				"instances": []any{map[string]any{"address": map[string]any{"to_display": "check.up"}, "status": "fail", "problems": []any{map[string]any{"message": "down"}}}}}}
		}, nil, nil},
		"everything at once": {"plan.json", nil, holds("maxDestroys"), holds("protected", "protected", "protected")},
	} {
		t.Run(name, func(t *testing.T) {
			f := FactsOf(recorded(t, tt.doc, tt.edit))
			for what, g := range map[string]struct {
				guards policy.Guards
				want   []string
			}{
				"maxDestroys": {policy.Guards{MaxDestroys: new(0)}, tt.destroys},
				"protected":   {policy.Guards{Protected: []policy.Protected{{Types: []string{"terraform_*", "tls_*", "local_*"}}}}, tt.protected},
			} {
				var got []string
				for _, finding := range Judge(Source{Policy: "ClusterPolicy/p"}, g.guards, f) {
					if finding.Effect != policy.Hold || finding.Error {
						t.Errorf("%s: %+v, want a hold", what, finding)
					}
					got = append(got, finding.Rule)
				}
				if d := cmp.Diff(got, g.want); d != "" {
					t.Errorf("%s holds %v, want %v", what, got, g.want)
				}
			}
		})
	}
}

// Each finding says the number, the limit, and which resources.
func TestMessages(t *testing.T) {
	all := FactsOf(recorded(t, "plan.json", nil)) // 2 destroyed, 1 replaced, of 8
	for name, tt := range map[string]struct {
		guards policy.Guards
		facts  Facts
		want   []string
	}{
		"replacements count as destroys": {policy.Guards{MaxDestroys: new(2)}, all,
			[]string{"maxDestroys: the plan destroys or replaces 3 resources, 2 are allowed: module.child.terraform_data.inner[0], terraform_data.gone, terraform_data.replaced"}},
		"unless they have a limit of their own": {policy.Guards{MaxDestroys: new(1), MaxReplaces: new(0)}, all,
			[]string{"maxDestroys: the plan destroys 2 resources, 1 is allowed: module.child.terraform_data.inner[0], terraform_data.gone",
				"maxReplaces: the plan replaces 1 resource, 0 are allowed: terraform_data.replaced"}},
		"within the limits": {policy.Guards{MaxDestroys: new(3), MaxDestroyedShare: new(38), MaxDestroysPerHour: new(3)}, all, nil},
		"share": {policy.Guards{MaxDestroyedShare: new(37)}, all,
			[]string{"maxDestroyedShare: the plan destroys or replaces 3 of 8 resources (37 %), 37 % are allowed: module.child.terraform_data.inner[0], terraform_data.gone, terraform_data.replaced"}},
		"share of a state that is not known": {policy.Guards{MaxDestroyedShare: new(37)}, Facts{Destroys: 1, Resources: -1},
			[]string{"maxDestroyedShare: the plan destroys 1 resource, and the document of the plan is too large to say of how many"}},
		"more than an hour allows": {policy.Guards{MaxDestroysPerHour: new(2)}, all,
			[]string{"maxDestroysPerHour: the plan destroys 3 resources, and 2 in an hour are allowed: module.child.terraform_data.inner[0], terraform_data.gone, terraform_data.replaced"}},
		"protected attributes": {policy.Guards{Protected: []policy.Protected{{Types: []string{"terraform_data"}, Addresses: []string{"terraform_data.updated"}, Attributes: []string{"input"}}}}, all,
			nil},
		"a resource that several protections cover": {policy.Guards{Protected: []policy.Protected{{Types: []string{"terraform_*"}}, {Addresses: []string{"terraform_data.gone"}}, {Addresses: []string{"module.child.*"}}}}, all,
			[]string{"protected: the plan destroys 2 protected resources: module.child.terraform_data.inner[0], terraform_data.gone",
				"protected: the plan replaces 1 protected resource: terraform_data.replaced",
				"protected: the plan forgets 1 protected resource: terraform_data.forgotten"}},
		"several protections of a document that was cut": {policy.Guards{Protected: []policy.Protected{{Types: []string{"a"}}, {Types: []string{"b"}}}}, Facts{Cut: true},
			[]string{"protected: the plan is too large for its document to have all changes, so protected resources may be among them"}},
		"a document that was cut": {policy.Guards{Protected: []policy.Protected{{Types: []string{"aws_db_*"}}}, MaxDestroys: new(5)}, Facts{Cut: true, Resources: -1}.Counted(9),
			[]string{"maxDestroys: the plan destroys 9 resources, 5 are allowed",
				"protected: the plan is too large for its document to have all changes, so protected resources may be among them"}},
		"replaces of a document that was cut": {policy.Guards{MaxReplaces: new(0)}, Facts{Cut: true, Resources: -1}.Counted(9),
			[]string{"maxReplaces: the plan destroys 9 resources, and the document of the plan is too large to say how many of them it replaces"}},
	} {
		if name == "protected attributes" {
			var touched []string
			for _, c := range all.Changes {
				if c.Address == "terraform_data.updated" {
					for _, d := range c.Diffs {
						if strings.HasPrefix(d.Path, "input") {
							touched = append(touched, d.Path)
						}
					}
				}
			}
			slices.Sort(touched)
			tt.want = []string{"protected: the plan updates protected attributes of 1 resource (" + list(touched) + "): terraform_data.updated"}
		}
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, f := range Judge(Source{Policy: "ClusterPolicy/p"}, tt.guards, tt.facts) {
				got = append(got, f.Rule+": "+f.Message)
			}
			if d := cmp.Diff(got, tt.want); d != "" {
				t.Error(d)
			}
		})
	}
}

// A guard that cannot be evaluated holds the plan, or denies it if that is what it does. A
// denial asks for no approval.
func TestEffects(t *testing.T) {
	source := Source{Policy: "Policy/team-a/p", Approval: &policy.Approval{Count: 2}}
	f := FactsOf(recorded(t, "plan.json", nil))
	deny := Judge(source, policy.Guards{MaxDestroys: new(0), Effect: policy.Deny}, f)
	if policy.Combine(deny) != policy.Deny || deny[0].Approval != nil {
		t.Errorf("Judge() = %+v, want a denial without approval", deny)
	}
	broken := Judge(source, policy.Guards{MaxDestroyedShare: new(50)}, Facts{Destroys: 1, Resources: -1})
	if policy.Combine(broken) != policy.Hold || !broken[0].Error || broken[0].Approval == nil {
		t.Errorf("Judge() = %+v, want a hold by an error", broken)
	}
	broken = Judge(source, policy.Guards{MaxDestroyedShare: new(50), Effect: policy.Deny}, Facts{Destroys: 1, Resources: -1})
	if policy.Combine(broken) != policy.Deny || !broken[0].Error || broken[0].Approval != nil {
		t.Errorf("Judge() = %+v, want a denial by an error", broken)
	}
	source.DryRun = true
	if dry := Judge(source, policy.Guards{MaxDestroys: new(0), Effect: policy.Deny}, f); len(dry) != 1 || policy.Combine(dry) != "" {
		t.Errorf("Judge() = %+v, want a finding that changes nothing", dry)
	}
}
