package query

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/query/meaning"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

// TenantEstate answers about registries and templates by themselves, also about
// those that no tenant has come from yet.
type TenantEstate interface {
	Registries(ctx context.Context, namespace string) ([]Registry, error) // all namespaces if empty
	Templates(ctx context.Context, namespace string) ([]Template, error)
	RegistryDetail(context.Context, Key) (RegistryDetail, error)
	TemplateDetail(context.Context, Key) (TemplateDetail, error)
}

// RegistryDetail is a registry with how it was set up.
type RegistryDetail struct {
	Registry
	Guard   GuardInfo `json:"guard"`
	Mapping []Mapped  `json:"mapping"`          // what templates may say, and the column it comes from
	Yes     []string  `json:"activeValues"`     // of the activate column that mean yes
	Events  []Event   `json:"events,omitempty"` // newest first
	Unseen  []string  `json:"unseen,omitempty"` // what is not shown, and why
}

// GuardInfo is the guard of deletions of a registry.
type GuardInfo struct {
	AllowEmpty   bool          `json:"allowEmpty"`
	MaxDeletions int           `json:"maxDeletions"`
	MaxPercent   int           `json:"maxDeletionPercent"`
	Grace        time.Duration `json:"gracePeriod,omitempty"` // nanoseconds
	KeepVanished bool          `json:"keepsVanished,omitempty"`
}

// Mapped is a variable of templates.
type Mapped struct {
	Variable string `json:"variable"`
	Column   string `json:"column"`
}

// Template is one template among others.
type Template struct {
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	Registry   string `json:"registry"`
	Generation int64  `json:"generation"`
	Valid      string `json:"valid"` // True, False or Unknown
	Reason     string `json:"reason,omitempty"`
	Message    string `json:"message,omitempty"`
	Phase      string `json:"phase"` // of its rollout
	Total      int    `json:"total"`
	Ready      int    `json:"ready"`
}

// Key names t.
func (t Template) Key() Key { return Key{Namespace: t.Namespace, Name: t.Name} }

// TemplateDetail is a template with what it is made of.
type TemplateDetail struct {
	Template
	Means       meaning.Situation `json:"means"` // of what Valid says
	Resources   []TemplateObject  `json:"resources"`
	MaxSkew     int               `json:"maxSkew"`
	MaxFailures int               `json:"maxFailures"`
	Deadline    int               `json:"progressDeadlineSeconds,omitempty"`
	Waves       []WaveInfo        `json:"waves,omitempty"`
	Account     string            `json:"serviceAccountName,omitempty"` // as which objects are written
	Protected   bool              `json:"deletionProtection,omitempty"`
	Conditions  []Condition       `json:"conditions,omitempty"`
	Events      []Event           `json:"events,omitempty"`
	Unseen      []string          `json:"unseen,omitempty"`
}

// TemplateObject is what a template makes for each tenant.
type TemplateObject struct {
	ID        string   `json:"id"`
	Group     string   `json:"group"` // of the template
	Kind      string   `json:"kind"`
	DependsOn []string `json:"dependsOn,omitempty"`
}

// WaveInfo is one wave of a rollout.
type WaveInfo struct {
	Name    string `json:"name"`
	Which   string `json:"which,omitempty"` // labels of its tenants
	Percent int    `json:"percent,omitempty"`
}

func (t *Tenants) Registries(ctx context.Context, namespace string) ([]Registry, error) {
	var list tenantsv1.TenantRegistryList
	if err := t.Kube.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, TenantsFault(err, "registries")
	}
	out := make([]Registry, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, RegistryOf(&list.Items[i]))
	}
	slices.SortFunc(out, func(a, b Registry) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out, nil
}

func (t *Tenants) Templates(ctx context.Context, namespace string) ([]Template, error) {
	var list tenantsv1.TenantTemplateList
	if err := t.Kube.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, TenantsFault(err, "templates")
	}
	out := make([]Template, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, templateView(&list.Items[i]))
	}
	slices.SortFunc(out, func(a, b Template) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out, nil
}

func templateView(o *tenantsv1.TenantTemplate) Template {
	v := Template{
		Namespace: o.Namespace, Name: o.Name, Registry: o.Spec.RegistryID, Generation: o.Generation, Valid: "Unknown",
		Phase: rolloutView(o).Phase, Total: int(o.Status.TotalTenants), Ready: int(o.Status.ReadyTenants),
	}
	if c := FindCondition(o.Status.Conditions, "Valid"); c != nil {
		v.Valid, v.Reason, v.Message = string(c.Status), c.Reason, c.Message
	}
	return v
}

func (t *Tenants) RegistryDetail(ctx context.Context, key Key) (RegistryDetail, error) {
	o, err := t.RegistryObject(ctx, key)
	if err != nil {
		return RegistryDetail{}, err
	}
	g := tenantapi.Guard(o)
	d := RegistryDetail{Registry: RegistryOf(o), Yes: o.Spec.ActiveValues, Guard: GuardInfo{
		AllowEmpty: g.AllowEmpty, MaxDeletions: g.MaxCount, MaxPercent: g.MaxPercent, Grace: g.Grace, KeepVanished: g.KeepVanished,
	}}
	m := tenantapi.Mapping(o)
	for _, of := range []Mapped{{"uid", m.UID}, {"activate", m.Activate}, {"hostOrUrl", m.HostOrURL}} {
		if of.Column != "" {
			d.Mapping = append(d.Mapping, of)
		}
	}
	for variable, column := range m.Extra {
		d.Mapping = append(d.Mapping, Mapped{variable, column})
	}
	slices.SortFunc(d.Mapping, func(a, b Mapped) int { return cmp.Compare(a.Variable, b.Variable) })
	if d.Events, err = events(ctx, t.Kube, key.Namespace, string(o.UID)); err != nil {
		d.Unseen = append(d.Unseen, "events: "+err.Error())
	}
	return d, nil
}

func (t *Tenants) TemplateDetail(ctx context.Context, key Key) (TemplateDetail, error) {
	o, err := t.TemplateObject(ctx, key)
	if err != nil {
		return TemplateDetail{}, err
	}
	d := TemplateDetail{
		Template: templateView(o), Account: o.Spec.ServiceAccountName, Protected: o.Spec.DeletionProtection,
		Conditions: conditionsOf(o.Status.Conditions),
	}
	d.Means = meaning.OfTenant(d.Reason)
	if r := o.Spec.Rollout; r != nil {
		d.MaxSkew, d.MaxFailures, d.Deadline = int(r.MaxSkew), int(r.MaxFailures), int(r.ProgressDeadlineSeconds)
		for _, w := range r.Waves {
			d.Waves = append(d.Waves, waveView(w))
		}
	}
	resources, err := tenantapi.Resources(&o.Spec.Resources)
	if err != nil {
		d.Unseen = append(d.Unseen, "resources: "+err.Error())
	}
	for _, r := range resources {
		kind, _ := r.Object["kind"].(string)
		d.Resources = append(d.Resources, TemplateObject{ID: r.ID, Group: r.Group, Kind: kind, DependsOn: r.DependIDs})
	}
	if d.Events, err = events(ctx, t.Kube, key.Namespace, string(o.UID)); err != nil {
		d.Unseen = append(d.Unseen, "events: "+err.Error())
	}
	return d, nil
}

func waveView(w tenantsv1.Wave) WaveInfo {
	v := WaveInfo{Name: w.Name}
	if w.Percent != nil {
		v.Percent = int(*w.Percent)
	}
	if w.Selector == nil {
		return v
	}
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(w.Selector.MatchLabels)) {
		parts = append(parts, k+"="+w.Selector.MatchLabels[k])
	}
	for _, e := range w.Selector.MatchExpressions {
		parts = append(parts, strings.TrimSpace(e.Key+" "+string(e.Operator)+" "+strings.Join(e.Values, ",")))
	}
	v.Which = strings.Join(parts, ", ")
	return v
}

var _ TenantEstate = (*Tenants)(nil)
