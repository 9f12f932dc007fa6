package tenants

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

// Conditions of a template, and their reasons.
const (
	conditionValid   = "Valid"
	conditionApplied = "Applied"

	reasonPassed           = "ValidationPassed"
	reasonFailed           = "ValidationFailed"
	reasonRegistryNotFound = "RegistryNotFound"
	reasonAllReady         = "AllTenantsReady"
	reasonNotAllReady      = "NotAllTenantsReady"
	reasonNoTenants        = "NoTenants"
)

// report writes the status, if it has changed. It returns the time until the next
// deadline, and whether this is the first report on the generation.
func (c *Templates) report(ctx context.Context, obj *tenantsv1.TenantTemplate, registry *tenantsv1.TenantRegistry, own []tenant.Existing) (time.Duration, bool, error) {
	before := obj.DeepCopy()
	s := &obj.Status
	fresh := s.ObservedGeneration != obj.Generation || s.Rollout == nil
	s.ObservedGeneration = obj.Generation
	var said announced
	c.setValid(before, obj, registry, &said)
	s.TotalTenants, s.ReadyTenants = 0, 0
	for _, e := range own {
		if e.Deleting {
			continue
		}
		s.TotalTenants++
		if e.Ready {
			s.ReadyTenants++
		}
	}
	_, state, again := tenant.Advance(c.templates.known(obj, registry), own, c.Now())
	c.setRollout(before, obj, state, &said)
	switch {
	case s.TotalTenants == 0:
		c.condition(obj, conditionApplied, false, reasonNoTenants, "the template has no tenants")
	case s.ReadyTenants == s.TotalTenants && state.Updated == state.Total && state.Rendered == 0:
		c.condition(obj, conditionApplied, true, reasonAllReady, fmt.Sprintf("all %d tenants are ready", s.TotalTenants))
	default:
		message := fmt.Sprintf("%d of %d tenants are ready, %d have generation %d", s.ReadyTenants, s.TotalTenants, state.Updated, obj.Generation)
		if state.Rendered > 0 {
			message += ". " + tenant.LeftOut(state.Rendered)
		}
		c.condition(obj, conditionApplied, false, reasonNotAllReady, message)
	}
	if err := c.write(ctx, before, obj); err != nil {
		return again, fresh, err
	}
	said.tell(c.Events)
	return again, fresh, nil
}

func (c *Templates) condition(obj *tenantsv1.TenantTemplate, kind string, status bool, reason, message string) {
	setCondition(&obj.Status.Conditions, obj.Generation, c.Now(), kind, status, reason, message)
}

func (c *Templates) write(ctx context.Context, before, obj *tenantsv1.TenantTemplate) error {
	if changed, err := kube.Differ(before, obj); err != nil || !changed {
		return err
	}
	if err := c.recordTemplate(ctx, before, obj); err != nil {
		return err
	}
	if err := c.patchStatus(ctx, obj, before); err != nil {
		return fmt.Errorf("writing the status of the template %s: %w", obj.Name, err)
	}
	return nil
}

// setValid reports whether the template is valid, with an event if that has
// changed.
func (c *Templates) setValid(before, obj *tenantsv1.TenantTemplate, registry *tenantsv1.TenantRegistry, said *announced) {
	reason, message := reasonPassed, "the template is valid"
	if problems := c.templates.check(obj, registry); len(problems) > 0 {
		reason, message = reasonFailed, problems[0]
		if len(problems) > 1 {
			message += fmt.Sprintf("; and %d more", len(problems)-1)
		}
	} else if registry == nil {
		reason, message = reasonRegistryNotFound, "there is no TenantRegistry "+obj.Spec.RegistryID+" in this namespace"
	}
	c.condition(obj, conditionValid, reason == reasonPassed, reason, message)
	was := meta.FindStatusCondition(before.Status.Conditions, conditionValid)
	if was != nil && was.Reason == reason && was.Message == shorten(message) {
		return
	}
	kind := corev1.EventTypeNormal
	if reason != reasonPassed {
		kind = corev1.EventTypeWarning
	}
	for _, e := range c.templates.events(obj) {
		said.add(obj, kind, e.reason, shorten(e.message))
	}
	said.add(obj, kind, reason, message)
}

// setRollout reports the progress of the newest generation.
func (c *Templates) setRollout(before, obj *tenantsv1.TenantTemplate, state tenant.RolloutState, said *announced) {
	was := before.Status.Rollout
	if was == nil {
		was = &tenantsv1.RolloutStatus{}
	}
	now := &tenantsv1.RolloutStatus{
		Phase: state.Phase, TargetGeneration: state.Target, GoodGeneration: was.GoodGeneration,
		TotalNodes: int32(state.Total), UpdatedNodes: int32(state.Updated), UpdatingNodes: int32(state.Updating),
		ReadyUpdatedNodes: int32(state.ReadyUpdated), FailedNodes: int32(state.Failed), Wave: state.Wave, Message: shorten(state.Message),
	}
	at := metav1.NewTime(c.Now().UTC())
	if was.TargetGeneration == now.TargetGeneration {
		now.StartTime = was.StartTime
	}
	if now.StartTime == nil && now.Phase != tenant.RolloutIdle {
		now.StartTime = &at
	}
	if now.Phase == tenant.RolloutComplete {
		now.CompletionTime = &at
		if was.TargetGeneration == now.TargetGeneration && was.CompletionTime != nil {
			now.CompletionTime = was.CompletionTime
		}
		if state.ReadyUpdated == state.Total {
			now.GoodGeneration = now.TargetGeneration
		}
	}
	obj.Status.Rollout = now
	if was.Phase == now.Phase && was.TargetGeneration == now.TargetGeneration {
		return
	}
	switch now.Phase {
	case tenant.RolloutInProgress:
		if r := obj.Spec.Rollout; r != nil && (r.MaxSkew > 0 || len(r.Waves) > 0) && state.Updated < state.Total {
			said.add(obj, corev1.EventTypeNormal, "RolloutThrottled", fmt.Sprintf("spec.rollout limits generation %d: %d of %d tenants have it", state.Target, state.Updated, state.Total))
		}
	case tenant.RolloutFailed:
		said.add(obj, corev1.EventTypeWarning, "RolloutFailed", state.Message)
	case tenant.RolloutComplete:
		said.add(obj, corev1.EventTypeNormal, "RolloutComplete", fmt.Sprintf("Generation %d has reached all %d tenants", state.Target, state.Total))
	}
}

// reportDeleting reports what the deletion of a template waits for.
func (c *Templates) reportDeleting(ctx context.Context, obj *tenantsv1.TenantTemplate, registry *tenantsv1.TenantRegistry, left []tenantsv1.Tenant) error {
	before := obj.DeepCopy()
	obj.Status.TotalTenants = int32(len(left))
	message := fmt.Sprintf("the template is being deleted; %d of its tenants are left", len(left))
	var kept []string
	for i := range left {
		if e := tenantapi.Existing(&left[i]); !e.Deleting && (e.Protected || protects(obj)) {
			kept = append(kept, e.Name)
		}
	}
	reason := reasonLeaving
	switch {
	case len(kept) > 0:
		reason, message = reasonProtected, message+"; deletion protection keeps "+tenant.Few(kept, 5)
	case registry != nil && registry.Spec.Suspend:
		reason, message = reasonSuspended, message+"; the registry "+registry.Name+", which deletes them, is suspended"
	case registry != nil && registry.Status.Blocked != nil:
		reason, message = registry.Status.Blocked.Reason, message+": "+registry.Status.Blocked.Message
	}
	c.condition(obj, conditionApplied, false, reason, message)
	return c.write(ctx, before, obj)
}
