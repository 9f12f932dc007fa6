package controller

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/stack"
)

// The audit log and notifications say which rules of which policies hold a plan, how severe
// that is, and where the rules are explained.
func TestWhatIsToldOfAVerdict(t *testing.T) {
	made := &stack.Plan{Name: "plan-main-1", Digest: "sha256:p", Run: "plan-1", Changes: stack.Changes{Destroy: 2}}
	v := stack.Verdict{Plan: "sha256:p", Digest: "sha256:v", Held: true, Findings: []policy.Finding{
		{Policy: "ClusterPolicy/p", Rule: "maxDestroys", Effect: policy.Hold, Severity: policy.High, Link: "https://example.com/a"},
		{Policy: "ClusterPolicy/q", Rule: "tags", Effect: policy.Hold, Severity: policy.Low, Link: "https://example.com/b"},
		{Policy: "ClusterPolicy/q", Rule: "tags", Effect: policy.Hold, Severity: policy.Low, Link: "https://example.com/a"},
		{Policy: "ClusterPolicy/q", Rule: "names", Effect: policy.Warn, Link: "https://example.com/c"},
	}}
	const rules = "ClusterPolicy/p: maxDestroys, ClusterPolicy/q: tags"
	facts := verdictFacts(v, made)
	for name, want := range map[string]string{
		"plan": "plan-main-1", "policies": "ClusterPolicy/p, ClusterPolicy/q", "rules": rules, "severity": policy.High, "links": "https://example.com/a https://example.com/b",
	} {
		if facts[name] != want {
			t.Errorf("the fact %s is %q, want %q", name, facts[name], want)
		}
	}
	e := verdictEntry(&v, made)
	if e.Plan != made.Name || e.Run != made.Run || e.Changes.Destroy != 2 || e.Details["rules"] != rules {
		t.Errorf("the entry is %+v, want the plan, its run and the rules", e)
	}
	other := *made
	other.Digest = "sha256:o"
	if e := verdictEntry(&v, &other); e.Plan != "" || e.Digest != v.Plan {
		t.Errorf("the entry is %+v, want that it names no other plan", e)
	}
	if d := cmp.Diff(verdictFacts(stack.Verdict{Refused: true}, made)["rules"], ""); d != "" {
		t.Errorf("a webhook has rules: %s", d)
	}
}
