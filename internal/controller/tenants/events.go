package tenants

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/kube/children"
	"github.com/terrier-iac/terrier/internal/tenant"
)

// announced are the events of a report. They are written once the status is that they
// are about: a report that lost against another writer is made again.
type announced []func(Events)

func (a *announced) add(obj client.Object, kind, reason, message string) {
	*a = append(*a, func(to Events) { to.Event(obj, kind, reason, message) })
}

func (a announced) tell(to Events) {
	for _, event := range a {
		event(to)
	}
}

// events writes the events of a pass: about actions, about objects that left the
// inventory, and about changes of the status. Their names are Tenant Operator's.
func (c *tenantStatus) events(p *pass, out tenant.Outcome) {
	say := func(warning bool, reason, format string, args ...any) {
		kind, message := corev1.EventTypeNormal, fmt.Sprintf(format, args...)
		if warning { // all others consist of names and numbers
			kind, message = corev1.EventTypeWarning, p.redacted(message)
		}
		c.Events.Event(p.obj, kind, reason, message)
	}
	written := 0
	for _, d := range p.effects {
		switch {
		case d.Orphan != nil:
			c.Events.Event(stub(d), corev1.EventTypeNormal, "OrphanMarkersAdded", "Retained by tenant "+p.obj.Name+": "+d.Why)
		case d.Write == nil: // the event comes when it is gone
		case d.change == children.Adopted:
			c.Events.Event(stub(d), corev1.EventTypeNormal, "OrphanMarkersRemoved", "Adopted by tenant "+p.obj.Name+", which has it again")
			written++
		case d.change != children.Unchanged:
			written++
		}
		if len(d.Despite) > 0 && d.change != children.Unchanged {
			say(true, tenant.ProceedingDependency, "%s was written although %s failed", d.ref, strings.Join(d.Despite, ", "))
		}
	}
	for _, d := range p.departed {
		switch {
		case d.Unknown:
			say(true, tenant.KindUnknown, "%s (%s) leaves the inventory: the cluster has no such kind, and so no such object", d.Item, d.ID)
		case d.Stranger:
			say(false, "ResourceRetained", "%s (%s) stays: this tenant did not create the object", d.Item, d.ID)
		case d.Retained && p.o.Deleting:
			say(false, "ResourceRetained", "%s (%s) stays, as its deletionPolicy says", d.Item, d.ID)
		case d.Retained:
			say(false, "OrphanedResourceRetained", "%s (%s) is not in the template any more and stays, as its deletionPolicy says", d.Item, d.ID)
		case d.UID != "" && !p.o.Deleting:
			say(false, "OrphanedResourceDeleted", "%s (%s) is not in the template any more and was deleted", d.Item, d.ID)
		}
	}
	for _, e := range out.Events {
		say(e.Warning, e.Reason, "%s", e.Message)
	}
	c.summary(p, out, written, say)
	p.effects, p.departed = nil, nil
}

// summary writes the events about the tenant as a whole: that objects were written,
// and, once after that, that all are ready. Conditions alone tell when a tenant
// becomes ready without a write.
func (c *tenantStatus) summary(p *pass, out tenant.Outcome, written int, say func(bool, string, string, ...any)) {
	ready := out.Written && out.Ready == out.Desired
	switch {
	case p.o.Deleting:
	case ready && (written > 0 || p.memory.applying):
		p.memory.applying = false
		say(false, "TemplateAppliedSuccess", "All %d resources are written and ready", out.Desired)
	case written == 0:
	case out.Failed > 0 || len(out.Skipped) > 0:
		p.memory.applying = true
		say(true, "TemplateAppliedPartial", "Objects written: %d; %d of %d resources failed, %d were skipped", written, out.Failed, out.Desired, len(out.Skipped))
	default:
		p.memory.applying = true
		say(false, "TemplateResourcesApplying", "Objects written: %d; %d of %d resources are ready", written, out.Ready, out.Desired)
	}
}

// stub is the part of an object that an event about it needs.
func stub(d effect) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(d.ref.APIVersion())
	u.SetKind(d.ref.Kind)
	u.SetNamespace(d.ref.Namespace)
	u.SetName(d.ref.Name)
	u.SetUID(types.UID(d.uid))
	return u
}
