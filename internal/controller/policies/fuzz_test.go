package policies

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/policy/v1alpha1"
	"github.com/terrier-iac/terrier/internal/review"
)

// FuzzPolicy: whatever a ClusterPolicy or a Policy says, no limit that it sets is left out. One
// that cannot be read holds or denies the plans of all stacks that it may be meant for.
func FuzzPolicy(f *testing.F) {
	for _, seed := range []string{
		`{}`,
		`{"guards": {"maxDestroys": 0, "maxReplaces": -1, "maxDestroysPerHour": 2147483647, "effect": "Deny"}}`,
		`{"guards": {"maxDestroyedShare": "20%"}, "onError": "Deny"}`,
		`{"guards": {"maxDestroyedShare": "+5%"}, "mode": "DryRun"}`,
		`{"guards": {"maxDestroyedShare": "1e2%"}}`,
		`{"guards": {"protected": [{"types": ["aws_db_*"], "attributes": ["a.*.b"]}, {"addresses": ["***"]}, {}]}}`,
		`{"guards": {"windows": [{"days": ["Mon", "Sun"], "from": "08:00", "to": "24:00", "timeZone": "Europe/Berlin"}]}}`,
		`{"guards": {"windows": [{"from": "18:00", "to": "08:00"}]}}`,
		`{"guards": {"windows": [{"days": ["Tod"], "from": "0:000", "to": "99:99", "timeZone": "../../etc/passwd"}]}}`,
		`{"guards": {"freezes": [{"from": "2026-12-20T00:00:00Z", "to": "2027-01-03T00:00:00Z", "reason": "end of the year"}], "windowOverride": {"count": 2}}}`,
		`{"guards": {"freezes": [{"from": "2027-01-03T00:00:00Z", "to": "2026-12-20T00:00:00Z"}]}}`,
		`{"guards": {"freezes": [{"from": null, "to": null}]}}`,
		`{"guards": {"minSourceAge": "24h", "maxPlanAge": "90m"}}`,
		`{"guards": {"minSourceAge": "-24h", "maxPlanAge": "0s"}}`,
		`{"guards": {"requireSignedSource": {"keys": ["sha256:00", "SHA256:mVPwvezndPv/ARoIadVY98vAC0g+P/5633yTC4d/wXE"], "identities": [{"issuer": "i", "subject": "*", "trustedRoot": "x"}]}}}`,
		`{"guards": {"requireSignedSource": {}}}`,
		`{"guards": {"maxDestroys": 0}, "selector": {"namespaces": ["team-*"], "tenants": ["*"], "environments": [""], "kinds": ["alustan.io"]}}`,
		`{"guards": {"maxDestroys": 0}, "selector": {"stackSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}}`,
		`{"guards": {"maxDestroys": 0}, "selector": {"namespaceSelector": {"matchLabels": {"": "\u0000"}}}}`,
		`{"guards": {}, "approval": {"count": -5, "groups": [""], "notRequester": true, "expires": "-1h"}}`,
		`{"rego": {"modules": {"a": "package terrier"}, "parameters": {"a": [1e400]}, "format": "other"}}`,
		`{"rego": {"sourceRef": {"kind": "Bucket", "name": "..", "namespace": "b"}, "digest": "x"}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var spec v1alpha1.PolicySpec
		if json.Unmarshal([]byte(text), &spec) != nil {
			return // the API server stores no such object
		}
		for _, obj := range []client.Object{
			clusterPolicy("p", *spec.DeepCopy()),
			&v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "p"}, Spec: *spec.DeepCopy()},
		} {
			p := having(t, nil, obj)
			c := p.now.Load().policies[0]
			stack := stackOf("team-a", "net", nil, nil)
			set, err := p.For(t.Context(), stack)
			if err != nil {
				t.Fatal(err)
			}
			set.Times.Withhold(p.Now(), p.Now())
			set.Times.Outdates(p.Now(), p.Now())
			selected := slices.ContainsFunc(judges(t, p, stack), func(name string) bool { return strings.TrimPrefix(name, "Policy/team-a/") == "p" })
			switch a := asked(t, p, stack, "unchanged.json"); {
			case c.broken == "":
				keepsAll(t, spec.Guards, c)
			case strings.HasPrefix(c.broken, "spec.selector") && !selected:
				t.Errorf("the selector cannot be read (%s), and the policy selects no stack", c.broken)
			case selected && !c.source.DryRun && a.Outcome != review.Hold && a.Outcome != review.Refuse:
				t.Errorf("the policy cannot be read (%s), and the plan passes: %+v", c.broken, a)
			}
		}
	})
}

// keepsAll checks that a policy that was read has each limit that its object sets.
func keepsAll(t *testing.T, g *v1alpha1.Guards, c *compiled) {
	t.Helper()
	if g == nil {
		return
	}
	for name, lost := range map[string]bool{
		"maxDestroys":         g.MaxDestroys != nil && (c.guards.MaxDestroys == nil || *c.guards.MaxDestroys != int(*g.MaxDestroys)),
		"maxReplaces":         g.MaxReplaces != nil && (c.guards.MaxReplaces == nil || *c.guards.MaxReplaces != int(*g.MaxReplaces)),
		"maxDestroysPerHour":  g.MaxDestroysPerHour != nil && (c.guards.MaxDestroysPerHour == nil || *c.guards.MaxDestroysPerHour != int(*g.MaxDestroysPerHour)),
		"maxDestroyedShare":   g.MaxDestroyedShare != "" && c.guards.MaxDestroyedShare == nil,
		"protected":           len(c.guards.Protected) != len(g.Protected),
		"requireSignedSource": g.RequireSignedSource != nil && (c.guards.SignedSource == nil || len(c.guards.SignedSource.Keys) != len(g.RequireSignedSource.Keys) || len(c.guards.SignedSource.Identities) != len(g.RequireSignedSource.Identities)),
		"windows":             len(g.Windows) > 0 && (len(c.times.Windows) != 1 || len(c.times.Windows[0].Any) != len(g.Windows)),
		"freezes":             len(c.times.Freezes) != len(g.Freezes),
		"minSourceAge":        g.MinSourceAge != nil && g.MinSourceAge.Duration != 0 && len(c.times.SourceAge) != 1,
		"maxPlanAge":          g.MaxPlanAge != nil && g.MaxPlanAge.Duration != 0 && len(c.times.PlanAge) != 1,
	} {
		if lost {
			t.Errorf("spec.guards.%s is set, and the policy that was read does not have it: %+v, %+v", name, c.guards, c.times)
		}
	}
	for _, freeze := range c.times.Freezes {
		if !freeze.From.Before(freeze.To) {
			t.Errorf("the freeze %+v never holds", freeze)
		}
	}
}
