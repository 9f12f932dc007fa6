package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
)

// TenantReader answers questions about registries, templates and tenants.
type TenantReader interface {
	List(context.Context, TenantFilter) (TenantList, error)
	Describe(context.Context, Key) (TenantDetail, error)
	Registry(context.Context, Key) (Registry, error)
	Rollout(context.Context, Key) (Rollout, error)
}

// What an Alarm is about.
const (
	KindRegistry = tenantsv1.RegistryKind
	KindTemplate = tenantsv1.TemplateKind
)

// Phases of a Rollout.
const (
	RolloutIdle       = tenantsv1.RolloutIdle
	RolloutInProgress = tenantsv1.RolloutInProgress
	RolloutFailed     = tenantsv1.RolloutFailed
	RolloutComplete   = tenantsv1.RolloutComplete
)

// The reasons of faults about tenants.
const (
	ReasonNoSuchThing  = "TenantsNotFound"
	ReasonNoTenants    = "TenantsNotInstalled"
	ReasonNoRevision   = "NoRevision"
	ReasonNotBlocked   = "NothingBlocked"
	ReasonTokenChanged = "BlockedSetChanged"
	ReasonNotStopped   = "RolloutNotStopped"
	ReasonNotRead      = "NotRead"
	ReasonBadTemplate  = "TemplateInvalid"
	ReasonRegistryIdle = "RegistrySuspended"
	ReasonNoLynq       = "LynqNotInstalled"
)

// Tenants answers questions about registries, templates and tenants, and
// carries out commands.
type Tenants struct {
	Kube   client.WithWatch
	stacks *Stacks
	config *rest.Config // for the schemas of kinds; nil if there is no cluster to ask
	Now    func() time.Time
}

// NewTenants returns the Tenants that the client of stacks may see.
func NewTenants(stacks *Stacks, config *rest.Config) *Tenants {
	return &Tenants{Kube: stacks.Kube, stacks: stacks, config: config, Now: stacks.Now}
}

// ParseTenantsKey reads NAME or NAMESPACE/NAME of one of the kinds of tenants;
// kinds are what may stand before it, as kubectl writes them.
func ParseTenantsKey(s, namespace string, kinds ...string) (Key, error) {
	parts := strings.Split(s, "/")
	if kind, _, _ := strings.Cut(strings.ToLower(parts[0]), "."); len(parts) > 1 && slices.Contains(kinds, kind) {
		parts = parts[1:]
	}
	k := Key{Namespace: namespace, Name: parts[len(parts)-1]}
	if len(parts) == 2 {
		k.Namespace = parts[0]
	}
	if len(parts) > 2 || k.Name == "" || k.Namespace == "" {
		return Key{}, fault.New(fault.Invalid, "NameInvalid", fmt.Errorf("%q is not the name of a %s", s, kinds[0]))
	}
	return k, nil
}

// How kubectl writes the kinds of tenants.
var (
	RegistryWords = []string{"tenantregistry", "tenantregistries"}
	TemplateWords = []string{"tenanttemplate", "tenanttemplates"}
	TenantWords   = []string{"tenant", "tenants"}
)

// IsRegistry reports whether an argument names a registry where a stack could
// be meant: tenantregistry/NAME.
func IsRegistry(s string) bool {
	kind, _, found := strings.Cut(strings.ToLower(s), "/")
	kind, _, _ = strings.Cut(kind, ".")
	return found && slices.Contains(RegistryWords, kind)
}

// tenantsFault is kubeFault for the kinds of tenants.
func TenantsFault(err error, what string) error {
	err = access.Fault(err, what)
	switch fault.Reason(err, "") {
	case access.ReasonNotInstalled:
		return fault.New(fault.Missing, ReasonNoTenants, errors.New("this cluster does not know the kinds of operator.kubernetes-tenants.org"))
	case access.ReasonNotFound:
		return fault.New(fault.Missing, ReasonNoSuchThing, err)
	default:
		return err
	}
}

// TenantFilter chooses tenants.
type TenantFilter struct {
	Namespace string // all if empty
	Registry  string // all if empty
	Template  string // all if empty
	Selector  string // of labels, as kubectl reads it
	NotReady  bool   // only those that are not ready
}

// TenantList is a list of tenants, with what blocks their registries and templates.
type TenantList struct {
	Alarms []Alarm        `json:"alarms,omitempty"` // what needs a user, worst first
	Items  []Tenant       `json:"items"`
	Counts map[string]int `json:"counts"` // by state, of all that the filter chooses but for NotReady
}

// Alarm is something about a registry or a template that holds tenants up.
type Alarm struct {
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Reason    string    `json:"reason"`
	Message   string    `json:"message"`
	Since     time.Time `json:"since,omitzero"`
	Look      string    `json:"look"` // the command that says more
}

// tenantsPage bounds how many tenants are in memory as they are on the wire:
// each holds its template.
const tenantsPage = 250

// List returns the tenants that f chooses, by namespace and name, and what holds
// up the registries and templates that they come from.
func (t *Tenants) List(ctx context.Context, f TenantFilter) (TenantList, error) {
	out := TenantList{Items: []Tenant{}, Counts: map[string]int{}}
	opts, err := Filter{Namespace: f.Namespace, Selector: f.Selector}.options()
	if err != nil {
		return out, err
	}
	var page tenantsv1.TenantList
	for {
		from := page.Continue
		if err := t.Kube.List(ctx, &page, append(opts[:len(opts):len(opts)], client.Limit(tenantsPage), client.Continue(from))...); err != nil {
			return out, TenantsFault(err, "tenants")
		}
		if err := ctx.Err(); err != nil {
			return out, err // a reader that answers from memory ignores it
		}
		if from != "" && page.Continue == from {
			return out, fmt.Errorf("the list of tenants does not go on from %.40q", from)
		}
		out.Items = slices.Grow(out.Items, len(page.Items))
		for i := range page.Items {
			v := tenantView(&page.Items[i], t.Now())
			if f.Registry != "" && v.Registry != f.Registry || f.Template != "" && v.Template != f.Template {
				continue
			}
			out.Counts[v.State]++
			if !f.NotReady || v.State != TenantReady {
				out.Items = append(out.Items, v)
			}
		}
		if page.Continue == "" {
			break
		}
	}
	out.Items = byName(out.Items)
	out.Alarms = t.alarms(ctx, f)
	return out, nil
}

// byName orders tenants. Each is large, and there may be many, so that it is
// moved once.
func byName(items []Tenant) []Tenant {
	order := make([]*Tenant, len(items))
	for i := range items {
		order[i] = &items[i]
	}
	slices.SortFunc(order, func(a, b *Tenant) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	out := make([]Tenant, 0, len(items))
	for _, t := range order {
		out = append(out, *t)
	}
	return out
}

// alarms reads registries and templates. What the caller may not see raises
// an alarm of its own, since silence would mean that all is well.
func (t *Tenants) alarms(ctx context.Context, f TenantFilter) []Alarm {
	var out []Alarm
	opts := []client.ListOption{client.InNamespace(f.Namespace)}
	var registries tenantsv1.TenantRegistryList
	if err := t.Kube.List(ctx, &registries, opts...); err != nil {
		out = append(out, unseenAlarm(tenantsv1.RegistryKind, f, TenantsFault(err, "registries")))
	}
	for i := range registries.Items {
		if r := &registries.Items[i]; f.Registry == "" || r.Name == f.Registry {
			out = append(out, registryAlarms(r)...)
		}
	}
	var templates tenantsv1.TenantTemplateList
	if err := t.Kube.List(ctx, &templates, opts...); err != nil {
		out = append(out, unseenAlarm(tenantsv1.TemplateKind, f, TenantsFault(err, "templates")))
	}
	for i := range templates.Items {
		o := &templates.Items[i]
		if (f.Template == "" || o.Name == f.Template) && (f.Registry == "" || o.Spec.RegistryID == f.Registry) {
			out = append(out, templateAlarms(o)...)
		}
	}
	return out
}

func unseenAlarm(kind string, f TenantFilter, err error) Alarm {
	return Alarm{Kind: kind, Namespace: f.Namespace, Reason: fault.Reason(err, "Unseen"), Message: "not shown: " + err.Error()}
}

func registryAlarms(r *tenantsv1.TenantRegistry) []Alarm {
	var out []Alarm
	add := func(reason, message string, since time.Time) {
		out = append(out, Alarm{tenantsv1.RegistryKind, r.Namespace, r.Name, reason, message, since, "terrier rows " + r.Name + " -n " + r.Namespace})
	}
	if b := r.Status.Blocked; b != nil {
		add(b.Reason, fmt.Sprintf("%s blocked by a guard: %s", Count(int(b.Count), "deletion"), b.Message), b.Since.Time)
	}
	if c := FindCondition(r.Status.Conditions, "Ready"); c != nil && c.Status == "False" {
		add(c.Reason, c.Message, c.LastTransitionTime.Time)
	}
	if n := r.Status.RowErrorCount; n > 0 {
		add("RowErrors", fmt.Sprintf("no tenant can be made of %s", Count(int(n), "row")), time.Time{})
	}
	return out
}

func templateAlarms(o *tenantsv1.TenantTemplate) []Alarm {
	var out []Alarm
	if s := o.Status.Rollout; s != nil && s.Phase == tenantsv1.RolloutFailed {
		out = append(out, Alarm{
			tenantsv1.TemplateKind, o.Namespace, o.Name, "RolloutStopped",
			fmt.Sprintf("the rollout of generation %d has stopped: %s", s.TargetGeneration, s.Message),
			rolloutSince(s), "terrier rollout status " + o.Name + " -n " + o.Namespace,
		})
	}
	if c := FindCondition(o.Status.Conditions, "Valid"); c != nil && c.Status == "False" {
		out = append(out, Alarm{
			tenantsv1.TemplateKind, o.Namespace, o.Name, c.Reason, c.Message, c.LastTransitionTime.Time,
			"terrier render " + o.Name + " -n " + o.Namespace,
		})
	}
	return out
}

func (t *Tenants) tenantObject(ctx context.Context, key Key) (*tenantsv1.Tenant, error) {
	if err := key.Check(); err != nil {
		return nil, err
	}
	var o tenantsv1.Tenant
	if err := t.Kube.Get(ctx, key.object(), &o); err != nil {
		return nil, TenantsFault(err, "tenant "+key.String())
	}
	return &o, nil
}

func (t *Tenants) TemplateObject(ctx context.Context, key Key) (*tenantsv1.TenantTemplate, error) {
	if err := key.Check(); err != nil {
		return nil, err
	}
	var o tenantsv1.TenantTemplate
	if err := t.Kube.Get(ctx, key.object(), &o); err != nil {
		return nil, TenantsFault(err, "template "+key.String())
	}
	return &o, nil
}

func (t *Tenants) RegistryObject(ctx context.Context, key Key) (*tenantsv1.TenantRegistry, error) {
	if err := key.Check(); err != nil {
		return nil, err
	}
	var o tenantsv1.TenantRegistry
	if err := t.Kube.Get(ctx, key.object(), &o); err != nil {
		return nil, TenantsFault(err, "registry "+key.String())
	}
	return &o, nil
}
