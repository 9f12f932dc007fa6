package main

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/types"
)

// pveModel is proxmox_virtual_environment_vm, with the names of
// https://registry.terraform.io/providers/bpg/proxmox/latest/docs/resources/virtual_environment_vm.
type pveModel struct {
	ID                types.String `tfsdk:"id"`
	VMID              types.Int64  `tfsdk:"vm_id"`
	Name              types.String `tfsdk:"name"`
	NodeName          types.String `tfsdk:"node_name"`
	Description       types.String `tfsdk:"description"`
	PoolID            types.String `tfsdk:"pool_id"`
	Tags              []string     `tfsdk:"tags"`
	Started           types.Bool   `tfsdk:"started"`
	OnBoot            types.Bool   `tfsdk:"on_boot"`
	Protection        types.Bool   `tfsdk:"protection"`
	Migrate           types.Bool   `tfsdk:"migrate"`
	StopOnDestroy     types.Bool   `tfsdk:"stop_on_destroy"`
	RebootAfterUpdate types.Bool   `tfsdk:"reboot_after_update"`
	IPv4Addresses     types.List   `tfsdk:"ipv4_addresses"`
	MACAddresses      types.List   `tfsdk:"mac_addresses"`
	InterfaceNames    types.List   `tfsdk:"network_interface_names"`
	Agent             []pveAgent   `tfsdk:"agent"`
	Clone             []pveClone   `tfsdk:"clone"`
	CPU               []pveCPU     `tfsdk:"cpu"`
	Memory            []pveMemory  `tfsdk:"memory"`
	Disk              []pveDisk    `tfsdk:"disk"`
	Network           []pveNetwork `tfsdk:"network_device"`
	Init              []pveInit    `tfsdk:"initialization"`
	OS                []pveOS      `tfsdk:"operating_system"`
	Serial            []pveSerial  `tfsdk:"serial_device"`
}

type pveAgent struct {
	Enabled types.Bool   `tfsdk:"enabled"`
	Timeout types.String `tfsdk:"timeout"`
}

type pveClone struct {
	VMID        types.Int64  `tfsdk:"vm_id"`
	NodeName    types.String `tfsdk:"node_name"`
	DatastoreID types.String `tfsdk:"datastore_id"`
	Full        types.Bool   `tfsdk:"full"`
	Retries     types.Int64  `tfsdk:"retries"`
}

type pveCPU struct {
	Cores   types.Int64  `tfsdk:"cores"`
	Sockets types.Int64  `tfsdk:"sockets"`
	Type    types.String `tfsdk:"type"`
}

type pveMemory struct {
	Dedicated types.Int64 `tfsdk:"dedicated"`
}

type pveDisk struct {
	Interface   types.String `tfsdk:"interface"`
	DatastoreID types.String `tfsdk:"datastore_id"`
	Size        types.Int64  `tfsdk:"size"`
}

type pveNetwork struct {
	Bridge     types.String `tfsdk:"bridge"`
	Model      types.String `tfsdk:"model"`
	VLANID     types.Int64  `tfsdk:"vlan_id"`
	MACAddress types.String `tfsdk:"mac_address"`
	Firewall   types.Bool   `tfsdk:"firewall"`
}

type pveInit struct {
	DatastoreID    types.String  `tfsdk:"datastore_id"`
	UserDataFileID types.String  `tfsdk:"user_data_file_id"`
	IPConfig       []pveIPConfig `tfsdk:"ip_config"`
	DNS            []pveDNS      `tfsdk:"dns"`
	UserAccount    []pveUser     `tfsdk:"user_account"`
}

type pveIPConfig struct {
	IPv4 []pveIPv4 `tfsdk:"ipv4"`
}

type pveIPv4 struct {
	Address types.String `tfsdk:"address"`
	Gateway types.String `tfsdk:"gateway"`
}

type pveDNS struct {
	Domain  types.String `tfsdk:"domain"`
	Servers []string     `tfsdk:"servers"`
}

type pveUser struct {
	Username types.String `tfsdk:"username"`
	Keys     []string     `tfsdk:"keys"`
	Password types.String `tfsdk:"password"`
}

type pveOS struct {
	Type types.String `tfsdk:"type"`
}

type pveSerial struct {
	Device types.String `tfsdk:"device"`
}

// options are those of https://pve.proxmox.com/pve-docs/qm.conf.5.html that the model sets,
// but for its disks.
func (m *pveModel) options() map[string]string {
	o := map[string]string{}
	put := func(name, v string) {
		if v != "" {
			o[name] = v
		}
	}
	put("name", m.Name.ValueString())
	put("description", m.Description.ValueString())
	put("tags", strings.Join(m.Tags, ";"))
	put("onboot", bit(m.OnBoot))
	put("protection", bit(m.Protection))
	for _, a := range m.Agent {
		put("agent", "enabled="+bit(a.Enabled))
	}
	for _, c := range m.CPU {
		put("cores", c.Cores.String())
		put("sockets", c.Sockets.String())
		put("cpu", c.Type.ValueString())
	}
	for _, c := range m.Memory {
		put("memory", c.Dedicated.String())
	}
	for _, os := range m.OS {
		put("ostype", os.Type.ValueString())
	}
	for i, s := range m.Serial {
		put("serial"+strconv.Itoa(i), s.Device.ValueString())
	}
	for i, n := range m.Network {
		put("net"+strconv.Itoa(i), n.text())
	}
	for _, init := range m.Init {
		init.options(put)
	}
	return o
}

func bit(b types.Bool) string {
	switch {
	case b.IsNull():
		return ""
	case b.ValueBool():
		return "1"
	default:
		return "0"
	}
}

// text is virtio=MAC,bridge=vmbr0,tag=100.
func (n pveNetwork) text() string {
	text := n.Model.ValueString()
	if mac := n.MACAddress.ValueString(); mac != "" {
		text += "=" + strings.ToUpper(mac)
	}
	text += ",bridge=" + n.Bridge.ValueString()
	if n.VLANID.ValueInt64() > 0 {
		text += ",tag=" + n.VLANID.String()
	}
	if n.Firewall.ValueBool() {
		text += ",firewall=1"
	}
	return text
}

func (c pveInit) options(put func(name, v string)) {
	if id := c.UserDataFileID.ValueString(); id != "" {
		put("cicustom", "user="+id)
	}
	for i, ip := range c.IPConfig {
		for _, v4 := range ip.IPv4 {
			text := "ip=" + v4.Address.ValueString()
			if gw := v4.Gateway.ValueString(); gw != "" {
				text += ",gw=" + gw
			}
			put("ipconfig"+strconv.Itoa(i), text)
		}
	}
	for _, d := range c.DNS {
		put("searchdomain", d.Domain.ValueString())
		put("nameserver", strings.Join(d.Servers, " "))
	}
	for _, u := range c.UserAccount {
		put("ciuser", u.Username.ValueString())
		put("cipassword", u.Password.ValueString())
		if len(u.Keys) > 0 {
			// Encoded once more than the form is.
			put("sshkeys", url.PathEscape(strings.Join(u.Keys, "\n")+"\n"))
		}
	}
}

// changes are the options to send so that those of old become those of m.
func (m *pveModel) changes(old *pveModel) url.Values {
	form, was, gone := url.Values{}, old.options(), []string{}
	now := m.options()
	for name, v := range now {
		if was[name] != v {
			form.Set(name, v)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if _, stays := now[name]; !stays {
			gone = append(gone, name)
		}
	}
	if len(gone) > 0 {
		form.Set("delete", strings.Join(gone, ","))
	}
	return form
}

// part is the value of a part of an option: bridge of virtio=…,bridge=vmbr0.
func part(text, name string) string {
	for p := range strings.SplitSeq(text, ",") {
		if v, ok := strings.CutPrefix(p, name+"="); ok {
			return v
		}
	}
	return ""
}

// gigabytes reads a size; -1 if it is none, or no whole number of GiB.
func gigabytes(text string) int64 {
	for suffix, times := range map[string]int64{"G": 1, "T": 1024} {
		if n, err := strconv.ParseInt(strings.TrimSuffix(text, suffix), 10, 64); err == nil && strings.HasSuffix(text, suffix) {
			return n * times
		}
	}
	return -1
}

// pveConfig are the options of a machine as it has them.
type pveConfig map[string]any

func (c pveConfig) text(name string) string {
	switch v := c[name].(type) {
	case nil:
		return ""
	case float64:
		return strconv.FormatInt(int64(v), 10)
	default:
		return fmt.Sprint(v)
	}
}

func (c pveConfig) number(name string, or int64) types.Int64 {
	n, err := strconv.ParseInt(cmp.Or(c.text(name), strconv.FormatInt(or, 10)), 10, 64)
	if err != nil {
		return types.Int64Null()
	}
	return types.Int64Value(n)
}

// of are the options with a name and a number, in the order of the numbers.
func (c pveConfig) of(kinds ...string) []string {
	var found []string
	for name := range c {
		kind := strings.TrimRight(name, "0123456789")
		if kind != name && slices.Contains(kinds, kind) {
			found = append(found, name)
		}
	}
	slices.SortFunc(found, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	return found
}

// kept is a value as it is now. What a configuration does not set stays unset.
func kept(old types.String, now string, all bool) types.String {
	if old.IsNull() && (!all || now == "") {
		return old
	}
	return types.StringValue(now)
}

// take reads options into the model: those that it sets, or with all those that most
// configurations set.
func (m *pveModel) take(c pveConfig, all bool) {
	m.Name = kept(m.Name, c.text("name"), all)
	m.Description = kept(m.Description, strings.TrimSuffix(c.text("description"), "\n"), all)
	if tags := tagList(c.text("tags")); m.Tags != nil || all && len(tags) > 0 {
		m.Tags = append([]string{}, tags...)
	}
	m.OnBoot = types.BoolValue(c.text("onboot") == "1")
	if !m.Protection.IsNull() || all && c.text("protection") == "1" {
		m.Protection = types.BoolValue(c.text("protection") == "1")
	}
	if len(m.Agent) > 0 || all {
		a := pveAgent{Timeout: types.StringValue("15m")}
		if len(m.Agent) > 0 {
			a = m.Agent[0]
		}
		a.Enabled = types.BoolValue(part(c.text("agent"), "enabled") == "1" || strings.HasPrefix(c.text("agent"), "1"))
		m.Agent = []pveAgent{a}
	}
	if len(m.CPU) > 0 || all {
		kind := types.StringNull()
		if len(m.CPU) > 0 {
			kind = m.CPU[0].Type
		}
		m.CPU = []pveCPU{{c.number("cores", 1), c.number("sockets", 1), kept(kind, c.text("cpu"), all)}}
	}
	if len(m.Memory) > 0 || all {
		m.Memory = []pveMemory{{c.number("memory", 512)}}
	}
	if len(m.OS) > 0 || all {
		m.OS = []pveOS{{types.StringValue(cmp.Or(c.text("ostype"), "other"))}}
	}
	if serial := c.of("serial"); len(m.Serial) > 0 {
		m.Serial = nil
		for _, name := range serial {
			m.Serial = append(m.Serial, pveSerial{types.StringValue(c.text(name))})
		}
	}
	m.takeDevices(c, all)
	if len(m.Init) > 0 || all {
		init := pveInit{DatastoreID: types.StringValue("local-lvm")}
		if len(m.Init) > 0 {
			init = m.Init[0]
		}
		init.take(c, all)
		m.Init = []pveInit{init}
	}
}

// takeDevices reads disks, in the order of the model, and then those that it does not know; and
// network devices.
func (m *pveModel) takeDevices(c pveConfig, all bool) {
	if len(m.Disk) > 0 || all {
		var names []string
		for _, d := range m.Disk {
			names = append(names, d.Interface.ValueString())
		}
		for _, name := range c.of("scsi", "virtio", "sata") {
			if !slices.Contains(names, name) && part(c.text(name), "media") == "" {
				names = append(names, name)
			}
		}
		m.Disk = nil
		for _, name := range names {
			if v := c.text(name); v != "" {
				store, _, _ := strings.Cut(v, ":")
				m.Disk = append(m.Disk, pveDisk{types.StringValue(name), types.StringValue(store), types.Int64Value(gigabytes(part(v, "size")))})
			}
		}
	}
	if len(m.Network) == 0 && !all {
		return
	}
	old := m.Network
	m.Network = nil
	for i, name := range c.of("net") {
		v := c.text(name)
		model, mac, _ := strings.Cut(strings.Split(v, ",")[0], "=")
		n := pveNetwork{
			Bridge: types.StringValue(part(v, "bridge")), Model: types.StringValue(model), MACAddress: types.StringValue(mac),
			VLANID: pveConfig{"tag": part(v, "tag")}.number("tag", 0), Firewall: types.BoolValue(part(v, "firewall") == "1"),
		}
		if i < len(old) && strings.EqualFold(old[i].MACAddress.ValueString(), mac) {
			n.MACAddress = old[i].MACAddress // as it is written
		}
		m.Network = append(m.Network, n)
	}
}

func (i *pveInit) take(c pveConfig, all bool) {
	i.UserDataFileID = kept(i.UserDataFileID, part(c.text("cicustom"), "user"), all)
	if len(i.IPConfig) > 0 || all {
		i.IPConfig = nil
		for _, name := range c.of("ipconfig") {
			v := c.text(name)
			v4 := pveIPv4{Address: types.StringValue(part(v, "ip")), Gateway: kept(types.StringNull(), part(v, "gw"), true)}
			i.IPConfig = append(i.IPConfig, pveIPConfig{[]pveIPv4{v4}})
		}
	}
	servers := strings.Fields(c.text("nameserver"))
	if len(i.DNS) > 0 || all && (len(servers) > 0 || c.text("searchdomain") != "") {
		var d pveDNS
		if len(i.DNS) > 0 {
			d = i.DNS[0]
		}
		if d.Domain = kept(d.Domain, c.text("searchdomain"), all); d.Servers != nil || len(servers) > 0 {
			d.Servers = append([]string{}, servers...)
		}
		i.DNS = []pveDNS{d}
	}
	keys, err := url.PathUnescape(c.text("sshkeys"))
	if err != nil {
		keys = c.text("sshkeys")
	}
	lines := strings.FieldsFunc(keys, func(r rune) bool { return r == '\n' })
	if len(i.UserAccount) > 0 || all && (len(lines) > 0 || c.text("ciuser") != "") {
		var u pveUser
		if len(i.UserAccount) > 0 {
			u = i.UserAccount[0]
		}
		if u.Username = kept(u.Username, c.text("ciuser"), all); u.Keys != nil || len(lines) > 0 {
			u.Keys = append([]string{}, lines...)
		}
		i.UserAccount = []pveUser{u} // the API does not tell a password
	}
}
