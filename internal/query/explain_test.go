package query

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/stack/stacktest"
)

func TestEveryReasonIsExplained(t *testing.T) {
	all := stacktest.Reasons(t, "../stack")
	if len(all) < 30 {
		t.Fatalf("only %d reasons were found in the source", len(all))
	}
	for _, r := range all {
		if s := situations[r]; !strings.HasSuffix(s.Means, ".") || strings.Contains(s.Means, "{") {
			t.Errorf("%s means %q, want a sentence that names no field", r, s.Means)
		}
	}
	for r := range situations {
		if !slices.Contains(all, r) {
			t.Errorf("%s is explained and is no reason", r)
		}
	}
}

// An explanation before the first pass says that it is too early.
func TestAStackBeforeItsFirstPassIsExplained(t *testing.T) {
	got := Explained("", stack.Words{})
	if !strings.Contains(got.Means, "not reconciled the stack yet") || !strings.Contains(got.Do, "terrier up") {
		t.Errorf("Explained() = %+v, want that it is too early, and what to do if it stays", got)
	}
}

func TestEveryRuleHasItsText(t *testing.T) {
	var got []string
	for _, r := range Rules() {
		got = append(got, r.Rule)
		if !strings.HasSuffix(r.Why, ".") && r.Why != "{pause}" {
			t.Errorf("%q: why is %q, want sentences", r.Rule, r.Why)
		}
	}
	if diff := cmp.Diff(got, stack.Rules()); diff != "" {
		t.Errorf("rules (-texts +rules):\n%s", diff)
	}
}

// enough draws meet every rule, the rarest of which fires once in some thousand.
const enough = 50_000

// What is said of a rule is what it does, whatever is observed. Observations are
// drawn at random, to find unexpected ones, and from fixed seeds, which meet every
// rule each time. All seeds are tried, so that a rule is met in more than one situation.
func TestRulesDoWhatIsSaidOfThem(t *testing.T) {
	texts := map[string]RuleText{}
	for _, r := range Rules() {
		texts[r.Rule] = r
	}
	check := func(t interface{ Fatalf(string, ...any) }, d stack.Decision) {
		said := texts[d.Rule]
		if does := actionText(d.Action); !strings.Contains(said.Does, does) {
			t.Fatalf("%q does %q, the text says %q", d.Rule, does, said.Does)
		}
		if said.Reasons != nil && !slices.Contains(said.Reasons, d.Reason) {
			t.Fatalf("%q shows itself as %s, the text says %v", d.Rule, d.Reason, said.Reasons)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		for range 200 {
			check(t, stack.Decide(stacktest.Observation(t)))
		}
	})
	unmet := maps.Clone(texts)
	observations := rapid.Custom(stacktest.Observation)
	for seed := range enough {
		d := stack.Decide(observations.Example(seed))
		check(t, d)
		delete(unmet, d.Rule)
	}
	for rule := range unmet {
		t.Errorf("the rule %q was not met", rule)
	}
}

const header = "apiVersion: infra.contrib.fluxcd.io/v1alpha2\nkind: Terraform\nmetadata: {name: net, namespace: apps}\nspec:\n  sourceRef: {kind: GitRepository, name: modules}\n"

func TestExplainManifest(t *testing.T) {
	for name, tt := range map[string]struct {
		spec string
		want []string // the story
	}{
		"a stack without approval waits for it": {"", []string{"plan", "wait", "apply", "wait"}},
		"an automatic one goes on by itself":    {"  approvePlan: auto\n", []string{"plan", "apply", "wait"}},
		"outputs come after the apply":          {"  approvePlan: auto\n  writeOutputsToSecret: {name: out}\n", []string{"plan", "apply", "write outputs", "wait"}},
		"one that only plans stops there":       {"  planOnly: true\n", []string{"plan", "wait"}},
		"one that is watched is looked at":      {"  approvePlan: disable\n", []string{"check for drift", "wait"}},
		"a suspended one rests":                 {"  suspend: true\n", []string{"wait"}},
		"a spoilt one waits for an edit":        {"  workspace: --evil\n", []string{"wait"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ExplainManifest([]byte(header+tt.spec), kinds.All(), time.Unix(1e9, 0))
			if err != nil {
				t.Fatal(err)
			}
			var does []string
			for _, s := range got[0].Story {
				does = append(does, s.Does)
			}
			if diff := cmp.Diff(does, tt.want); diff != "" {
				t.Errorf("story (-got +want):\n%s", diff)
			}
			var fires []string
			for _, r := range got[0].Rules {
				if r.Fires {
					fires = append(fires, r.Rule)
				}
			}
			if len(fires) != 1 || fires[0] != got[0].Story[0].Rule || got[0].Means.Means == "" {
				t.Errorf("fires %q and means %+v, want the first rule of the story, explained", fires, got[0].Means)
			}
		})
	}
}

func TestExplainManifestRefuses(t *testing.T) {
	for name, content := range map[string]string{
		"what is no YAML":       "a: [",
		"what holds no stack":   "apiVersion: v1\nkind: Secret\n",
		"a field that is wrong": header + "  aprovePlan: auto\n",
		"nothing":               "",
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ExplainManifest([]byte(content), kinds.All(), time.Unix(1e9, 0)); fault.Of(err) != fault.Invalid {
				t.Errorf("ExplainManifest() is %v, want it to be invalid", err)
			}
		})
	}
}

// A manifest that was exported with its status goes on from there.
func TestExplainManifestWithStatus(t *testing.T) {
	content := header + `status:
  plan: {pending: plan-main-b8e362c206}
  terrier:
    memory:
      planned: {source: "sha256:1"}
      pending: {name: plan-main-b8e362c206, digest: "sha256:2", basis: {source: "sha256:1"}, changes: {destroy: 3}}
`
	got, err := ExplainManifest([]byte(content), kinds.All(), time.Unix(1e9, 0))
	if err != nil {
		t.Fatal(err)
	}
	if got[0].Stack.Phase != string(stack.AwaitingApproval) || !slices.Contains(got[0].Facts, "the plan plan-main-b8e362c206 is pending: 0 to add, 0 to change, 3 to destroy") {
		t.Errorf("phase %s, facts %q; want a plan that waits and what it would do", got[0].Stack.Phase, got[0].Facts)
	}
}
