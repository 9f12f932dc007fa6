package query

import (
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/query/meaning"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

// The status of a tenant, in one word.
const (
	TenantNew         = meaning.TenantNew // not reconciled yet
	TenantProgressing = "Progressing"     // objects are being made, or are not ready yet
	TenantReady       = "Ready"
	TenantFailed      = "Failed"     // an object failed, or cannot be rendered
	TenantConflicted  = "Conflicted" // an object has another owner
	TenantLeaving     = "Leaving"    // its row asks for its end; it still runs
	TenantDeleting    = "Deleting"
)

// Tenant is the status of one tenant.
type Tenant struct {
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	UID       string            `json:"uid"` // of the row
	Template  string            `json:"template"`
	Registry  string            `json:"registry,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Created   time.Time         `json:"created"`

	State     string    `json:"state"`
	Reason    string    `json:"reason,omitempty"`
	Message   string    `json:"message,omitempty"`
	Since     time.Time `json:"since,omitzero"`
	Leaving   string    `json:"leaving,omitempty"`  // since when, why, and when it is deleted; in words
	DeletedAt time.Time `json:"deletedAt,omitzero"` // when it is deleted unless its row returns
	Protected bool      `json:"protected,omitempty"`

	Ready   int `json:"readyResources"`
	Desired int `json:"desiredResources"`
	Failed  int `json:"failedResources,omitempty"`
	Skipped int `json:"skippedResources,omitempty"`

	Generation int64 `json:"templateGeneration,omitempty"` // that it has been given
	Made       int64 `json:"madeOfGeneration,omitempty"`   // that its objects were made of
}

// Key names t.
func (t Tenant) Key() Key { return Key{Namespace: t.Namespace, Name: t.Name} }

// tenantView translates the object of a tenant.
func tenantView(o *tenantsv1.Tenant, now time.Time) Tenant {
	v := Tenant{
		Namespace: o.Namespace, Name: o.Name, UID: o.Spec.UID, Template: o.Spec.TemplateRef,
		Registry: registryOf(o), Labels: o.Labels, Created: o.CreationTimestamp.Time,
		Protected: tenantapi.Protected(o.Annotations),
		Ready:     int(o.Status.ReadyResources), Desired: int(o.Status.DesiredResources),
		Failed: int(o.Status.FailedResources), Skipped: int(o.Status.SkippedResources),
		Made: o.Status.TemplateGeneration,
	}
	// What is not a number is no generation: any user may write the annotation.
	v.Generation, _ = strconv.ParseInt(o.Annotations[tenantsv1.AnnotationTemplateGeneration], 10, 64)
	if c := FindCondition(o.Status.Conditions, "Ready"); c != nil {
		v.Reason, v.Message, v.Since = c.Reason, c.Message, c.LastTransitionTime.Time
	}
	if l := tenantapi.Leaving(o); l != nil {
		v.Leaving, v.DeletedAt = l.Message(now), l.Due
	}
	v.State = tenantState(o)
	if o.DeletionTimestamp != nil {
		v.Since = o.DeletionTimestamp.Time
	}
	return v
}

// registryOf is the registry that a tenant belongs to: by its owner, or by its
// label where no registry owns it.
func registryOf(o *tenantsv1.Tenant) string {
	if c := metav1.GetControllerOf(o); c != nil && c.Kind == tenantsv1.RegistryKind {
		return c.Name
	}
	return tenantapi.RegistryOf(o)
}

// tenantState puts what conditions and counters say into one word.
func tenantState(o *tenantsv1.Tenant) string {
	ready := FindCondition(o.Status.Conditions, "Ready")
	switch {
	case o.DeletionTimestamp != nil:
		return TenantDeleting
	case ready == nil:
		return TenantNew
	case ready.Status == metav1.ConditionTrue && o.Status.ObservedGeneration != 0 && o.Status.ObservedGeneration < o.Generation:
		return TenantProgressing // it is ready as it was asked for before
	case meta.IsStatusConditionTrue(o.Status.Conditions, "Conflicted"):
		return TenantConflicted
	case ready.Status == metav1.ConditionTrue && o.Annotations[tenantsv1.AnnotationLeaving] != "":
		return TenantLeaving
	case ready.Status == metav1.ConditionTrue:
		return TenantReady
	case o.Status.FailedResources > 0 || tenantStuck[ready.Reason]:
		return TenantFailed
	default:
		return TenantProgressing
	}
}

// tenantStuck are reasons that need a user.
var tenantStuck = map[string]bool{"VariablesBuildError": true, "DependencyError": true, "SortError": true, "TemplateRenderError": true, "ReconcileFailed": true}

func FindCondition(list []metav1.Condition, kind string) *metav1.Condition {
	return meta.FindStatusCondition(list, kind)
}

func conditionsOf(list []metav1.Condition) []Condition {
	var out []Condition
	for _, c := range list {
		out = append(out, Condition{Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime.Time})
	}
	return out
}
