package controller

import (
	"slices"
	"testing"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/schedule"
)

// The first stack of a tenant is reconciled before the hundredth of another; the
// second one is not, or all would be first.
func TestNewcomersAreReconciledFirst(t *testing.T) {
	queue := queueOf(1)
	c := takeApart(&Stacks{Queue: queue, Dialects: dialect.NewRegistry(infra.Dialect{})})
	ref := func(key types.NamespacedName) schedule.Key { return objectRef{infra.Dialect{}, key}.scheduleKey() }
	q := priorityqueue.New("newcomers", func(o *priorityqueue.Opts[reconcile.Request]) { o.Log = logr.Discard() })
	defer q.ShutDown()
	created := func(namespace, name string, initial bool) {
		o := &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		q.Add(reconcile.Request{NamespacedName: nn(namespace, name)}) // as the controller's own handler does
		c.newcomer(t.Context(), event.CreateEvent{Object: o, IsInInitialList: initial}, q)
	}
	for _, name := range []string{"1", "2", "3"} {
		created("a", name, false)
	}
	created("old", "1", true)
	created("b", "1", false)
	created("b", "2", false)
	var got []string
	next := func() {
		r, priority, _ := q.GetWithPriority()
		c.watches.newcomers.Reconciled(ref(r.NamespacedName))
		q.Done(r)
		if priority == newcomerPriority {
			got = append(got, r.String())
		}
	}
	next()
	next()
	created("b", "3", false) // b/1 was reconciled and asked for nothing
	next()
	slices.Sort(got)
	if want := []string{"a/1", "b/1", "b/3"}; !slices.Equal(got, want) {
		t.Errorf("these went first: %v, want %v", got, want)
	}

	queue.Admit("a-1", schedule.Candidate{Key: ref(nn("a", "1")), Tenant: "a"})
	if queue.Idle("a") || !queue.Idle("b") {
		t.Error("a has a run, and b has nothing")
	}
}
