package controller

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
)

// A new stack in automatic mode sends no more requests than these to the API server,
// from its first pass until it is applied and its outputs are published. Each
// request costs some milliseconds of processor time, which is most of what a
// thousand new stacks cost.
func TestANewStackAsksTheServerLittle(t *testing.T) {
	l := newFrugal(t, "net")
	l.creates(t)
	within := func(what string, most map[string]int) {
		t.Helper()
		made := map[string]int{}
		for _, r := range l.made.Take() {
			if r.Resource() != "" {
				made[r.Method+" "+r.Resource()]++
			}
		}
		for request, n := range made {
			if n > most[request] {
				t.Errorf("%s: %d times %s, want at most %d", what, n, request, most[request])
			}
		}
	}
	l.applies(t, 1)
	l.looks(t)
	within("a new stack", map[string]int{
		"PATCH terraforms":        1, // the finalizer
		"PATCH terraforms/status": 3, // that it is looked after; the plan; that it was applied, and its outputs are published
		"GET terraforms":          2, // before the apply, and before the outputs are written
		"GET secrets":             2, // the state, for the plan, and under the lock
		"GET leases":              1, // whether another client holds the lock, which a plan does not need
		"POST leases":             1,
		"PUT leases":              1,
		"POST secrets":            2,
	})
	if want := []string{"TerraformOutputsWritten", "TerraformAppliedSucceed"}; !slices.Equal(l.said.all, want) {
		t.Errorf("told are %v, want %v", l.said.all, want)
	}
	obj := l.stored(t)
	if ok, why := (infra.Dialect{}).Ready(obj); !ok {
		t.Errorf("it is not ready: %s", why)
	}

	// Its outputs are written, which wakes it.
	l.looks(t)
	within("a stack at rest", nil)

	obj.Spec.Values = inline(`output "host" { value = "i" }`)
	if err := l.k.Client.Update(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	l.applies(t, 2)
	l.looks(t)
	within("a stack that was changed", map[string]int{
		"PATCH terraforms/status": 3,
		"GET terraforms":          3, // also who changed it, for the audit log
		"GET secrets":             5, // also that of the outputs, and lists of plans that were published
		"GET configmaps":          2, // these lists
		"GET leases":              1,
		"PUT leases":              2,
		"PUT secrets":             2,
	})

	for what, change := range map[string]func(*corev1.Secret){
		"are changed": func(s *corev1.Secret) { s.Data["host"] = []byte("spoilt") },
		"are put in order again by hand": func(s *corev1.Secret) {
			s.Labels = map[string]string{"by": "hand"}
		},
	} {
		var secret corev1.Secret
		key := types.NamespacedName{Namespace: l.key.Namespace, Name: "net-outputs"}
		if err := l.k.Client.Get(t.Context(), key, &secret); err != nil {
			t.Fatal(err)
		}
		change(&secret)
		if err := l.k.Client.Update(t.Context(), &secret); err != nil {
			t.Fatal(err)
		}
		l.looks(t)
		if data, _, err := kube.ReadSecret(t.Context(), l.k.Client, key); err != nil || string(data["host"]) != "h2" {
			t.Errorf("after the outputs %s they are %q, %v; want what was applied", what, data, err)
		}
		l.made.Take()
		l.looks(t)
		within("a stack whose outputs "+what, nil)
	}
	if l.wait <= 0 {
		t.Error("it is never looked at again")
	}
}

// The outputs of an apply are published after the audit log has the apply, although
// both happen in one pass.
func TestOutputsAreShownOnTheRecord(t *testing.T) {
	l := newFrugal(t, "net")
	l.creates(t)
	l.applies(t, 1)
	l.book.full = true
	l.looks(t)
	key := types.NamespacedName{Namespace: l.key.Namespace, Name: "net-outputs"}
	if data, _, err := kube.ReadSecret(t.Context(), l.k.Client, key); fault.Of(err) != fault.Missing {
		t.Errorf("off the record the outputs are %q, %v; want none", data, err)
	}
	if l.runs.report == nil || l.wait <= 0 {
		t.Error("the apply is forgotten, and was not recorded")
	}
	l.book.full = false
	l.looks(t)
	if data, _, err := kube.ReadSecret(t.Context(), l.k.Client, key); err != nil || string(data["host"]) != "h1" {
		t.Errorf("on the record the outputs are %q, %v; want what was applied", data, err)
	}
	if !slices.Contains(l.book.whats(), audit.Applied) || l.runs.report != nil {
		t.Errorf("recorded is %v, and at work is %v; want the apply recorded and forgotten", l.book.whats(), l.runs.report)
	}
	if ok, why := (infra.Dialect{}).Ready(l.stored(t)); !ok {
		t.Errorf("it is not ready: %s", why)
	}
}

// An object that was changed while its apply went on does not get outputs that
// are not asked for any more.
func TestOutputsThatAreNoLongerWantedAreNotShown(t *testing.T) {
	l := newFrugal(t, "net")
	l.creates(t)
	l.applies(t, 1)
	old := l.stored(t)
	obj := old.DeepCopy()
	obj.Spec.WriteOutputsToSecret = nil
	if err := l.k.Client.Update(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	cache := l.loader.cache
	l.loader.cache = aged{cache, old}
	l.looks(t)
	l.loader.cache = cache
	if l.looks(t); l.runs.report != nil {
		t.Errorf("at work is %v, want the apply taken over", l.runs.report)
	}
	key := types.NamespacedName{Namespace: l.key.Namespace, Name: "net-outputs"}
	if data, _, err := kube.ReadSecret(t.Context(), l.k.Client, key); fault.Of(err) != fault.Missing {
		t.Errorf("the outputs are %q, %v; want none", data, err)
	}
}

// aged is a cache that has a stack as it was.
type aged struct {
	client.Client
	old *v1alpha2.Terraform
}

func (a aged) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if to, ok := obj.(*v1alpha2.Terraform); ok {
		a.old.DeepCopyInto(to)
		return nil
	}
	return a.Client.Get(ctx, key, obj, opts...)
}
