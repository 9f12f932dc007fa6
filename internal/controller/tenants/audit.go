package tenants

import (
	"context"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/controller/asker"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/tenant"
)

// AuditLog stores audit entries. Record returns when an entry is durable; it skips
// an entry whose ID it has stored before.
type AuditLog interface {
	Record(context.Context, audit.Entry) error
}

// auditEntry is an entry, the part of its ID that tells it from others of its kind,
// and whether a user caused it.
type auditEntry struct {
	audit.Entry
	once  string
	asked bool
}

// record writes entries about an object of a kind to the audit log.
func (o Options) record(ctx context.Context, obj client.Object, kind string, entries ...auditEntry) error {
	if o.Audit == nil {
		return nil
	}
	for _, d := range entries {
		d.ID = string(obj.GetUID()) + "/" + string(d.What) + "/" + d.once
		d.Object = audit.Object{Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: string(obj.GetUID())}
		d.Via = audit.ViaController
		if d.asked {
			a, err := asker.Of(ctx, o.Live, obj, d.What)
			if err != nil {
				return err
			}
			who, err := o.believed(ctx, obj, a.Who)
			if err != nil {
				return err
			}
			if who == "" {
				a = a.Unverified()
			}
			a.In(&d.Entry)
		}
		if err := o.Audit.Record(ctx, d.Entry); err != nil {
			return fmt.Errorf("writing audit entries about %s %s: %w", kind, obj.GetName(), err)
		}
	}
	return nil
}

// Stamps says which stamps of the API server may be believed.
type Stamps interface {
	// Epoch returns the epoch of the stamps that the API server puts on objects now. A fault
	// that is Later says that the API server did not answer.
	Epoch(ctx context.Context) (string, error)
}

// believed is the user whom a stamp on an object names, empty if a user may have written the
// stamp.
func (o Options) believed(ctx context.Context, obj client.Object, who string) (string, error) {
	if o.Stamps == nil || who == "" {
		return who, nil
	}
	epoch, err := o.Stamps.Epoch(ctx)
	switch {
	case fault.Of(err) == fault.Later:
		return "", err
	case err != nil || epoch != obj.GetAnnotations()[kube.Stamped]:
		return "", nil
	}
	return who, nil
}

// allowed records that a user allowed a set of deletions, before any of them is
// done.
func (c *Registries) allowed(ctx context.Context, l *registryPass) error {
	b := l.before.Status.Blocked
	if !l.step.Allowed || b == nil {
		return nil // only what was reported can be allowed
	}
	return c.record(ctx, l.obj, tenantsv1.RegistryKind, auditEntry{Entry: audit.Entry{
		What: audit.DeletionsAllowed, Why: "blocked by " + b.Reason,
		Details: map[string]string{"token": b.Token, "held": strconv.Itoa(int(b.Count)), "deleted": strconv.Itoa(len(l.step.Remove))},
	}, once: b.Token, asked: true})
}

// reasonOf is the reason of a condition, empty without one.
func reasonOf(all []metav1.Condition, kind string) string {
	if c := meta.FindStatusCondition(all, kind); c != nil {
		return c.Reason
	}
	return ""
}

// registryEntries are the audit entries of a change of a registry's status.
func registryEntries(before, obj *tenantsv1.TenantRegistry) []auditEntry {
	var out []auditEntry
	generation := strconv.FormatInt(obj.Generation, 10)
	was, is := reasonOf(before.Status.Conditions, conditionReady), reasonOf(obj.Status.Conditions, conditionReady)
	switch suspended, suspends := was == reasonSuspended, is == reasonSuspended; {
	case before.Status.ObservedGeneration == 0:
		out = append(out, auditEntry{Entry: audit.Entry{What: audit.Created}, asked: true})
	case suspends && !suspended:
		out = append(out, auditEntry{Entry: audit.Entry{What: audit.RegistrySuspended}, once: generation, asked: true})
	case suspended && !suspends && is != reasonLeaving:
		out = append(out, auditEntry{Entry: audit.Entry{What: audit.RegistryResumed}, once: generation, asked: true})
	case is == reasonLeaving && was != reasonLeaving:
		out = append(out, auditEntry{Entry: audit.Entry{What: audit.DeletionAsked, Why: notKept}})
	case before.Status.ObservedGeneration != obj.Status.ObservedGeneration:
		out = append(out, auditEntry{Entry: audit.Entry{What: audit.Changed, Details: map[string]string{"generation": generation}}, once: generation, asked: true})
	}
	held, holds := before.Status.Blocked, obj.Status.Blocked
	switch {
	case holds != nil && (held == nil || held.Reason != holds.Reason || held.Token != holds.Token):
		out = append(out, auditEntry{Entry: audit.Entry{What: audit.GuardTripped, Why: holds.Reason, Details: map[string]string{
			"token": holds.Token, "held": strconv.Itoa(int(holds.Count)),
		}}, once: holds.Reason + "/" + holds.Token + "/" + holds.Since.UTC().Format("20060102T150405Z")})
	case holds == nil && held != nil:
		out = append(out, auditEntry{Entry: audit.Entry{What: audit.GuardCleared, Details: map[string]string{"token": held.Token, "held": strconv.Itoa(int(held.Count))}},
			once: held.Token + "/" + held.Since.UTC().Format("20060102T150405Z")})
	}
	return out
}

// notKept is why an entry does not name the user who deleted an object.
const notKept = "Kubernetes does not keep who deletes; the API server's own audit log does"

// recordTemplate records a change of a template's status.
func (c *Templates) recordTemplate(ctx context.Context, before, obj *tenantsv1.TenantTemplate) error {
	if c.Audit == nil {
		return nil
	}
	var again int64
	if seen := before.Status.ObservedGeneration; seen != 0 && seen != obj.Generation && obj.DeletionTimestamp == nil {
		var err error
		if again, err = c.revisions.again(ctx, obj); err != nil {
			return err
		}
	}
	return c.record(ctx, obj, tenantsv1.TemplateKind, templateEntries(before, obj, again)...)
}

// templateEntries are the audit entries of a change of a template's status. Again
// is an older generation with the same spec as the newest, 0 if there is none.
func templateEntries(before, obj *tenantsv1.TenantTemplate, again int64) []auditEntry {
	var out []auditEntry
	generation := strconv.FormatInt(obj.Generation, 10)
	add := func(what audit.What, asked bool, why string, details map[string]string) {
		out = append(out, auditEntry{Entry: audit.Entry{What: what, Why: why, Details: details}, once: generation, asked: asked})
	}
	first := before.Status.ObservedGeneration == 0
	switch leaving := reasonOf(obj.Status.Conditions, conditionApplied); {
	case obj.DeletionTimestamp != nil:
		if before.Status.TotalTenants > 0 && leaving != reasonOf(before.Status.Conditions, conditionApplied) {
			add(audit.DeletionAsked, false, notKept, nil)
		}
		return out
	case first:
		add(audit.Created, true, "", nil)
	case before.Status.ObservedGeneration != obj.Generation && again > 0:
		add(audit.RolloutUndone, true, "", map[string]string{"generation": generation, "to": strconv.FormatInt(again, 10)})
	case before.Status.ObservedGeneration != obj.Generation:
		add(audit.Changed, true, "", map[string]string{"generation": generation})
	}
	was, now := before.Status.Rollout, obj.Status.Rollout
	if was == nil || now == nil {
		return out
	}
	counts := map[string]string{"generation": generation, "tenants": strconv.Itoa(int(now.TotalNodes)), "updated": strconv.Itoa(int(now.UpdatedNodes)), "failed": strconv.Itoa(int(now.FailedNodes))}
	newer, other := was.TargetGeneration != now.TargetGeneration, was.Phase != now.Phase
	if newer && now.TotalNodes > 0 {
		add(audit.RolloutStarted, false, "", counts)
	}
	switch {
	case now.Phase == tenant.RolloutFailed && (newer || other):
		add(audit.RolloutStopped, false, "", counts)
	case was.Phase == tenant.RolloutFailed && other && !newer:
		add(audit.RolloutResumed, true, "", counts)
	}
	if now.Phase == tenant.RolloutComplete && (newer || other) && now.TotalNodes > 0 {
		add(audit.RolloutFinished, false, "", counts)
	}
	// One generation may stop, resume and stop again.
	for i := range out {
		if w := out[i].What; w == audit.RolloutStopped || w == audit.RolloutResumed {
			out[i].once += "/" + obj.Annotations[tenantsv1.AnnotationRollout] + "/" + strconv.Itoa(int(now.FailedNodes))
		}
	}
	return out
}
