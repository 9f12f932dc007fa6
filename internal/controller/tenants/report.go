package tenants

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/tenant"
)

// messageBytes is the longest message in a status.
const messageBytes = 1024

// tenantStatus reports on Tenants: status, conditions, events and metrics.
type tenantStatus struct {
	Options
	metrics *metrics
}

// recordInventory stores which objects are about to be created, before the first of
// them is: a controller that is killed in between finds them again, even if the
// template has changed.
func (c *tenantStatus) recordInventory(ctx context.Context, p *pass, out tenant.Outcome) error {
	for _, a := range out.Acts {
		if a.Write != nil && !p.recorded[tenant.RefOf(a.Write.Rendered).Place()] {
			if err := c.save(ctx, p, out); err != nil {
				return err
			}
			for _, i := range out.Inventory {
				p.recorded[i.Place()] = true
			}
			return nil
		}
	}
	return nil
}

// statusDebounce is how long new messages about progressing objects wait for a
// write of their own. All other changes are written at once, and the messages with
// them: most stacks have been applied by then.
const statusDebounce = 30 * time.Second

// report ends a pass: status, events and metrics. It returns the time until
// messages that were not written yet are due; zero if there are none.
func (c *tenantStatus) report(ctx context.Context, p *pass, out tenant.Outcome) (time.Duration, error) {
	before := p.obj.DeepCopy()
	encode(p, out)
	later := p.memory.debounce(p.now, differs(before, p.obj))
	if later == 0 {
		if err := c.put(ctx, p, before); err != nil {
			return 0, err
		}
	}
	if out.Ready == out.Desired && len(out.Acts) == 0 {
		p.memory.wrote = nil // it is settled, and there may be very many
	}
	c.events(p, out)
	c.metrics.report(p.obj)
	return later, nil
}

// difference is what a status says otherwise than the one that was written last.
type difference int

const (
	none     difference = iota
	messages            // nothing but the messages of progressing objects
	another
)

// differs compares two versions of a Tenant. A stack reports its progress several
// times a second, so messages of progressing objects are told apart.
func differs(before, after *tenantsv1.Tenant) difference {
	if changed, err := kube.Differ(before, after); err != nil {
		return another
	} else if !changed {
		return none
	}
	same := after.DeepCopy()
	for i := range same.Status.Resources {
		r := &same.Status.Resources[i]
		if i < len(before.Status.Resources) && (r.State == string(tenant.Progressing) || r.State == string(tenant.Deleting)) {
			r.Message = before.Status.Resources[i].Message
		}
	}
	progressing := meta.FindStatusCondition(same.Status.Conditions, string(tenant.ProgressingCondition))
	if was := meta.FindStatusCondition(before.Status.Conditions, string(tenant.ProgressingCondition)); progressing != nil && was != nil && before.DeletionTimestamp != nil {
		progressing.Message = was.Message // it quotes one of them
	}
	if changed, err := kube.Differ(before, same); err != nil || changed {
		return another
	}
	return messages
}

func (c *tenantStatus) save(ctx context.Context, p *pass, out tenant.Outcome) error {
	before := p.obj.DeepCopy()
	encode(p, out)
	return c.put(ctx, p, before)
}

// put writes the status, if it has changed.
func (c *tenantStatus) put(ctx context.Context, p *pass, before *tenantsv1.Tenant) error {
	p.memory.wrote = nil
	changed, err := kube.Differ(before, p.obj)
	if err != nil {
		return err
	}
	if changed {
		if err := c.patchStatus(ctx, p.obj, before); err != nil {
			p.refusedFor(err)
			return client.IgnoreNotFound(err)
		}
		p.memory.messagesSince = time.Time{}
	}
	p.memory.wrote = p.obj.DeepCopy()
	return nil
}

// encode fills the status of a Tenant from out.
func encode(p *pass, out tenant.Outcome) {
	t, s := p.obj, &p.obj.Status
	s.ObservedGeneration = t.Generation
	s.DesiredResources, s.ReadyResources = int32(out.Desired), int32(out.Ready)
	s.FailedResources, s.SkippedResources = int32(out.Failed), int32(len(out.Skipped))
	s.SkippedResourceIDs = out.Skipped
	s.Inventory, s.AppliedResources = nil, nil
	for _, i := range out.Inventory {
		s.Inventory = append(s.Inventory, inventoryItem(i))
		if i.UID != "" {
			s.AppliedResources = append(s.AppliedResources, i.Key())
		}
	}
	s.Resources = nil
	for _, v := range out.Verdicts {
		if v.State != tenant.Ready {
			s.Resources = append(s.Resources, tenantsv1.ResourceStatus{
				ID: v.ID, State: string(v.State), Reason: v.Reason, Message: shorten(p.redacted(v.Message)), Since: metav1.NewTime(v.Since),
				NextAttempt: moment(v.Next),
			})
		}
	}
	if out.Written {
		s.Row, s.TemplateGeneration = p.row, generationOf(t)
	}
	for _, c := range out.Conditions {
		status := metav1.ConditionFalse
		if c.True {
			status = metav1.ConditionTrue
		}
		if len(s.Resources) > 0 { // otherwise the message quotes no object
			c.Message = p.redacted(c.Message)
		}
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: string(c.Type), Status: status, Reason: c.Reason, Message: shorten(c.Message),
			ObservedGeneration: t.Generation, LastTransitionTime: metav1.NewTime(p.now),
		})
	}
	fit(s, p.room())
	p.memory.verdicts = nil
	if s.LeftOut != nil {
		p.memory.verdicts = out.Verdicts
	}
}

// inventoryItem is an item as a status has it.
func inventoryItem(i tenant.Item) tenantsv1.InventoryItem {
	return tenantsv1.InventoryItem{
		ID: i.ID, Group: i.Group, Version: i.Version, Kind: i.Kind, Namespace: i.Namespace, Name: i.Name,
		UID: i.UID, DeletionPolicy: tenantsv1.DeletionPolicy(i.Deletion), Order: int32(i.Order),
	}
}

// moment is a time of the API, nil for none.
func moment(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	out := metav1.NewTime(t)
	return &out
}

// shorten limits a message to messageBytes; its beginning and its end stay.
func shorten(text string) string { return fault.Shorten(text, messageBytes) }

// inventoryOf is the stored inventory.
func inventoryOf(t *tenantsv1.Tenant) []tenant.Item {
	var all []tenant.Item
	for _, i := range t.Status.Inventory {
		all = append(all, tenant.Item{
			ID: i.ID, Ref: tenant.Ref{Group: i.Group, Version: i.Version, Kind: i.Kind, Namespace: i.Namespace, Name: i.Name},
			UID: i.UID, Deletion: tenant.DeletionPolicy(i.DeletionPolicy), Order: int(i.Order),
		})
	}
	return all
}

// verdictsOf are the stored verdicts, and those of the last pass that the status has no room
// for; those of ready resources are not stored.
func verdictsOf(t *tenantsv1.Tenant, last []tenant.Verdict) []tenant.Verdict {
	var all []tenant.Verdict
	if t.Status.LeftOut != nil && len(last) > 0 {
		for _, v := range last {
			if v.State != tenant.Ready {
				all = append(all, v)
			}
		}
		return all
	}
	for _, r := range t.Status.Resources {
		all = append(all, tenant.Verdict{ID: r.ID, State: tenant.State(r.State), Reason: r.Reason, Message: r.Message, Since: r.Since.UTC()})
	}
	return all
}
