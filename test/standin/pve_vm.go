package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// pveVM is proxmox_virtual_environment_vm.
type pveVM struct{ api pve }

const pveVMName = "proxmox_virtual_environment_vm"

func (r *pveVM) Metadata(_ context.Context, _ resource.MetadataRequest, p *resource.MetadataResponse) {
	p.TypeName = pveVMName
}

func (r *pveVM) Configure(_ context.Context, q resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	r.api, _ = q.ProviderData.(pve) // none while the engine only validates
}

// at is the path of a machine in the API.
func (m *pveModel) at() string {
	return "nodes/" + m.NodeName.ValueString() + "/qemu/" + m.VMID.String()
}

func (r *pveVM) Create(ctx context.Context, q resource.CreateRequest, p *resource.CreateResponse) {
	var m pveModel
	if p.Diagnostics.Append(q.Plan.Get(ctx, &m)...); p.Diagnostics.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := r.clone(ctx, &m); err != nil {
		p.Diagnostics.AddError("Creating "+pveVMName, err.Error())
		return
	}
	// From here on the machine is there, and a state has to tell of it whatever comes.
	m.ID = types.StringValue(m.VMID.String())
	err := r.equip(ctx, &m)
	p.Diagnostics.Append(p.State.Set(ctx, m.complete())...)
	if err != nil {
		p.Diagnostics.AddError("Creating "+pveVMName, err.Error())
	}
}

// equip makes a fresh clone what the plan says.
func (r *pveVM) equip(ctx context.Context, m *pveModel) error {
	if err := r.api.do(ctx, http.MethodPut, m.at()+"/config", m.changes(&pveModel{})); err != nil {
		return err
	}
	if err := r.disks(ctx, m, &pveModel{}); err != nil {
		return err
	}
	if m.Started.ValueBool() {
		if err := r.api.do(ctx, http.MethodPost, m.at()+"/status/start", nil); err != nil {
			return err
		}
		r.hear(ctx, m, true)
	}
	_, err := r.refresh(ctx, m, false)
	return err
}

// complete has no value that is unknown.
func (m pveModel) complete() pveModel {
	m.Network = slices.Clone(m.Network)
	for i, n := range m.Network {
		if n.MACAddress.IsUnknown() {
			m.Network[i].MACAddress = types.StringNull()
		}
	}
	texts := types.ListType{ElemType: types.StringType}
	if m.IPv4Addresses.IsUnknown() || m.IPv4Addresses.IsNull() {
		m.IPv4Addresses = types.ListValueMust(texts, []attr.Value{})
	}
	for _, l := range []*types.List{&m.MACAddresses, &m.InterfaceNames} {
		if l.IsUnknown() || l.IsNull() {
			*l = types.ListValueMust(types.StringType, []attr.Value{})
		}
	}
	return m
}

// clone makes the machine. If the answer is lost, it finds out whether the machine was made all
// the same, so that none is made twice.
func (r *pveVM) clone(ctx context.Context, m *pveModel) error {
	if len(m.Clone) != 1 {
		return errors.New("this provider stands in for the real one, and makes a machine only from a template: write one block clone")
	}
	c, drawn := m.Clone[0], m.VMID.IsUnknown() || m.VMID.IsNull()
	for tries := max(c.Retries.ValueInt64(), 3); ; tries-- {
		if drawn {
			var next string
			if err := r.api.get(ctx, "cluster/nextid", nil, &next); err != nil {
				return err
			}
			n, err := strconv.ParseInt(next, 10, 64)
			if err != nil {
				return fmt.Errorf("reading the next number of a machine: %w", err)
			}
			m.VMID = types.Int64Value(n)
		}
		err := r.cloneAs(ctx, m, c)
		if err == nil || !drawn || tries <= 1 || !says(err, "already exists") {
			return err // another machine took the number if it exists
		}
	}
}

func (r *pveVM) cloneAs(ctx context.Context, m *pveModel, c pveClone) error {
	form := url.Values{"newid": {m.VMID.String()}, "full": {bit(c.Full)}}
	for name, v := range map[string]string{"name": m.Name.ValueString(), "pool": m.PoolID.ValueString(), "description": m.Description.ValueString()} {
		if v != "" {
			form.Set(name, v)
		}
	}
	if store := c.DatastoreID.ValueString(); store != "" && c.Full.ValueBool() {
		form.Set("storage", store)
	}
	from := cmp.Or(c.NodeName.ValueString(), m.NodeName.ValueString())
	if from != m.NodeName.ValueString() {
		form.Set("target", m.NodeName.ValueString())
	}
	err := r.api.do(ctx, http.MethodPost, "nodes/"+from+"/qemu/"+c.VMID.String()+"/clone", form)
	if _, answered := errors.AsType[refusal](err); err == nil || answered || ctx.Err() != nil {
		return err
	}
	for {
		row, there, found := r.api.row(ctx, m.VMID.ValueInt64())
		if found != nil || !there || row.Name != m.Name.ValueString() {
			return errors.Join(err, found)
		}
		if row.Lock == "" {
			return nil
		}
		if err := wait(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// disks makes, grows and takes out disks.
func (r *pveVM) disks(ctx context.Context, m, old *pveModel) error {
	var now pveConfig
	if err := r.api.get(ctx, m.at()+"/config", nil, &now); err != nil {
		return err
	}
	wanted := map[string]bool{}
	for _, d := range m.Disk {
		name, size := d.Interface.ValueString(), d.Size.ValueInt64()
		wanted[name] = true
		has, is := now.text(name), gigabytes(part(now.text(name), "size"))
		var err error
		switch {
		case has == "":
			err = r.api.do(ctx, http.MethodPut, m.at()+"/config", url.Values{name: {fmt.Sprintf("%s:%d", d.DatastoreID.ValueString(), size)}})
		case !strings.HasPrefix(has, d.DatastoreID.ValueString()+":"):
			err = fmt.Errorf("the disk %s is at %s, and this provider moves no disk", name, has)
		case size < is:
			err = fmt.Errorf("the disk %s has %d GiB, and cannot shrink to %d GiB", name, is, size)
		case size > is:
			err = r.api.do(ctx, http.MethodPut, m.at()+"/resize", url.Values{"disk": {name}, "size": {fmt.Sprintf("%dG", size)}})
		}
		if err != nil {
			return err
		}
	}
	var gone []string
	for _, d := range old.Disk {
		if name := d.Interface.ValueString(); !wanted[name] && now.text(name) != "" {
			gone = append(gone, name)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	// Its data stay: Proxmox keeps it as an unused disk.
	return r.api.do(ctx, http.MethodPut, m.at()+"/config", url.Values{"delete": {strings.Join(gone, ",")}})
}

func (r *pveVM) Read(ctx context.Context, q resource.ReadRequest, p *resource.ReadResponse) {
	var m pveModel
	if p.Diagnostics.Append(q.State.Get(ctx, &m)...); p.Diagnostics.HasError() {
		return
	}
	all := m.Started.IsNull() // it is being imported
	there, err := r.refresh(ctx, &m, all)
	switch {
	case err != nil:
		p.Diagnostics.AddError("Reading "+pveVMName, err.Error())
	case !there:
		p.State.RemoveResource(ctx)
	default:
		if m.Started.ValueBool() {
			r.hear(ctx, &m, false)
		}
		p.Diagnostics.Append(p.State.Set(ctx, m.complete())...)
	}
}

// refresh reads the machine into the model, and reports whether it is there.
func (r *pveVM) refresh(ctx context.Context, m *pveModel, all bool) (bool, error) {
	row, there, err := r.api.row(ctx, m.VMID.ValueInt64())
	if err != nil || !there {
		return false, err
	}
	m.NodeName = types.StringValue(row.Node)
	m.PoolID = kept(m.PoolID, row.Pool, all)
	m.Started = types.BoolValue(row.Status == "running")
	if all {
		m.Migrate, m.StopOnDestroy, m.RebootAfterUpdate = types.BoolValue(false), types.BoolValue(false), types.BoolValue(true)
	}
	var c pveConfig
	if err := r.api.get(ctx, m.at()+"/config", nil, &c); err != nil {
		return false, err
	}
	m.take(c, all)
	return true, nil
}

// hear asks the guest agent for addresses; with patient it waits for it as long as the
// configuration says. Without an answer the model stays as it is.
func (r *pveVM) hear(ctx context.Context, m *pveModel, patient bool) {
	if len(m.Agent) == 0 || !m.Agent[0].Enabled.ValueBool() {
		return
	}
	long, err := time.ParseDuration(cmp.Or(m.Agent[0].Timeout.ValueString(), "15m"))
	if err != nil || !patient {
		long = 0
	}
	for late := time.Now().Add(long); ; {
		var said struct {
			Result []struct {
				Name        string
				MAC         string `json:"hardware-address"`
				IPAddresses []struct {
					Kind    string `json:"ip-address-type"`
					Address string `json:"ip-address"`
				} `json:"ip-addresses"`
			}
		}
		err := r.api.get(ctx, m.at()+"/agent/network-get-interfaces", nil, &said)
		ready := false
		var names, macs, addresses []attr.Value
		for _, i := range said.Result {
			of := []attr.Value{}
			for _, a := range i.IPAddresses {
				if a.Kind == "ipv4" {
					of = append(of, types.StringValue(a.Address))
					ready = ready || i.Name != "lo"
				}
			}
			names, macs = append(names, types.StringValue(i.Name)), append(macs, types.StringValue(strings.ToUpper(i.MAC)))
			addresses = append(addresses, types.ListValueMust(types.StringType, of))
		}
		if err == nil && ready {
			m.InterfaceNames, m.MACAddresses = types.ListValueMust(types.StringType, names), types.ListValueMust(types.StringType, macs)
			m.IPv4Addresses = types.ListValueMust(types.ListType{ElemType: types.StringType}, addresses)
			return
		}
		if time.Now().After(late) || wait(ctx, 200*time.Millisecond) != nil {
			return
		}
	}
}

func (r *pveVM) Update(ctx context.Context, q resource.UpdateRequest, p *resource.UpdateResponse) {
	var m, old pveModel
	p.Diagnostics.Append(q.Plan.Get(ctx, &m)...)
	if p.Diagnostics.Append(q.State.Get(ctx, &old)...); p.Diagnostics.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := r.update(ctx, &m, &old); err != nil {
		p.Diagnostics.AddError("Updating "+pveVMName, err.Error())
		return
	}
	p.Diagnostics.Append(p.State.Set(ctx, m.complete())...)
}

func (r *pveVM) update(ctx context.Context, m, old *pveModel) error {
	if from, to := old.NodeName.ValueString(), m.NodeName.ValueString(); from != to {
		form := url.Values{"target": {to}, "online": {bit(old.Started)}}
		if err := r.api.do(ctx, http.MethodPost, old.at()+"/migrate", form); err != nil {
			return err
		}
	}
	if pool := m.PoolID.ValueString(); pool != old.PoolID.ValueString() && pool != "" {
		if err := r.api.do(ctx, http.MethodPut, "pools/"+pool, url.Values{"vms": {m.VMID.String()}}); err != nil {
			return err
		}
	}
	changes := m.changes(old)
	if len(changes) > 0 {
		if err := r.api.do(ctx, http.MethodPut, m.at()+"/config", changes); err != nil {
			return err
		}
	}
	if err := r.disks(ctx, m, old); err != nil {
		return err
	}
	if err := r.power(ctx, m, old, changes); err != nil {
		return err
	}
	there, err := r.refresh(ctx, m, false)
	if err == nil && !there {
		err = fmt.Errorf("the machine %s is gone", m.VMID)
	}
	return err // addresses are those of the plan; the next refresh reads them
}

// power starts the machine, stops it, or restarts it for what counts only from a start on.
func (r *pveVM) power(ctx context.Context, m, old *pveModel, changes url.Values) error {
	deed := ""
	switch {
	case m.Started.ValueBool() && !old.Started.ValueBool():
		deed = "start"
	case !m.Started.ValueBool() && old.Started.ValueBool():
		deed = "shutdown"
	case m.Started.ValueBool() && m.RebootAfterUpdate.ValueBool() && slices.ContainsFunc([]string{"cores", "sockets", "memory", "cpu", "agent"}, changes.Has):
		deed = "reboot"
	default:
		return nil
	}
	return r.api.do(ctx, http.MethodPost, m.at()+"/status/"+deed, nil)
}

func (r *pveVM) Delete(ctx context.Context, q resource.DeleteRequest, p *resource.DeleteResponse) {
	var m pveModel
	if p.Diagnostics.Append(q.State.Get(ctx, &m)...); p.Diagnostics.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := r.destroy(ctx, &m); err != nil {
		p.Diagnostics.AddError("Deleting "+pveVMName, err.Error())
	}
}

func (r *pveVM) destroy(ctx context.Context, m *pveModel) error {
	row, there, err := r.api.row(ctx, m.VMID.ValueInt64())
	if err != nil || !there {
		return err
	}
	m.NodeName = types.StringValue(row.Node)
	if row.Status == "running" {
		deed := "shutdown"
		if m.StopOnDestroy.ValueBool() {
			deed = "stop"
		}
		if err := r.api.do(ctx, http.MethodPost, m.at()+"/status/"+deed, nil); err != nil {
			return err
		}
	}
	err = r.api.do(ctx, http.MethodDelete, m.at(), url.Values{"purge": {"1"}, "destroy-unreferenced-disks": {"1"}})
	if says(err, "does not exist") {
		return nil
	}
	return err
}

// ImportState takes node/number.
func (r *pveVM) ImportState(ctx context.Context, q resource.ImportStateRequest, p *resource.ImportStateResponse) {
	node, number, ok := strings.Cut(q.ID, "/")
	id, err := strconv.ParseInt(number, 10, 64)
	if !ok || err != nil {
		p.Diagnostics.AddError("Importing "+pveVMName, "write NODE/NUMBER, as pve-tenant/101")
		return
	}
	p.Diagnostics.Append(p.State.SetAttribute(ctx, path.Root("id"), number)...)
	p.Diagnostics.Append(p.State.SetAttribute(ctx, path.Root("vm_id"), id)...)
	p.Diagnostics.Append(p.State.SetAttribute(ctx, path.Root("node_name"), node)...)
}
