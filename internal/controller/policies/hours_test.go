package policies

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	alustanv1alpha1 "github.com/terrier-iac/terrier/api/alustan/v1alpha1"
	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// What the stacks of a tenant destroyed within the last hour counts, from their statuses and
// from the runs that began here. The plan waits until so much of it is older than an hour
// that it fits in.
func TestSpent(t *testing.T) {
	c := testkit.Kube(t, v1alpha2.AddToScheme, alustanv1alpha1.AddToScheme)
	p := having(t, nil)
	p.cache = c.Client
	now := p.Now().UTC()
	applied := now.Add(-30 * time.Minute)
	s := &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "a"}}
	s.Spec.Interval = &metav1.Duration{Duration: time.Hour}
	s.Spec.SourceRef = &v1alpha2.SourceRef{Kind: "GitRepository", Name: "code"}
	if err := c.Client.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	var status stack.Status
	status.Applied, status.AppliedAt = &stack.Plan{Name: "p", Digest: "d", Changes: stack.Changes{Destroy: 3}}, applied
	p.Dialects.For(s).Encode(s, dialect.Summary{Status: status, Now: now})
	if err := c.Client.Status().Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}

	of := stackOf(c.Namespace, "b", nil, nil)
	check := func(what string, n int, want time.Time) {
		t.Helper()
		got, err := p.Spent(t.Context(), of, []PerHour{{Policy: "ClusterPolicy/p", Tenant: c.Namespace, Most: 5}}, n)
		if err != nil {
			t.Fatal(err)
		}
		if !got.Until.Equal(want) || got.None() != want.IsZero() {
			t.Errorf("%s: Spent() = %+v, want %s", what, got, want)
		}
		if !want.IsZero() && (got.Rule != policy.MaxDestroysPerHour || !strings.Contains(got.Why, "within the last hour")) {
			t.Errorf("%s: Spent() = %+v", what, got)
		}
	}
	check("it fits in", 2, time.Time{})
	check("a stack has destroyed too much", 3, applied.Add(time.Hour))
	check("more than an hour allows is for an approval", 6, time.Time{})
	check("it destroys nothing", 0, time.Time{})
	p.Began(stackOf(c.Namespace, "c", nil, nil), 2)
	check("a run that began counts as well", 2, applied.Add(time.Hour))
	check("and until both fit in", 4, now.Add(time.Hour))
	p.Began(stackOf("elsewhere", "d", nil, nil), 100)
	check("another tenant does not count", 2, applied.Add(time.Hour))
}
