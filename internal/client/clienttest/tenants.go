package clienttest

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

func read[T client.Object](t *testing.T, w *World, name string, o T) T {
	t.Helper()
	if err := w.Kube.Get(t.Context(), types.NamespacedName{Namespace: w.Namespace, Name: name}, o); err != nil {
		t.Fatal(err)
	}
	return o
}

func readsTenants(t *testing.T, w *World, s Subject) {
	list := must(s.Tenants.List(t.Context(), query.TenantFilter{Namespace: w.Namespace}))(t)
	if len(list.Items) != 1 || list.Items[0].Name != "acme-web" || list.Counts[query.TenantNew] != 1 {
		t.Errorf("List() = %+v, want the one tenant", list)
	}
	if none := must(s.Tenants.List(t.Context(), query.TenantFilter{Namespace: w.Namespace, Registry: "others"}))(t); len(none.Items) != 0 {
		t.Errorf("List() of another registry = %+v", none)
	}
	if d := must(s.Tenants.Describe(t.Context(), w.key("acme-web")))(t); d.UID != "acme" || d.Template != "web" {
		t.Errorf("Describe() = %+v", d)
	}
	if r := must(s.Tenants.Registry(t.Context(), w.key("customers")))(t); r.Source != "mysql db:3306/shop, table customers" {
		t.Errorf("Registry() = %+v", r)
	}
	if r := must(s.Tenants.Rollout(t.Context(), w.key("web")))(t); r.Registry != "customers" || r.Target != 1 {
		t.Errorf("Rollout() = %+v", r)
	}
}

func commandsRegistries(t *testing.T, w *World, s Subject) {
	key := w.key("customers")
	want(t, "nothing is blocked", s.Tenants.Allow(t.Context(), key, "t1"), fault.Conflict, query.ReasonNotBlocked)
	o := read(t, w, "customers", &tenantsv1.TenantRegistry{})
	o.Status.Blocked = &tenantsv1.Blocked{Reason: "TooMany", Message: "too many", Count: 3, Token: "t2", Since: metav1.Now()}
	done(t, "blocking deletions", w.Kube.Status().Update(t.Context(), o))
	want(t, "other deletions are blocked", s.Tenants.Allow(t.Context(), key, "t1"), fault.Conflict, query.ReasonTokenChanged)
	done(t, "Allow()", s.Tenants.Allow(t.Context(), key, "t2"))
	if r := must(s.Tenants.Registry(t.Context(), key))(t); r.Blocked == nil || !r.Blocked.Allowed {
		t.Errorf("blocked is %+v, want it to be allowed", r.Blocked)
	}
	request := must(s.Tenants.ReadNow(t.Context(), key))(t)
	if got := read(t, w, "customers", &tenantsv1.TenantRegistry{}).Annotations[tenantsv1.AnnotationSyncNow]; request == "" || got != request {
		t.Errorf("asked for is %q, on the object %q", request, got)
	}
	for range 2 {
		done(t, "SuspendRegistry()", s.Tenants.SuspendRegistry(t.Context(), key))
	}
	_, err := s.Tenants.ReadNow(t.Context(), key)
	want(t, "of a suspended registry", err, fault.Invalid, query.ReasonRegistryIdle)
	done(t, "ResumeRegistry()", s.Tenants.ResumeRegistry(t.Context(), key))
	if read(t, w, "customers", &tenantsv1.TenantRegistry{}).Spec.Suspend {
		t.Error("the registry is still suspended")
	}
}

func commandsRollouts(t *testing.T, w *World, s Subject) {
	key := w.key("web")
	_, err := s.Tenants.ResumeRollout(t.Context(), key)
	want(t, "no rollout has stopped", err, fault.Conflict, query.ReasonNotStopped)
	_, err = s.Tenants.PlanUndo(t.Context(), key, 0)
	want(t, "no generation is kept", err, fault.Missing, query.ReasonNoRevision)
	o := read(t, w, "web", &tenantsv1.TenantTemplate{})
	o.Status.Rollout = &tenantsv1.RolloutStatus{Phase: tenantsv1.RolloutFailed, TargetGeneration: 1, FailedNodes: 2}
	done(t, "stopping the rollout", w.Kube.Status().Update(t.Context(), o))
	if n := must(s.Tenants.ResumeRollout(t.Context(), key))(t); n != 1 {
		t.Errorf("generation %d goes on, want 1", n)
	}
	if got := read(t, w, "web", &tenantsv1.TenantTemplate{}).Annotations[tenantsv1.AnnotationRollout]; got != "1-2" {
		t.Errorf("let through is %q, want the two that failed", got)
	}
}
