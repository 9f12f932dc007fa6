package query

import (
	"cmp"
	"context"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/query/meaning"
)

// Rollout is how far a change of a template has come.
type Rollout struct {
	Namespace string `json:"namespace"`
	Template  string `json:"template"`
	Registry  string `json:"registry"`

	Phase     string            `json:"phase"` // Idle if none was ever under way
	Target    int64             `json:"targetGeneration"`
	Good      int64             `json:"goodGeneration,omitempty"` // the last that all tenants were ready with
	Total     int               `json:"total"`
	Updated   int               `json:"updated"`
	Updating  int               `json:"updating"`
	Ready     int               `json:"readyUpdated"`
	Failed    int               `json:"failed"`
	Wave      string            `json:"wave,omitempty"`
	Waves     []string          `json:"waves,omitempty"` // all that there are
	Started   time.Time         `json:"started,omitzero"`
	Completed time.Time         `json:"completed,omitzero"`
	Message   string            `json:"message,omitempty"`
	Means     meaning.Situation `json:"means"`

	Generations []Generation `json:"generations"`       // newest first
	Holding     []Tenant     `json:"holding,omitempty"` // tenants of the target that are not ready
}

// Generation is one state of a template that is kept.
type Generation struct {
	Number  int64     `json:"number"`
	Made    time.Time `json:"made,omitzero"`
	Tenants int       `json:"tenants"` // that have it now
	Ready   int       `json:"ready"`
	Kept    bool      `json:"kept"` // it can be gone back to
}

// Rollout returns how far the last change of a template has come.
func (t *Tenants) Rollout(ctx context.Context, key Key) (Rollout, error) {
	o, err := t.TemplateObject(ctx, key)
	if err != nil {
		return Rollout{}, err
	}
	v := rolloutView(o)
	kept, err := t.Revisions(ctx, o)
	if err != nil {
		return Rollout{}, err
	}
	all, err := t.List(ctx, TenantFilter{Namespace: key.Namespace, Template: key.Name})
	if err != nil {
		return Rollout{}, err
	}
	known := map[int64]*Generation{o.Generation: {Number: o.Generation, Kept: true}}
	of := func(n int64) *Generation {
		if known[n] == nil {
			known[n] = &Generation{Number: n}
		}
		return known[n]
	}
	for i := range kept {
		g := of(kept[i].Revision)
		g.Made, g.Kept = kept[i].CreationTimestamp.Time, true
	}
	for _, tn := range all.Items {
		g := of(tn.Generation)
		g.Tenants++
		if tn.State == TenantReady {
			g.Ready++
		} else if tn.Generation == v.Target {
			v.Holding = append(v.Holding, tn)
		}
	}
	for _, g := range known {
		v.Generations = append(v.Generations, *g)
	}
	slices.SortFunc(v.Generations, func(a, b Generation) int { return cmp.Compare(b.Number, a.Number) })
	return v, nil
}

func rolloutView(o *tenantsv1.TenantTemplate) Rollout {
	v := Rollout{Namespace: o.Namespace, Template: o.Name, Registry: o.Spec.RegistryID, Phase: tenantsv1.RolloutIdle, Target: o.Generation, Total: int(o.Status.TotalTenants)}
	if r := o.Spec.Rollout; r != nil {
		for _, w := range r.Waves {
			v.Waves = append(v.Waves, w.Name)
		}
	}
	s := o.Status.Rollout
	if s == nil {
		v.Means = meaning.OfTenant("Rollout" + v.Phase)
		return v
	}
	v.Phase, v.Good, v.Wave, v.Message = cmp.Or(s.Phase, v.Phase), s.GoodGeneration, s.Wave, s.Message
	v.Target = cmp.Or(s.TargetGeneration, v.Target)
	v.Total, v.Updated, v.Updating = int(s.TotalNodes), int(s.UpdatedNodes), int(s.UpdatingNodes)
	v.Ready, v.Failed = int(s.ReadyUpdatedNodes), int(s.FailedNodes)
	v.Started, v.Completed = timeOf(s.StartTime), timeOf(s.CompletionTime)
	v.Means = meaning.OfTenant("Rollout" + v.Phase)
	return v
}

func rolloutSince(s *tenantsv1.RolloutStatus) time.Time {
	return cmp.Or(timeOf(s.CompletionTime), timeOf(s.StartTime))
}

// revisions are the generations of a template that are kept.
func (t *Tenants) Revisions(ctx context.Context, o *tenantsv1.TenantTemplate) ([]appsv1.ControllerRevision, error) {
	var list appsv1.ControllerRevisionList
	if err := t.Kube.List(ctx, &list, client.InNamespace(o.Namespace)); err != nil {
		return nil, access.Fault(err, "the kept generations of the template "+o.Name)
	}
	return slices.DeleteFunc(list.Items, func(r appsv1.ControllerRevision) bool { return !metav1.IsControlledBy(&r, o) }), nil
}

func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}
