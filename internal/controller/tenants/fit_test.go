package tenants

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/tenant"
)

// statuses draws statuses of all sizes.
func statuses(t *rapid.T) tenantsv1.TenantStatus {
	text := rapid.StringMatching(`[a-z<"é]{1,20}`)
	s := tenantsv1.TenantStatus{DesiredResources: 7, Row: "hmac-sha256:x", Conditions: []metav1.Condition{{Type: "Ready", Status: "False", Reason: "ResourcesFailed", Message: strings.Repeat("m", 900)}}}
	for i := range rapid.IntRange(0, 60).Draw(t, "objects") {
		id := fmt.Sprint(text.Draw(t, "id"), i)
		s.Inventory = append(s.Inventory, tenantsv1.InventoryItem{ID: id, Version: "v1", Kind: "ConfigMap", Namespace: "shop", Name: id})
		s.AppliedResources = append(s.AppliedResources, "ConfigMap/shop/"+id+"@"+id)
		state := rapid.SampledFrom([]tenant.State{tenant.Failed, tenant.Conflicted, tenant.Kept, tenant.Progressing, tenant.Pending, tenant.Skipped, tenant.Deleting}).Draw(t, "state")
		if state == tenant.Skipped {
			s.SkippedResourceIDs = append(s.SkippedResourceIDs, id)
		}
		s.Resources = append(s.Resources, tenantsv1.ResourceStatus{
			ID: id, State: string(state), Reason: "Because", Since: metav1.NewTime(time.Unix(1e9, 0)),
			Message: strings.Repeat(text.Draw(t, "message"), rapid.IntRange(1, 60).Draw(t, "length")),
		})
	}
	return s
}

// A status is cut to any room: what it must have stays whole, failures go last, and what is
// left out is counted.
func TestAStatusIsCutToItsRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := statuses(t)
		least := whole
		least.Resources, least.SkippedResourceIDs, least.AppliedResources = nil, nil, nil
		room := sizeOf(least) + rapid.IntRange(250, 60_000).Draw(t, "room")
		s := *whole.DeepCopy()
		fit(&s, room)
		if got := sizeOf(s); got > room {
			t.Fatalf("the status has %d bytes, and there is room for %d", got, room)
		}
		rest := s
		rest.Resources, rest.SkippedResourceIDs, rest.AppliedResources, rest.LeftOut = nil, nil, nil, nil
		if diff := cmp.Diff(rest, least); diff != "" {
			t.Fatalf("what is never left out has changed: %s", diff)
		}
		left := tenantsv1.LeftOut{}
		if s.LeftOut != nil {
			left = *s.LeftOut
		}
		want := tenantsv1.LeftOut{
			Resources: int32(len(whole.Resources) - len(s.Resources)), SkippedResourceIDs: int32(len(whole.SkippedResourceIDs) - len(s.SkippedResourceIDs)),
			AppliedResources: int32(len(whole.AppliedResources) - len(s.AppliedResources)),
		}
		if left != want {
			t.Fatalf("the status counts %+v as left out, and %+v is", left, want)
		}
		worst := 0 // of the entries that are there
		at := -1
		for _, r := range s.Resources {
			worst = max(worst, importance(r))
			next := slices.IndexFunc(whole.Resources, func(o tenantsv1.ResourceStatus) bool { return o.ID == r.ID })
			if next <= at {
				t.Fatalf("the entry of %s is not in its place", r.ID)
			}
			at = next
		}
		for _, r := range whole.Resources {
			there := slices.ContainsFunc(s.Resources, func(o tenantsv1.ResourceStatus) bool { return o.ID == r.ID })
			if !there && importance(r) < worst {
				t.Fatalf("%s is %s and left out, and the status has less important entries", r.ID, r.State)
			}
		}
		if sizeOf(whole) <= room && s.LeftOut != nil {
			t.Fatalf("%+v is left out of a status that fits", *s.LeftOut)
		}
	})
}

// big is a Tenant of many resources that cannot be rendered, and a stack; filler makes it
// large.
func (l *lab) big(resources, filler int) {
	l.t.Helper()
	text := "manifests:" + terraform("db") + "configMaps:\n"
	for i := range resources {
		text += fmt.Sprintf("- id: c%d\n  nameTemplate: c%d\n  spec: {apiVersion: v1, kind: ConfigMap, data: {a: \"{{ .nope }}%s\"}}\n", i, i, strings.Repeat("x", filler))
	}
	l.tenant(text)
}

// A Tenant whose status would make it larger than the API server stores says the most
// important part of it, and how much it leaves out. What it leaves out is not forgotten.
func TestALargeTenantHasAStatus(t *testing.T) {
	l := newLab(t)
	l.big(1200, 650)
	l.look()
	s := l.get().Status
	if s.LeftOut == nil || s.LeftOut.Resources == 0 || int(s.LeftOut.Resources)+len(s.Resources) != 1201 {
		t.Fatalf("the status has %d resources and leaves out %+v, want all 1201 together, and some left out", len(s.Resources), s.LeftOut)
	}
	for _, r := range s.Resources {
		if r.State != string(tenant.Failed) {
			t.Fatalf("%s is %s and takes the room of a failure", r.ID, r.State)
		}
	}
	if len(s.Inventory) != 1 || s.FailedResources != 1200 {
		t.Errorf("the inventory has %d objects and %d resources failed, want the stack, and 1200", len(s.Inventory), s.FailedResources)
	}
	wantCondition(t, l, "Degraded", "True", "ResourceFailures")
	l.later(6 * time.Minute)
	l.look()
	if n := l.get().Status.FailedResources; n != 1201 {
		t.Errorf("%d resources failed after the timeout of the stack, want it as well", n)
	}
}

// An API server that takes less than is usual is given less.
func TestATenantThatIsRefusedForItsSizeIsWrittenSmaller(t *testing.T) {
	l := newLab(t)
	l.line.takes(60_000)
	l.big(300, 10)
	for range 20 {
		if _, err := l.c.Reconcile(t.Context(), requestOf(l.key())); err == nil {
			break
		}
	}
	l.look()
	if s := l.get().Status; s.DesiredResources != 301 || len(s.Conditions) != 4 {
		t.Errorf("the status has %d conditions, of %d resources, want four, and 301", len(s.Conditions), s.DesiredResources)
	}
}

// An object for which the inventory has no room is not created: it could not be found
// again when the tenant is deleted. The others are, and it is once there is room.
func TestTheInventoryIsNeverCut(t *testing.T) {
	l := newLab(t)
	template := "configMaps:"
	for i := range 6 {
		template += configMap(fmt.Sprint("c", i))
	}
	l.tenant("configMaps: []")
	l.look() // it gets its finalizer
	l.tenant(template)
	obj := l.get()
	obj.Status = tenantsv1.TenantStatus{}
	p := l.c.observer.begin(obj)
	item := sizeOf(inventoryItem(tenant.Item{ID: "c0", Ref: tenant.Ref{Version: "v1", Kind: "ConfigMap", Namespace: l.Namespace, Name: "acme-c0"}, UID: strings.Repeat("0", 36), Deletion: tenant.Retain, Order: 1 << 20})) + 1
	p.memory.most = sizeOf(obj) + forRest + 4*item
	l.look()
	l.wantStates("with room for four", "c4 Failed InventoryFull; c5 Failed InventoryFull")
	s := l.get().Status
	if len(s.Inventory) != 4 || s.ReadyResources != 4 || !strings.Contains(s.Resources[0].Message, "Split the template web") {
		t.Errorf("the inventory has %d objects, %d are ready, and the message is %q", len(s.Inventory), s.ReadyResources, s.Resources[0].Message)
	}
	l.wantThere("ConfigMap", "acme-c3", true)
	l.wantThere("ConfigMap", "acme-c4", false)
	p.memory.most = 0
	l.look()
	l.wantStates("with room for all", "")
	l.wantThere("ConfigMap", "acme-c5", true)
}
