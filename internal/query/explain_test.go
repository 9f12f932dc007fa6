package query

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

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
