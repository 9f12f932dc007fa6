package query

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
)

// cached answers lists as the controllers' cache does: all at once, and sharing
// what it holds.
type cached struct {
	client.WithWatch
	tenants []tenantsv1.Tenant
}

func (c cached) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if l, ok := list.(*tenantsv1.TenantList); ok {
		l.Items = append([]tenantsv1.Tenant(nil), c.tenants...)
	}
	return nil
}

// BenchmarkTenantsList is the cost of listing ten thousand tenants before any of
// them is shown.
func BenchmarkTenantsList(b *testing.B) {
	var c cached
	for i := range many {
		o := tenantsv1.Tenant{ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("region-%02d", i%20), Name: fmt.Sprintf("t-%05d-web", i*7919%many),
			Labels:      map[string]string{tenantsv1.LabelRegistry: "customers", "tier": "gold"},
			Annotations: map[string]string{tenantsv1.AnnotationTemplateGeneration: "4"},
		}}
		o.Spec.UID, o.Spec.TemplateRef = fmt.Sprint("t-", i), "web"
		o.Status.ReadyResources, o.Status.DesiredResources = 6, 6
		o.Status.Conditions = []metav1.Condition{
			{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Reconciled", LastTransitionTime: metav1.NewTime(day)},
			{Type: "Progressing", Status: metav1.ConditionFalse, Reason: "Reconciled"}, {Type: "Conflicted", Status: metav1.ConditionFalse, Reason: "NoConflict"},
		}
		c.tenants = append(c.tenants, o)
	}
	t := NewTenants(New(c, kinds.All(), nil, time.Now), nil)
	b.ReportAllocs()
	for b.Loop() {
		if list, err := t.List(b.Context(), TenantFilter{}); err != nil || len(list.Items) != many {
			b.Fatal(len(list.Items), err)
		}
	}
}

// BenchmarkStacksOfTenants counts the stacks of a hundred tenants among ten
// thousand that have one each.
func BenchmarkStacksOfTenants(b *testing.B) {
	const label = "terrier.dev/tenant-id"
	board := newBoard()
	var shown []string
	for i := range many {
		o := usual(i)
		o.Labels[label] = fmt.Sprintf("t-%05d", i)
		board.Set(o)
		if i%100 == 0 {
			shown = append(shown, o.Labels[label])
		}
	}
	board.Synced()
	b.ReportAllocs()
	for b.Loop() {
		if groups, err := board.Tally(access.Everything, label, shown); err != nil || len(groups) != len(shown) {
			b.Fatal(len(groups), err)
		}
	}
}
