package tenants

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/tenant"
)

// A Tenant holds its template, the list of its objects, and what is to be said of each. All
// of it has to fit into one object of the API server. What does not fit is left out in this
// order, and counted in status.leftOut:
//
//	entries of appliedResources      the inventory has them
//	entries of skippedResourceIds    the resources have them
//	ends of messages of resources
//	entries of resources             failures last
//
// The inventory and the conditions are never left out: an object that the inventory lacks
// would not be deleted with its tenant. An object for which the inventory has no room is
// not created, and its entry in resources says so.
const (
	// storable is the size of a Tenant, in bytes of JSON, that an API server stores: etcd
	// takes requests of 1.5 MiB, and the API server adds to managedFields.
	storable = 1536<<10 - 48<<10

	// forRest is the part of the status that is no list of resources, at most.
	forRest = 32 << 10

	// shortMessage is the longest message of a resource where there is no room for all.
	shortMessage = 200

	// largestItem is more than an entry of the inventory takes, or one of the other lists
	// without its message.
	largestItem = 1536
)

// sizeOf is the size of a value as JSON, in bytes.
func sizeOf(v any) int {
	text, err := json.Marshal(v)
	if err != nil { // every value came from JSON, or goes to it
		return 0
	}
	return len(text)
}

// room is how large the status of the Tenant may be, in bytes of JSON. The rest is measured
// once for each version of it.
func (p *pass) room() int {
	m := p.memory
	if m.sized != p.said {
		rest := *p.obj
		rest.Status = tenantsv1.TenantStatus{}
		m.sized, m.size = p.said, sizeOf(&rest)
	}
	return cmp.Or(m.most, storable) - m.size
}

// tooLarge reports whether the API server refused an object for its size. It has no reason
// for what etcd refuses.
func tooLarge(err error) bool {
	if apierrors.IsRequestEntityTooLargeError(err) {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	text := status.Status().Message
	return strings.Contains(text, "etcdserver: request is too large") || strings.Contains(text, "trying to send message larger than max")
}

// refusedFor notes that the API server stores no Tenant as large as this one: less is
// written from now on.
func (p *pass) refusedFor(err error) {
	if tooLarge(err) {
		p.memory.most = sizeOf(p.obj) * 3 / 4
	}
}

// fit leaves out of a status what does not fit into a number of bytes.
func fit(s *tenantsv1.TenantStatus, room int) {
	s.LeftOut = nil
	most := forRest + largestItem*(len(s.Inventory)+len(s.AppliedResources)+len(s.SkippedResourceIDs)+len(s.Resources)) + len(s.Resources)*6*messageBytes
	if most <= room || sizeOf(s) <= room {
		return
	}
	resources, skipped, applied := s.Resources, s.SkippedResourceIDs, s.AppliedResources
	s.Resources, s.SkippedResourceIDs, s.AppliedResources = nil, nil, nil
	s.LeftOut = &tenantsv1.LeftOut{Resources: int32(len(resources)), SkippedResourceIDs: int32(len(skipped)), AppliedResources: int32(len(applied))}
	room -= sizeOf(s) + sizeOf(tenantsv1.TenantStatus{Resources: make([]tenantsv1.ResourceStatus, 1), SkippedResourceIDs: []string{""}, AppliedResources: []string{""}})
	s.LeftOut = nil
	var out tenantsv1.LeftOut
	s.Resources, room = fitResources(resources, room)
	out.Resources = int32(len(resources) - len(s.Resources))
	s.SkippedResourceIDs, room = fitTexts(skipped, room)
	out.SkippedResourceIDs = int32(len(skipped) - len(s.SkippedResourceIDs))
	s.AppliedResources, _ = fitTexts(applied, room)
	out.AppliedResources = int32(len(applied) - len(s.AppliedResources))
	if out != (tenantsv1.LeftOut{}) {
		s.LeftOut = &out
	}
}

// importance orders entries of resources: what a user has to act upon comes first.
func importance(r tenantsv1.ResourceStatus) int {
	if r.Reason == tenant.CleanupFailed {
		return 0
	}
	order := []tenant.State{tenant.Failed, tenant.Conflicted, tenant.Kept, tenant.Deleting, tenant.Progressing, tenant.Pending, tenant.Skipped}
	if i := slices.Index(order, tenant.State(r.State)); i >= 0 {
		return i
	}
	return len(order)
}

// fitResources are the entries that fit, in their order, and the room that is left.
func fitResources(all []tenantsv1.ResourceStatus, room int) ([]tenantsv1.ResourceStatus, int) {
	if size := sizeOf(all); len(all) == 0 || size <= room {
		return all, room - size
	}
	all = slices.Clone(all)
	first := make([]int, len(all))
	for i := range all {
		all[i].Message = fault.Shorten(all[i].Message, shortMessage)
		first[i] = i
	}
	slices.SortStableFunc(first, func(a, b int) int { return cmp.Compare(importance(all[a]), importance(all[b])) })
	taken := make([]bool, len(all))
	for _, i := range first {
		size := sizeOf(all[i]) + 1
		if size > room {
			break
		}
		room -= size
		taken[i] = true
	}
	var kept []tenantsv1.ResourceStatus
	for i := range all {
		if taken[i] {
			kept = append(kept, all[i])
		}
	}
	return kept, room
}

// fitTexts are the first texts that fit, and the room that is left.
func fitTexts(all []string, room int) ([]string, int) {
	for i, text := range all {
		size := sizeOf(text) + 1
		if size > room {
			return all[:i:i], room
		}
		room -= size
	}
	return all, room
}

// findRoom finds the objects for which the inventory has no room. Those that are in it
// already stay there.
func (p *pass) findRoom() {
	p.full = nil
	room := p.room() - forRest
	if p.o.Deleting || (len(p.o.Objects)+len(p.o.Inventory))*largestItem <= room {
		return
	}
	held := map[tenant.Ref]bool{}
	for _, i := range p.o.Inventory {
		held[i.Place()] = true
		room -= sizeOf(inventoryItem(i)) + 1
	}
	objects := slices.Clone(p.o.Objects)
	slices.SortStableFunc(objects, func(a, b tenant.Object) int { return cmp.Compare(a.Order, b.Order) })
	for _, o := range objects {
		ref := tenant.RefOf(o.Rendered)
		if held[ref.Place()] {
			continue
		}
		held[ref.Place()] = true
		size := sizeOf(inventoryItem(tenant.Item{ID: o.ID, Ref: ref, UID: strings.Repeat("0", 36), Deletion: tenant.Retain, Order: 1 << 20})) + 1
		if room -= size; room >= 0 {
			continue
		}
		if p.full == nil {
			p.full = map[tenant.Ref]bool{}
		}
		p.full[ref] = true
	}
}

// noRoom is the failure of an object for which the inventory has no room.
func (p *pass) noRoom() *tenant.Failure {
	return &tenant.Failure{Reason: tenant.InventoryFull, Message: fmt.Sprintf(
		"status.inventory has no room for another object: with it the Tenant would be larger than the %d KiB that the API server stores. Split the template %s into several, or move long texts out of it",
		cmp.Or(p.memory.most, storable)>>10, p.obj.Spec.TemplateRef)}
}
