package proxmox

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Estate is what a cluster has.
type Estate struct {
	Nodes        []Node            `json:"nodes"`
	Storages     []Storage         `json:"storages"`
	VLANs        []VLAN            `json:"vlans"`
	Pools        []string          `json:"pools"`
	Tokens       []Token           `json:"tokens"`
	VMs          map[int]*VM       `json:"vms"`
	Tasks        []*Task           `json:"tasks"` // in the order in which they began
	Reservations map[string]string `json:"reservations,omitempty"`
	Process      int               `json:"process"` // of the last task
	LastMAC      int               `json:"lastMAC"` // of the last address that was drawn
}

// Node is a hypervisor.
type Node struct {
	Name    string   `json:"name"`
	Offline bool     `json:"offline,omitempty"`
	CPUs    int      `json:"cpus"`
	Memory  int64    `json:"memory"` // in bytes
	Bridges []string `json:"bridges"`
}

// Storage is where disks are, on every node.
type Storage struct {
	Name   string `json:"name"`
	Type   string `json:"type"` // lvmthin, dir
	Shared bool   `json:"shared,omitempty"`
	Total  int64  `json:"total"` // in bytes
}

// VLAN is a network behind the bridges, with a DHCP server.
type VLAN struct {
	ID      int    `json:"id"`
	Subnet  string `json:"subnet"`  // 10.100.0.0/24
	Gateway string `json:"gateway"` // 10.100.0.1
	// Interface is whether the nodes have an interface of their own in it (vmbr0.100).
	Interface bool `json:"interface"`
}

// VM is a virtual machine, or a template of one.
type VM struct {
	ID       int               `json:"id"`
	Node     string            `json:"node"`
	Pool     string            `json:"pool,omitempty"`
	Template bool              `json:"template,omitempty"`
	Running  bool              `json:"running,omitempty"`
	Lock     string            `json:"lock,omitempty"`    // clone, migrate, backup
	Config   map[string]string `json:"config"`            // as the API has it, name and tags included
	Pending  map[string]string `json:"pending,omitempty"` // from the next start on
	Files    map[string]string `json:"files,omitempty"`   // of the guest, by their paths: those that its agent has written
}

func (vm *VM) copy() VM {
	c := *vm
	c.Config, c.Pending, c.Files = maps.Clone(vm.Config), maps.Clone(vm.Pending), maps.Clone(vm.Files)
	return c
}

// option is the value that counts from the next start on.
func (vm *VM) option(name string) string {
	if v, ok := vm.Pending[name]; ok {
		return v
	}
	return vm.Config[name]
}

func (vm *VM) number() string { return strconv.Itoa(vm.ID) }

func (e *Estate) node(name string) (Node, error) {
	for _, n := range e.Nodes {
		if n.Name == name {
			if n.Offline {
				return n, refusal{status: 595, message: "No route to host"}
			}
			return n, nil
		}
	}
	return Node{}, broken("hostname lookup '%s' failed - failed to get address info for: %s: Name or service not known", name, name)
}

func (e *Estate) storage(name string) (Storage, error) {
	for _, s := range e.Storages {
		if s.Name == name {
			return s, nil
		}
	}
	return Storage{}, broken("storage '%s' does not exist", name)
}

func (e *Estate) vlan(id int) (VLAN, bool) {
	for _, v := range e.VLANs {
		if v.ID == id {
			return v, true
		}
	}
	return VLAN{}, false
}

// tagsOf reads the tags of a configuration.
func tagsOf(text string) []string {
	return slices.DeleteFunc(strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(";, ", r) }), func(s string) bool { return s == "" })
}

// Template is a template as an image factory leaves it. Its tags declare what it fulfils.
func Template(id int, node, name string, tags ...string) *VM {
	slices.Sort(tags)
	number := strconv.Itoa(id)
	return &VM{ID: id, Node: node, Template: true, Config: map[string]string{
		"name": name, "tags": strings.Join(tags, ";"), "cores": "1", "sockets": "1", "memory": "1024", "ostype": "l26", "scsihw": "virtio-scsi-single",
		"scsi0": "local-lvm:base-" + number + "-disk-0,size=10G", "ide2": "local-lvm:vm-" + number + "-cloudinit,media=cdrom",
		"net0": "virtio=BC:24:11:00:90:00,bridge=vmbr0", "boot": "order=scsi0", "agent": "enabled=1", "serial0": "socket", "vga": "serial0",
	}}
}

// Fulfilled are the tags of a template that lacks nothing.
func Fulfilled() []string { return []string{"cloud-init", "dhcp", "python3", "ssh-keys", "static-ip"} }

// Building is the estate of the example tenant-building: a hypervisor for tenants, one of the
// management plane, a template, and three tenants with a pool, a VLAN and a token each. secret
// draws the secret of a token.
func Building(secret func(tenant string) string) Estate {
	e := Estate{
		Nodes: []Node{
			{Name: "pve-tenant", CPUs: 32, Memory: 256 << 30, Bridges: []string{"vmbr0"}},
			{Name: "pve-mgmt", CPUs: 16, Memory: 128 << 30, Bridges: []string{"vmbr0"}},
		},
		Storages: []Storage{{Name: "local", Type: "dir", Total: 100 << 30}, {Name: "local-lvm", Type: "lvmthin", Total: 2 << 40}},
		VMs: map[int]*VM{
			9000: Template(9000, "pve-tenant", "fedora-43-template", Fulfilled()...),
			// What a tenant must never touch.
			100: {ID: 100, Node: "pve-mgmt", Running: true, Config: map[string]string{"name": "dns01", "tags": "management", "cores": "2", "memory": "2048"}},
		},
	}
	for i, tenant := range []string{"grooveiq", "vintronics", "moneyrouter"} {
		id := 100 + i
		part := "10." + strconv.Itoa(id) + ".0."
		e.Pools = append(e.Pools, tenant)
		e.VLANs = append(e.VLANs, VLAN{ID: id, Subnet: part + "0/24", Gateway: part + "1", Interface: true})
		e.Tokens = append(e.Tokens, TenantToken(tenant, secret(tenant), id))
	}
	e.Tokens = append(e.Tokens, Token{ID: "root@pam!administrator", Secret: secret("administrator"), Grants: []Grant{{Path: "/", Privileges: []string{"*"}}}})
	return e
}
