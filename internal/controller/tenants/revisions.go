package tenants

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

// generationsKept is how many generations of a template a rollback can choose from.
const generationsKept = 10

// revisions stores the generations of templates, as ControllerRevisions.
type revisions struct {
	live client.Client

	mu   sync.Mutex
	kept map[types.UID]int64 // the newest that is known to be kept
}

// spec is the spec of a generation of a template. The present generation is stored
// before any tenant gets it.
func (r *revisions) spec(ctx context.Context, t *tenantsv1.TenantTemplate, generation int64) (*tenantsv1.TenantTemplateSpec, error) {
	if generation == t.Generation {
		return &t.Spec, r.keep(ctx, t)
	}
	var old appsv1.ControllerRevision
	key := client.ObjectKey{Namespace: t.Namespace, Name: tenantapi.RevisionName(t.Name, generation)}
	if err := r.live.Get(ctx, key, &old); err != nil {
		return nil, fmt.Errorf("reading generation %d of the template %s: %w", generation, t.Name, err)
	}
	if !metav1.IsControlledBy(&old, t) {
		return nil, fault.New(fault.Missing, "", fmt.Errorf("generation %d of the template %s is not stored any more", generation, t.Name))
	}
	s, err := tenantapi.RevisionSpec(&old)
	return &s, err
}

// keep stores the present generation of a template.
func (r *revisions) keep(ctx context.Context, t *tenantsv1.TenantTemplate) error {
	r.mu.Lock()
	known := r.kept[t.UID] >= t.Generation
	r.mu.Unlock()
	if known {
		return nil
	}
	made, err := tenantapi.Revision(t)
	if err != nil {
		return err
	}
	err = r.live.Create(ctx, made.DeepCopy(), client.FieldOwner(tenantsv1.FieldManager))
	if apierrors.IsAlreadyExists(err) {
		err = r.replace(ctx, t, made)
	}
	if err != nil {
		return fmt.Errorf("storing generation %d of the template %s: %w", t.Generation, t.Name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept[t.UID] = t.Generation
	return nil
}

// replace replaces the generation of a former template of the same name.
func (r *revisions) replace(ctx context.Context, t *tenantsv1.TenantTemplate, made *appsv1.ControllerRevision) error {
	var there appsv1.ControllerRevision
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(made), &there); err != nil || metav1.IsControlledBy(&there, t) {
		return err
	}
	if metav1.GetControllerOf(&there) == nil {
		return fault.New(fault.Conflict, "", fmt.Errorf("the ControllerRevision %s has another owner", made.Name))
	}
	if err := r.live.Delete(ctx, &there, client.Preconditions{UID: &there.UID}); err != nil {
		return err
	}
	return r.live.Create(ctx, made, client.FieldOwner(tenantsv1.FieldManager))
}

// prune deletes the oldest generations that no tenant has.
func (r *revisions) prune(ctx context.Context, t *tenantsv1.TenantTemplate, used map[int64]bool) error {
	own, err := r.of(ctx, t)
	if err != nil {
		return err
	}
	for i := range own {
		if o := &own[i]; i >= generationsKept && !used[o.Revision] {
			if err := r.live.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("deleting generation %d of the template %s: %w", o.Revision, t.Name, err)
			}
		}
	}
	return nil
}

// of lists the stored generations of a template, the newest first.
func (r *revisions) of(ctx context.Context, t *tenantsv1.TenantTemplate) ([]appsv1.ControllerRevision, error) {
	var list appsv1.ControllerRevisionList
	if err := r.live.List(ctx, &list, client.InNamespace(t.Namespace)); err != nil {
		return nil, fmt.Errorf("listing the generations of the template %s: %w", t.Name, err)
	}
	own := slices.DeleteFunc(list.Items, func(o appsv1.ControllerRevision) bool { return !metav1.IsControlledBy(&o, t) })
	slices.SortFunc(own, func(a, b appsv1.ControllerRevision) int { return cmp.Compare(b.Revision, a.Revision) })
	return own, nil
}

// again is the newest generation before that of t with the same spec, 0 if none is
// stored.
func (r *revisions) again(ctx context.Context, t *tenantsv1.TenantTemplate) (int64, error) {
	own, err := r.of(ctx, t)
	if err != nil {
		return 0, err
	}
	now := digest(t.Spec)
	for i := range own {
		if own[i].Revision >= t.Generation {
			continue
		}
		// One that cannot be read is another spec.
		if spec, err := tenantapi.RevisionSpec(&own[i]); err == nil && digest(spec) == now {
			return own[i].Revision, nil
		}
	}
	return 0, nil
}

// forget drops the memory of a deleted template.
func (r *revisions) forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.kept, uid)
}
