package tenantapi

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/tenant"
)

// Defaults of the API, for objects without them.
const (
	defaultInterval  = 30 * time.Second
	shortestInterval = time.Second // 0s is a valid syncInterval
	defaultPercent   = 10
	defaultCount     = 10
	defaultDeadline  = 600 * time.Second
	defaultGrace     = time.Minute
)

// Mapping is the meaning of the columns of a registry.
func Mapping(r *tenantsv1.TenantRegistry) tenant.Mapping {
	v := r.Spec.ValueMappings
	if r.Spec.Source.Type == SourceInventory {
		return inventoryMapping(r)
	}
	return tenant.Mapping{
		UID: v.UID, HostOrURL: v.HostOrURL, Activate: v.Activate,
		Extra: maps.Clone(r.Spec.ExtraValueMappings), ActiveValues: r.Spec.ActiveValues,
	}
}

// Guard limits the deletions of one read of a registry's rows.
func Guard(r *tenantsv1.TenantRegistry) tenant.Guard {
	g := r.Spec.Guard
	out := tenant.Guard{AllowEmpty: g.AllowEmpty, MaxPercent: defaultPercent, MaxCount: defaultCount, Grace: defaultGrace, KeepVanished: g.VanishedRows == "Keep"}
	if g.MaxDeletionPercent != nil {
		out.MaxPercent = int(*g.MaxDeletionPercent)
	}
	if g.MaxDeletions != nil {
		out.MaxCount = int(*g.MaxDeletions)
	}
	if g.GracePeriod != nil {
		out.Grace = g.GracePeriod.Duration
	}
	return out
}

// Interval is the pause between reads of a registry's rows.
func Interval(r *tenantsv1.TenantRegistry) time.Duration {
	d, err := time.ParseDuration(r.Spec.Source.SyncInterval)
	if err != nil {
		return defaultInterval
	}
	return max(shortestInterval, d)
}

// Rollout limits how changes of a template reach tenants, nil for all at once. Its
// error is Invalid.
func Rollout(t *tenantsv1.TenantTemplate) (*tenant.Rollout, error) {
	r := t.Spec.Rollout
	if r == nil {
		return nil, nil
	}
	out := &tenant.Rollout{MaxSkew: int(r.MaxSkew), MaxFailures: int(r.MaxFailures), Deadline: time.Duration(r.ProgressDeadlineSeconds) * time.Second}
	if out.Deadline == 0 {
		out.Deadline = defaultDeadline
	}
	for i, w := range r.Waves {
		wave := tenant.Wave{Name: w.Name}
		if w.Percent != nil {
			wave.Percent = int(*w.Percent)
		}
		if w.Selector != nil {
			s, err := metav1.LabelSelectorAsSelector(w.Selector)
			if err != nil {
				return nil, fault.New(fault.Invalid, "ValidationFailed", fmt.Errorf("rollout.waves[%d] (%s): %w", i, w.Name, err))
			}
			wave.Matches = func(l map[string]string) bool { return s.Matches(labels.Set(l)) }
		}
		out.Waves = append(out.Waves, wave)
	}
	return out, nil
}

// RegistryOf is the registry of a Tenant; empty if it belongs to none. The label
// names it; for a name that is too long the label has a hash, and the owner
// reference or an annotation the name.
func RegistryOf(t metav1.Object) string {
	label := t.GetLabels()[tenantsv1.LabelRegistry]
	if owner := metav1.GetControllerOf(t); owner != nil && owner.Kind == tenantsv1.RegistryKind && tenant.Label(owner.Name) == label {
		return owner.Name
	}
	if whole := t.GetAnnotations()[tenantsv1.AnnotationRegistry]; whole != "" && tenant.Label(whole) == label {
		return whole
	}
	return label
}

// Tie makes Kubernetes delete a Tenant with its registry, if nothing else owns it. Programs that
// show trees follow this, and Tenant Operator deletes by it.
func Tie(t metav1.Object, registry *tenantsv1.TenantRegistry) {
	if metav1.GetControllerOf(t) != nil {
		return
	}
	t.SetOwnerReferences(append(t.GetOwnerReferences(), *metav1.NewControllerRef(registry, tenantsv1.GroupVersion.WithKind(tenantsv1.RegistryKind))))
	annotations := maps.Clone(t.GetAnnotations())
	delete(annotations, tenantsv1.AnnotationRegistry)
	t.SetAnnotations(annotations)
}

// Untie makes Kubernetes delete a Tenant with no registry. The label still says whose it is.
func Untie(t metav1.Object, registry string) {
	t.SetOwnerReferences(slices.DeleteFunc(slices.Clone(t.GetOwnerReferences()), isRegistry))
	if tenant.Label(registry) == registry {
		return
	}
	annotations := maps.Clone(t.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[tenantsv1.AnnotationRegistry] = registry
	t.SetAnnotations(annotations)
}

func isRegistry(r metav1.OwnerReference) bool {
	group, _, _ := strings.Cut(r.APIVersion, "/")
	return r.Kind == tenantsv1.RegistryKind && group == tenantsv1.GroupVersion.Group
}

// Protected reports whether the annotation of a Tenant or a TenantTemplate protects tenants
// against deletion. Any value but a word for false does: a typing error must not delete one.
func Protected(annotations map[string]string) bool {
	v, set := annotations[tenantsv1.AnnotationDeletionProtection]
	return set && v != "" && !kube.IsFalse(v)
}

// Existing describes a Tenant for its registry.
func Existing(t *tenantsv1.Tenant) tenant.Existing {
	a := t.Annotations
	generation, _ := strconv.ParseInt(a[tenantsv1.AnnotationTemplateGeneration], 10, 64) // none is older than any
	changed, _ := time.Parse(time.RFC3339, a[tenantsv1.AnnotationChanged])               // zero: it never was
	e := tenant.Existing{
		ID: string(t.UID), Name: t.Name, UID: t.Spec.UID, Template: t.Spec.TemplateRef, Labels: t.Labels,
		Row: a[tenantsv1.AnnotationRow], Generation: generation, Rendered: a[tenantsv1.AnnotationRow] == "", Changed: changed,
		Leaving: Leaving(t), Deleting: t.DeletionTimestamp != nil, Protected: Protected(a),
		Tied: slices.ContainsFunc(t.OwnerReferences, isRegistry), Unowned: len(t.OwnerReferences) == 0,
	}
	s := &t.Status
	if s.ObservedGeneration == t.Generation { // the status is about the present generation
		made := s.Row == e.Row && s.TemplateGeneration == generation
		e.Ready = made && meta.IsStatusConditionTrue(s.Conditions, "Ready")
		e.Failed = meta.IsStatusConditionTrue(s.Conditions, "Degraded")
	}
	return e
}
