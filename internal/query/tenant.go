package query

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query/meaning"
	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/tenantapi"
)

// TenantDetail is all there is to know of a tenant.
type TenantDetail struct {
	Tenant
	Means      meaning.Situation `json:"means"`
	Row        RowInfo           `json:"row"`
	Newest     int64             `json:"newestGeneration,omitempty"` // of the template
	Behind     string            `json:"behind,omitempty"`           // why it has not the newest
	Objects    []TenantObject    `json:"objects"`                    // in the order of making
	Conditions []Condition       `json:"conditions,omitempty"`
	Events     []Event           `json:"events,omitempty"` // newest first
	Unseen     []string          `json:"unseen,omitempty"` // what is not shown, and why
}

// RowInfo is what may be said of a row without saying what is in it.
type RowInfo struct {
	Variables []string `json:"variables,omitempty"`
	Secret    string   `json:"secret,omitempty"` // that holds the values; empty if annotations of the Tenant do

	// Hosts are those of the hosts.yml of a tenant that is a directory of an inventory, for
	// callers who may read that Secret. No other value is shown.
	Hosts []RowHost `json:"hosts,omitempty"`
}

// RowHost is a host in the row of a tenant.
type RowHost struct {
	Name    string   `json:"name"`
	Address string   `json:"address,omitempty"`
	User    string   `json:"user,omitempty"`
	Port    int      `json:"port,omitempty"`
	MAC     string   `json:"mac,omitempty"`
	Groups  []string `json:"groups,omitempty"`
}

// hostsIn are the hosts in a row of an inventory; none of a row of another registry.
func hostsIn(r tenant.Row) ([]RowHost, error) {
	for _, column := range []string{tenantapi.ColumnPath, tenantapi.ColumnDigest, tenantapi.ColumnHosts} {
		if r.Extra[column] == "" {
			return nil, nil
		}
	}
	var hosts []RowHost
	if err := json.Unmarshal([]byte(r.Extra[tenantapi.ColumnHosts]), &hosts); err != nil {
		return nil, fault.New(fault.Invalid, "", errors.New("the variable hosts of the row is no list of hosts"))
	}
	return hosts, nil
}

// States of an object of a tenant that no status speaks of.
const (
	ObjectReady    = "Ready"
	ObjectPending  = "Pending"  // not made yet
	ObjectLeftOut  = "LeftOut"  // includeWhen says that this tenant has none
	ObjectRemoving = "Removing" // the template does not have it any more
	ObjectUnlisted = "Unlisted" // the status has no room to say it
	ObjectGone     = "Gone"     // the tenant goes, and this one has gone
	ObjectLetGo    = "LetGo"    // the tenant goes, and this one stays without it
)

// TenantObject is one object of a tenant.
type TenantObject struct {
	ID         string `json:"id"`
	Group      string `json:"group,omitempty"` // of the template
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name,omitempty"` // empty until it is made

	State   string            `json:"state"`
	Reason  string            `json:"reason,omitempty"`
	Message string            `json:"message,omitempty"`
	Since   time.Time         `json:"since,omitzero"`
	Next    time.Time         `json:"nextAttempt,omitzero"` // of what failed; zero if only a change has it tried again
	Means   meaning.Situation `json:"means,omitzero"`

	DependsOn []string `json:"dependsOn,omitempty"`
	WaitsFor  []string `json:"waitsFor,omitempty"` // those of DependsOn that are not ready
	Retain    bool     `json:"retain,omitempty"`   // stays when the tenant goes
	Once      bool     `json:"once,omitempty"`     // written once

	Stack       *Stack `json:"stack,omitempty"`
	StackUnseen string `json:"stackUnseen,omitempty"`
}

// Describe returns all there is to know of a tenant. What the caller may not see
// is left out, and it says so.
func (t *Tenants) Describe(ctx context.Context, key Key) (TenantDetail, error) {
	o, err := t.tenantObject(ctx, key)
	if err != nil {
		return TenantDetail{}, err
	}
	d := TenantDetail{Tenant: tenantView(o, t.Now()), Conditions: conditionsOf(o.Status.Conditions)}
	d.Means = meaning.OfTenant(cmp.Or(d.Reason, d.State))
	unseen := func(what string, err error) {
		if err != nil {
			d.Unseen = append(d.Unseen, what+": "+err.Error())
		}
	}
	d.Row, err = t.row(ctx, o)
	unseen("the names of the row's variables", err)
	unseen("the template", t.standing(ctx, o, &d))
	d.Objects, err = tenantObjects(o)
	unseen("the order of the objects", err)
	for i := range d.Objects {
		t.addStack(ctx, &d.Objects[i])
	}
	d.Events, err = events(ctx, t.Kube, key.Namespace, string(o.UID))
	unseen("events", err)
	return d, nil
}

// row names the variables of a tenant's row. Their values stay where they are.
func (t *Tenants) row(ctx context.Context, o *tenantsv1.Tenant) (RowInfo, error) {
	r, secret, err := t.readRow(ctx, o)
	if err != nil {
		return RowInfo{}, err
	}
	names := slices.Sorted(maps.Keys(tenant.ValuesOf(r, registryOf(o), o.Spec.TemplateRef)))
	hosts, err := hostsIn(r)
	return RowInfo{Variables: names, Secret: secret, Hosts: hosts}, err
}

// readRow reads the row of a tenant as the caller, and where it was found.
func (t *Tenants) readRow(ctx context.Context, o *tenantsv1.Tenant) (tenant.Row, string, error) {
	var s corev1.Secret
	name := tenantapi.RowSecret(o.Name)
	err := access.Fault(t.Kube.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: name}, &s), "Secret "+name)
	switch {
	case err == nil && s.Type == tenantapi.RowSecretType:
		r, err := tenantapi.RowOf(s.Data)
		return r, name, err
	case err == nil, fault.Of(err) == fault.Missing:
		r, err := tenantapi.AnnotatedRow(o)
		return r, "", err
	default:
		return tenant.Row{}, "", err
	}
}

// standing compares what a tenant has of its template with what there is.
func (t *Tenants) standing(ctx context.Context, o *tenantsv1.Tenant, d *TenantDetail) error {
	tpl, err := t.TemplateObject(ctx, Key{Namespace: o.Namespace, Name: o.Spec.TemplateRef})
	if fault.Reason(err, "") == ReasonNoSuchThing {
		d.Behind = "the template is gone"
		return nil
	}
	if err != nil {
		return err
	}
	d.Newest = tpl.Generation
	if d.Generation == 0 || d.Generation >= d.Newest {
		return nil
	}
	switch s := tpl.Status.Rollout; {
	case s != nil && s.Phase == tenantsv1.RolloutFailed:
		d.Behind = "its rollout has stopped: " + s.Message
	case s != nil && s.Phase == tenantsv1.RolloutInProgress && s.Wave != "":
		d.Behind = "its rollout is in the wave " + s.Wave
	case s != nil && s.Phase == tenantsv1.RolloutInProgress:
		d.Behind = "its rollout has not come here yet"
	default:
		d.Behind = "it has not come here yet"
	}
	return nil
}

// tenantObjects lists what a tenant is to have and what it has, in the order of
// making. What it only still has comes last: that goes.
func tenantObjects(o *tenantsv1.Tenant) ([]TenantObject, error) {
	resources, err := tenantapi.Resources(&o.Spec.Resources)
	ordered, orderErr := tenant.Order(resources)
	if orderErr == nil {
		resources = ordered
	}
	made := map[string]tenantsv1.InventoryItem{}
	for _, item := range inventory(o) {
		made[item.ID] = item
	}
	told := map[string]tenantsv1.ResourceStatus{}
	for _, s := range o.Status.Resources {
		told[s.ID] = s
	}
	var out []TenantObject
	for _, r := range resources {
		apiVersion, _ := r.Object["apiVersion"].(string)
		kind, _ := r.Object["kind"].(string)
		v := TenantObject{
			ID: r.ID, Group: r.Group, APIVersion: apiVersion, Kind: kind, State: ObjectPending,
			DependsOn: r.DependIDs, Retain: r.Deletion == tenant.Retain, Once: r.Creation == tenant.Once,
		}
		item, has := made[r.ID]
		delete(made, r.ID)
		switch {
		case has:
			v.is(item)
			v.State = ObjectReady
			if o.Status.LeftOut != nil && o.Status.LeftOut.Resources > 0 {
				v.State = ObjectUnlisted
			}
		case o.DeletionTimestamp != nil && v.Retain:
			v.State = ObjectLetGo
		case o.DeletionTimestamp != nil:
			v.State = ObjectGone
		case r.IncludeWhen != "" && o.Status.ObservedGeneration == o.Generation:
			v.State = ObjectLeftOut
		}
		v.told(told[r.ID])
		out = append(out, v)
	}
	rest := make([]TenantObject, 0, len(made))
	for _, item := range inventory(o) {
		if _, left := made[item.ID]; left {
			v := TenantObject{ID: item.ID, State: ObjectRemoving, Retain: item.DeletionPolicy == tenantsv1.DeletionRetain}
			v.is(item)
			v.told(told[item.ID])
			rest = append(rest, v)
		}
	}
	awaited(out)
	return append(out, rest...), errors.Join(err, orderErr)
}

// inventory is what a tenant has; of one that Terrier has not reconciled yet, by
// what Tenant Operator wrote.
func inventory(o *tenantsv1.Tenant) []tenantsv1.InventoryItem {
	if len(o.Status.Inventory) > 0 {
		return o.Status.Inventory
	}
	var out []tenantsv1.InventoryItem
	for _, key := range o.Status.AppliedResources {
		if item, ok := tenant.ParseKey(key); ok {
			out = append(out, tenantsv1.InventoryItem{ID: item.ID, Kind: item.Kind, Namespace: item.Namespace, Name: item.Name})
		}
	}
	return out
}

func (v *TenantObject) is(item tenantsv1.InventoryItem) {
	v.Kind, v.Namespace, v.Name = cmp.Or(item.Kind, v.Kind), item.Namespace, item.Name
	if item.Version != "" {
		v.APIVersion = strings.TrimPrefix(item.Group+"/"+item.Version, "/")
	}
}

// told takes over what the status says of an object that is not simply ready.
func (v *TenantObject) told(s tenantsv1.ResourceStatus) {
	if s.ID == "" {
		return
	}
	v.State, v.Reason, v.Message, v.Since = s.State, s.Reason, s.Message, s.Since.Time
	v.Means = meaning.OfTenant(s.Reason)
	if s.NextAttempt != nil {
		v.Next = s.NextAttempt.Time
	}
}

// Note is the message of the object, unless WaitsFor says the same.
func (v TenantObject) Note() string {
	if v.Reason == tenant.DependencyNotReady && len(v.WaitsFor) > 0 {
		return ""
	}
	return v.Message
}

// awaited fills in what each object waits for: only what is not made yet waits.
func awaited(list []TenantObject) {
	ready := map[string]bool{}
	for _, v := range list {
		ready[v.ID] = v.State == ObjectReady || v.State == ObjectLeftOut
	}
	for i := range list {
		v := &list[i]
		if v.State != ObjectPending {
			continue
		}
		for _, id := range v.DependsOn {
			if !ready[id] {
				v.WaitsFor = append(v.WaitsFor, id)
			}
		}
	}
}

// addStack adds the status of the stack, if the object is one.
func (t *Tenants) addStack(ctx context.Context, v *TenantObject) {
	d := dialectOf(t.stacks.Kinds, v.APIVersion, v.Kind)
	if d == nil || v.Name == "" {
		return
	}
	s, err := t.stacks.Get(ctx, Key{Namespace: v.Namespace, Name: v.Name, Kind: t.stacks.Kinds.Word(d)})
	if err != nil {
		v.StackUnseen = fmt.Sprint(err)
		return
	}
	v.Stack = &s
}
