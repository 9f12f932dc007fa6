package service

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// reasons reads all constants of type Reason from the source of the core.
func reasons(t *testing.T) []stack.Reason {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../stack/decision.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []stack.Reason
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "Reason" {
			return true
		}
		for _, v := range spec.Values {
			text, err := strconv.Unquote(v.(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, stack.Reason(text))
		}
		return true
	})
	return out
}

func TestEveryReasonIsExplained(t *testing.T) {
	all := reasons(t)
	if len(all) < 30 {
		t.Fatalf("only %d reasons were found in the source", len(all))
	}
	for _, r := range all {
		if s := Explained(r); !strings.HasSuffix(s.Means, ".") {
			t.Errorf("%s means %q, want a sentence", r, s.Means)
		}
	}
	for r := range situations {
		if !slices.Contains(all, r) {
			t.Errorf("%s is explained and is no reason", r)
		}
	}
}

func TestEveryRuleHasItsText(t *testing.T) {
	var got []string
	for _, r := range Rules() {
		got = append(got, r.Rule)
		if !strings.HasSuffix(r.Why, ".") {
			t.Errorf("%q: why is %q, want sentences", r.Rule, r.Why)
		}
	}
	if diff := cmp.Diff(got, stack.Rules()); diff != "" {
		t.Errorf("rules (-texts +rules):\n%s", diff)
	}
}

// What is said of a rule is what it does, whatever is observed.
func TestRulesDoWhatIsSaidOfThem(t *testing.T) {
	met := map[string]bool{}
	texts := map[string]RuleText{}
	for _, r := range Rules() {
		texts[r.Rule] = r
	}
	rapid.Check(t, func(t *rapid.T) {
		for range 50 {
			d := stack.Decide(observation(t))
			met[d.Rule] = true
			said := texts[d.Rule]
			if does := ActionText(d.Action); !strings.Contains(said.Does, does) {
				t.Fatalf("%q does %q, the text says %q", d.Rule, does, said.Does)
			}
			if said.Reasons != nil && !slices.Contains(said.Reasons, d.Reason) {
				t.Fatalf("%q shows itself as %s, the text says %v", d.Rule, d.Reason, said.Reasons)
			}
		}
	})
	if len(met) != len(texts) {
		t.Errorf("only %d of %d rules were met", len(met), len(texts))
	}
}

// observation draws from domains that are small enough for every rule to be met.
func observation(t *rapid.T) stack.Observation {
	rarely := func(what string) bool { return rapid.IntRange(0, 7).Draw(t, what) == 0 }
	pick := func(what string, from ...string) string { return rapid.SampledFrom(from).Draw(t, what) }
	ago := func(what string) time.Time {
		return time.Unix(1e9-int64(rapid.SampledFrom([]int{10, 7200}).Draw(t, what)), 0)
	}
	basis := func(what string) stack.Basis { return stack.Basis{Source: pick(what, "s1", "s1", "s2")} }
	one := 1
	o := stack.Observation{
		Now: time.Unix(1e9, 0), Basis: basis("basis"), Deleting: rapid.IntRange(0, 3).Draw(t, "deleting") == 0, CheckedAt: ago("checked"), Unwritten: rarely("unwritten"),
		Spec: stack.Spec{
			Mode:  rapid.SampledFrom([]stack.Mode{stack.Auto, stack.Manual, stack.PlanOnly, stack.DriftOnly}).Draw(t, "mode"),
			Force: rarely("force"), Suspended: rarely("suspended"), Destroy: rarely("destroy"), DestroyLast: rapid.Bool().Draw(t, "destroyLast"),
			CheckDrift: !rarely("noDrift"), Approved: pick("approved", "", "p1"), Outputs: pick("outputs", "", "o"),
			Interval: time.Hour, RetryEvery: time.Minute, RetryMax: time.Hour, Unlock: stack.Unlock{Auto: rapid.Bool().Draw(t, "unlock")},
		},
		Memory: stack.Memory{
			Planned: basis("planned"), PlannedAt: ago("plannedAt"), AppliedAt: ago("appliedAt"), Built: rapid.Bool().Draw(t, "built"),
			State: "st", Destroyed: rarely("destroyed"), Clean: rarely("clean"), Published: pick("published", "", stack.Publication("o", "st")),
		},
	}
	if rarely("limit") {
		o.Spec.MaxRetries = &one
	}
	if rapid.Bool().Draw(t, "pending") {
		o.Memory.Pending = &stack.Plan{Name: pick("plan", "p1", "p2"), Digest: "d", Basis: basis("pendingBasis")}
		if rarely("drift") {
			o.Memory.Drift = &stack.Drift{}
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "failed") == 0 {
		o.Memory.Failures, o.Memory.FailedAt, o.Memory.FailedFor = rapid.IntRange(1, 3).Draw(t, "failures"), ago("failedAt"), basis("failedFor")
		if rapid.Bool().Draw(t, "lock") {
			o.Memory.Lock = &stack.Lock{ID: "l"}
		}
	}
	if rarely("applied") {
		o.Memory.Applied = &stack.Plan{Basis: basis("appliedBasis")}
	}
	if rarely("gap") {
		o.Memory.Gap = &stack.Gap{Run: "r0", Source: "s1", Objects: []stack.Unrecorded{{Address: "a"}}}
	}
	if rarely("blocked") {
		o.Blocked = &stack.Blocked{Kind: fault.Missing, Reason: rapid.SampledFrom(blockedBy).Draw(t, "reason")}
	}
	if rarely("waiting") {
		o.Waiting = &stack.Blocked{Kind: fault.Later, Reason: stack.DependencyNotReady}
	}
	if rarely("dependents") {
		o.Dependents = []string{"b"}
	}
	if rarely("run") {
		o.Run = &stack.Run{ID: "r", Kind: rapid.SampledFrom([]stack.RunKind{stack.PlanRun, stack.CheckRun, stack.ApplyRun, stack.DestroyRun}).Draw(t, "kind")}
	}
	if rarely("request") {
		o.Request = "t1"
	}
	return o
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
		"one that is watched is looked at":      {"  approvePlan: disable\n", []string{"look for drift", "wait"}},
		"a suspended one rests":                 {"  suspend: true\n", []string{"wait"}},
		"a spoilt one waits for an edit":        {"  workspace: --evil\n", []string{"wait"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ExplainManifest([]byte(header+tt.spec), time.Unix(1e9, 0))
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
			if _, err := ExplainManifest([]byte(content), time.Unix(1e9, 0)); fault.Of(err) != fault.Invalid {
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
	got, err := ExplainManifest([]byte(content), time.Unix(1e9, 0))
	if err != nil {
		t.Fatal(err)
	}
	if got[0].Stack.Phase != string(stack.AwaitingApproval) || !slices.Contains(got[0].Facts, "the plan plan-main-b8e362c206 waits: 0 to add, 0 to change, 3 to destroy") {
		t.Errorf("phase %s, facts %q; want a plan that waits and what it would do", got[0].Stack.Phase, got[0].Facts)
	}
}
