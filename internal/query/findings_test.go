package query

import (
	"testing"

	"github.com/terrier-iac/terrier/internal/policy"
)

// The verb fits its subject: a policy holds, and annotations hold.
func TestTheVerbFitsItsSubject(t *testing.T) {
	for want, f := range map[string]policy.Finding{
		"holds":                {Policy: "ClusterPolicy/p", Effect: policy.Hold},
		"denies":               {Policy: "ClusterPolicy/p", Effect: policy.Deny},
		"warns":                {Policy: "ClusterPolicy/p", Effect: policy.Warn},
		"allows":               {Policy: "ClusterPolicy/p", Effect: policy.Allow},
		"hold":                 {Policy: policy.OwnGuards, Effect: policy.Hold},
		"deny":                 {Policy: policy.OwnGuards, Effect: policy.Deny},
		"holds: not evaluated": {Policy: "ClusterPolicy/p", Effect: policy.Hold, Error: true},
		"deny: not evaluated":  {Policy: policy.OwnGuards, Effect: policy.Deny, Error: true},
		"dry run: deny":        {Policy: "ClusterPolicy/p", Effect: policy.Deny, DryRun: true},
	} {
		if got := EffectText(f); got != want {
			t.Errorf("EffectText(%+v) = %q, want %q", f, got, want)
		}
	}
}

// An entry about a verdict names the plan and the policies.
func TestAnEntryAboutAVerdictSaysWhatItIsAbout(t *testing.T) {
	for want, e := range map[string]AuditEntry{
		"plan-main-1; by ClusterPolicy/p: maxDestroys": {What: "plan-held", Plan: "plan-main-1", Details: map[string]string{"rules": "ClusterPolicy/p: maxDestroys", "policies": "ClusterPolicy/p", "verdict": "sha256:1"}},
		"by a webhook":                            {What: "plan-refused", Details: map[string]string{"webhooks": "sha256:1"}},
		"plan-main-1; held by ClusterPolicy/p":    {What: "applied", Plan: "plan-main-1", Details: map[string]string{"held-by": "ClusterPolicy/p"}},
		"plan-main-1; allowed by ClusterPolicy/p": {What: "applied", Plan: "plan-main-1", Details: map[string]string{"allowed-by": "ClusterPolicy/p"}},
	} {
		if got := AuditAbout(e); got != want {
			t.Errorf("AuditAbout() = %q, want %q", got, want)
		}
	}
}
