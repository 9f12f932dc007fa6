package command

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	appsv1 "k8s.io/api/apps/v1"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

// ResumeRollout continues a rollout that has stopped: the tenants that have failed
// so far do not count any more, further ones do. It returns the generation that
// continues.
func (t *Tenants) ResumeRollout(ctx context.Context, key query.Key) (int64, error) {
	var target int64
	err := t.editTemplate(ctx, key, func(o *tenantsv1.TenantTemplate) error {
		s := o.Status.Rollout
		if s == nil || s.Phase != tenantsv1.RolloutFailed {
			return fault.New(fault.Conflict, query.ReasonNotStopped, fmt.Errorf("no rollout of the template %s has stopped", key))
		}
		target = s.TargetGeneration
		tolerated := s.FailedNodes
		if r := o.Spec.Rollout; r != nil {
			tolerated += r.MaxFailures
		}
		note(o, tenantsv1.AnnotationRollout, fmt.Sprintf("%d-%d", target, tolerated))
		return nil
	})
	return target, err
}

// Undoing replaces a generation of a template by an earlier one.
type Undoing struct {
	Key      query.Key
	From, To int64
	Same     bool // the two do not differ
	spec     tenantsv1.TenantTemplateSpec
	was      tenantsv1.TenantTemplateSpec
}

// PlanUndo says what Undo would do: the template becomes what it was in the
// generation to, or in the last good one if to is zero.
func (t *Tenants) PlanUndo(ctx context.Context, key query.Key, to int64) (Undoing, error) {
	o, err := t.TemplateObject(ctx, key)
	if err != nil {
		return Undoing{}, err
	}
	kept, err := t.Revisions(ctx, o)
	if err != nil {
		return Undoing{}, err
	}
	u := Undoing{Key: key, From: o.Generation, To: to, was: o.Spec}
	if u.To == 0 {
		u.To = lastGood(o, kept)
	}
	at := slices.IndexFunc(kept, func(r appsv1.ControllerRevision) bool { return r.Revision == u.To })
	if u.To == 0 || at < 0 {
		return u, fault.New(fault.Missing, query.ReasonNoRevision, fmt.Errorf("the generation to roll the template %s back to is not kept", key))
	}
	if u.spec, err = tenantapi.RevisionSpec(&kept[at]); err != nil {
		return u, err
	}
	u.Same = reflect.DeepEqual(u.spec, o.Spec)
	return u, nil
}

// lastGood is the last good generation, or else the one before the newest.
func lastGood(o *tenantsv1.TenantTemplate, kept []appsv1.ControllerRevision) int64 {
	if s := o.Status.Rollout; s != nil && s.GoodGeneration != 0 && s.GoodGeneration != o.Generation {
		return s.GoodGeneration
	}
	var before int64
	for _, r := range kept {
		if r.Revision < o.Generation {
			before = max(before, r.Revision)
		}
	}
	return before
}

// Undo carries out an Undoing, unless the template has changed since it was
// planned. The template gets a new generation, which is rolled out as any other.
func (t *Tenants) Undo(ctx context.Context, u Undoing) error {
	return t.editTemplate(ctx, u.Key, func(o *tenantsv1.TenantTemplate) error {
		if o.Generation != u.From {
			return fault.New(fault.Conflict, query.ReasonPlanChanged, fmt.Errorf("the template %s has changed since: it is in its generation %d now", u.Key, o.Generation))
		}
		registry := o.Spec.RegistryID
		if o.Spec = *u.spec.DeepCopy(); o.Spec.RegistryID != registry {
			return errors.New("a kept generation is of another registry")
		}
		return nil
	})
}

func (t *Tenants) editTemplate(ctx context.Context, key query.Key, change func(*tenantsv1.TenantTemplate) error) error {
	return editTenants(ctx, t, func() (*tenantsv1.TenantTemplate, error) { return t.TemplateObject(ctx, key) }, "template "+key.String(), change)
}
